"""Wide ranges and long curves: the choice of a log axis, and thinning of points."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["evenly", "spans_decades"]

_LOG_FROM = 20.0  # positive values that differ by more than this factor


def spans_decades(values: ArrayLike) -> bool:
    """Returns whether the finite values are all positive and span enough decades for a log axis."""
    found = np.asarray(values, np.float64)
    known = found[np.isfinite(found)]
    return bool(len(known)) and bool(known.min() > 0) and bool(known.max() / known.min() > _LOG_FROM)


@functools.lru_cache(maxsize=256)  # thousands of curves have a few lengths
def evenly(count: int, most: int) -> NDArray[np.intp]:
    """Returns at most `most` indices below `count`: the first, the last, and evenly spaced ones between."""
    found = np.rint(np.linspace(0, count - 1, min(count, most))).astype(np.intp)  # at least one apart
    found.setflags(write=False)
    return found
