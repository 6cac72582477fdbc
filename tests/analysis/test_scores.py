"""Normalised scores and time to target."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lobench.analysis.scores import ScoreScale, normalised_scores, time_to_target, worst_last
from lobench.core.metric import Direction

SCALE = ScoreScale(untrained=2.0, tuned=0.5)


def test_untrained_is_0_and_tuned_is_1_and_the_ends_are_clipped() -> None:
    found = normalised_scores([2.0, 0.5, 1.25, 1e30, -50.0], SCALE)
    assert found.tolist() == [0.0, 1.0, 0.5, -1.0, 2.0]


def test_a_diverged_seed_scores_minus_1_and_never_vanishes() -> None:
    found = normalised_scores([math.nan, math.inf, 0.5, 0.5], SCALE, diverged=[False, False, True, False])
    assert found.tolist() == [-1.0, -1.0, -1.0, 1.0]


def test_an_accuracy_goes_up() -> None:
    found = normalised_scores([0.1, 0.5, 0.9], ScoreScale(untrained=0.1, tuned=0.9))
    assert found == pytest.approx([0.0, 0.5, 1.0])
    assert ScoreScale.of(Direction.MAX, untrained=0.1, tuned=0.9).is_usable
    assert not ScoreScale.of(Direction.MIN, untrained=0.1, tuned=0.9).is_usable
    assert not ScoreScale.of(None, untrained=0.1, tuned=0.9).is_usable


def test_a_log_scale_counts_orders_of_magnitude() -> None:
    found = normalised_scores([1.0, 1e-2, 1e-4, 0.0], ScoreScale(untrained=1.0, tuned=1e-4, log=True))
    assert found == pytest.approx([0.0, 0.5, 1.0, 2.0])


@pytest.mark.parametrize(
    "scale",
    [
        ScoreScale(untrained=1.0, tuned=1.0),
        ScoreScale(untrained=math.nan, tuned=1.0),
        ScoreScale(untrained=1.0, tuned=0.0, log=True),
    ],
)
def test_a_case_without_a_scale_has_no_score_at_all(scale: ScoreScale) -> None:
    assert np.isnan(normalised_scores([1.0, math.nan], scale)).all()


def test_time_to_target_is_the_first_place_or_censored() -> None:
    curves = [[3.0, 1.0, 2.0, 0.5], [3.0, math.nan, 2.0, 1.5], [0.5, 3.0, 3.0, 3.0]]
    assert time_to_target(curves, [0, 10, 20, 30], 1.0).tolist() == [10.0, math.inf, 0.0]
    assert time_to_target([[0.1, 0.8]], [0, 1.5], 0.8, higher=True).tolist() == [1.5]
    with pytest.raises(ValueError, match="4 evaluations, steps 2"):
        time_to_target(curves, [0, 1], 1.0)


def test_nan_ranks_last() -> None:
    assert worst_last([1.0, math.nan]).tolist() == [1.0, math.inf]
    assert worst_last([1.0, math.nan], higher=True).tolist() == [1.0, -math.inf]


@pytest.mark.parametrize(
    ("direction", "untrained", "tuned", "usable"),
    [
        (Direction.MIN, 2.0, 1.0, True),
        (Direction.MIN, 2.0, 3.0, False),
        (Direction.MIN, 2.0, 2.0, False),
        (Direction.MAX, 0.1, 0.9, True),
        (Direction.MAX, 0.1, 0.05, False),
        (Direction.MIN, 2.0, math.nan, False),
    ],
)
def test_a_scale_never_stands_on_its_head(direction: Direction, untrained: float, tuned: float, usable: bool) -> None:
    scale = ScoreScale.of(direction, untrained=untrained, tuned=tuned)
    assert scale.is_usable is usable
    assert bool(np.isnan(normalised_scores([tuned, 1.0], scale)).all()) is not usable
