"""Which way a metric is better: declared, or known by name, or not known."""

from __future__ import annotations

import re

import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.core.metric import (
    Direction,
    direction_of,
    directions_by_metric,
    is_named_loss,
    usual_direction,
)

SHOWN = texts_of("core")


def test_losses_fall_and_accuracies_rise_and_nothing_else_is_guessed() -> None:
    assert direction_of("outer_valid/loss", {}) is Direction.MIN
    assert direction_of("test/accuracy", {}) is Direction.MAX
    for name in ("train/return", "test/f1", "test/top5_accuracy", "test/not_a_loss", "lossy", "test/loss_ratio"):
        assert direction_of(name, {}) is None
    assert direction_of("train/return", {"train/return": Direction.MAX}) is Direction.MAX


@pytest.mark.parametrize(
    ("names", "direction"),
    [
        (("val/box_loss", "Loss/test", "val_bpb", "val/bpb", "perplexity", "test/error_rate"), Direction.MIN),
        (("val/top5_acc", "acc"), Direction.MAX),
        (("terror", "val/bleu", "errors_corrected", "accident"), None),
    ],
)
def test_usual_direction_follows_the_name_of_a_loss_an_error_or_an_accuracy(
    names: tuple[str, ...], direction: Direction | None
) -> None:
    assert {usual_direction(name) for name in names} == {direction}
    assert not is_named_loss("val_bpb") and is_named_loss("val_loss")


def test_a_bare_name_counts_for_every_split_and_a_whole_one_for_its_own() -> None:
    metrics = ["train/return", "test/return", "test/regret", "test/loss"]
    found = directions_by_metric({"return": "max", "test/regret": "min"}, metrics, where="x")
    assert found == {"train/return": Direction.MAX, "test/return": Direction.MAX, "test/regret": Direction.MIN}
    assert directions_by_metric({"return": "max", "test/return": "min"}, metrics, where="x")["test/return"] == "min"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"return": "up"}, SHOWN["suite-metric-directions-return-is"]),
        ({"return": 1}, "got 1"),
        ("max", SHOWN["suite-metric-directions-is-not"]),
    ],
)
def test_what_is_no_direction_is_an_error(declared: object, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        directions_by_metric(declared, [], where="suite")
