"""Compact drawing of curves: choice of a log axis, thinning of points, and rows of bars as text."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["evenly_spaced_indices", "spans_decades", "sparkline"]

_LOG_AXIS_FACTOR = 20.0  # positive values that differ by more than this factor
_BARS = "▁▂▃▄▅▆▇█"
_DIVERGED = "x"


def spans_decades(values: ArrayLike) -> bool:
    """Returns whether the finite values are all positive and span enough decades for a log axis."""
    array = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return bool(len(finite)) and bool(finite.min() > 0) and bool(finite.max() / finite.min() > _LOG_AXIS_FACTOR)


@functools.lru_cache(maxsize=256)  # thousands of curves have a few lengths
def evenly_spaced_indices(count: int, max_count: int) -> NDArray[np.intp]:
    """Returns at most `max_count` indices below `count`: the first, the last, and evenly spaced ones between."""
    indices = np.rint(np.linspace(0, count - 1, min(count, max_count))).astype(np.intp)  # distinct
    indices.setflags(write=False)
    return indices


def sparkline(values: Sequence[float] | np.ndarray) -> str:
    """Returns a curve as a row of bars, on a log scale if it spans a factor of a hundred.

    Values that are not finite are drawn as x.
    """
    # Lists, because they are three times as fast as arrays for so few numbers, and there may be 10,000 curves.
    curve = np.asarray(values, np.float64).tolist()
    finite = [value for value in curve if math.isfinite(value)]
    if not finite:
        return _DIVERGED * len(curve)
    low = min(finite)
    high = max(finite)
    if low > 0 and high > 100 * low:
        curve = [math.log(value) if value > 0 else math.nan for value in curve]
        low = math.log(low)
        high = math.log(high)
    span = high - low or math.inf
    return "".join(_BARS[min(int((v - low) / span * 8), 7)] if math.isfinite(v) else _DIVERGED for v in curve)
