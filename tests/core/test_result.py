"""Numbers drawn from curves, whatever is in them."""

from __future__ import annotations

import math
from array import array

import pytest

from lobench.core.result import Curves, mean_of

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("values", "mean"),
    [([1.0, 2.0], 1.5), ([INF, 1.0], INF), ([-INF, 1.0], -INF), ([INF, -INF], NAN), ([NAN, INF], NAN)],
)
def test_a_mean_is_that_of_ieee_754_also_where_infinities_of_both_signs_meet(values: list[float], mean: float) -> None:
    assert mean_of(values) == pytest.approx(mean, nan_ok=True)
    rows = memoryview(array("f", values)).cast("B").cast("f", (1, len(values)))
    curves = Curves(seeds=(0,), metrics={"train/loss": rows}, eval_steps=(0, 1), diverged_at=(-1,))
    assert curves.mean("train/loss") == pytest.approx([mean], nan_ok=True)
