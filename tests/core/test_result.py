"""Numbers drawn from curves, whatever is in them."""

from __future__ import annotations

import dataclasses
import math
from array import array

import pytest

from lobench.core.result import Curves, curves_of, mean_of

INF, NAN = math.inf, math.nan


def _curves(values: list[float]) -> Curves:
    rows = memoryview(array("f", values)).cast("B").cast("f", (1, len(values)))
    return Curves(seeds=(0,), metrics={"train/loss": rows}, eval_steps=(0, 1), diverged_at=(-1,))


@pytest.mark.parametrize(
    ("values", "mean"),
    [([1.0, 2.0], 1.5), ([INF, 1.0], INF), ([-INF, 1.0], -INF), ([INF, -INF], NAN), ([NAN, INF], NAN)],
)
def test_a_mean_is_that_of_ieee_754_also_where_infinities_of_both_signs_meet(values: list[float], mean: float) -> None:
    assert mean_of(values) == pytest.approx(mean, nan_ok=True)
    curves = _curves(values)
    assert curves.mean("train/loss") == pytest.approx([mean], nan_ok=True)


def test_what_was_read_is_written_as_it_came_and_what_was_changed_is_not() -> None:
    payload = _curves([1.0, 0.5]).to_payload()
    read = Curves.from_payload(payload)
    assert read.to_payload() is payload
    changed = dataclasses.replace(read, wall_seconds=7.0)
    assert Curves.from_payload(changed.to_payload()).wall_seconds == 7.0


def test_readers_of_one_result_share_curves_that_none_can_change() -> None:
    payload = _curves([1.0, 0.5]).to_payload()
    curves = curves_of(payload)
    assert curves_of(bytes(bytearray(payload))) is curves
    with pytest.raises(TypeError):
        curves.metrics["train/loss"] = curves.metrics["train/loss"]  # type: ignore[index]
