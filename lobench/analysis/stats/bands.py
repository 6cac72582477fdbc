"""Bands of a curve over seeds: mean with interval, median with quantiles, at every point."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.intervals import metric_bounds
from lobench.core.metric import Direction

__all__ = ["BAND", "bands"]

BAND = ("mean", "lower", "upper", "tenth", "median", "ninetieth")
_QUANTILES = (0.1, 0.5, 0.9)


def bands(rows: NDArray[np.float64], metric: str, direction: Direction | None) -> NDArray[np.float64]:
    """Returns the six numbers of BAND at each point: float64[..., 6, num_points].

    Many cells of one shape are computed at once: ten thousand one after another take seconds.

    The mean is NaN where a seed diverged, and bounds are NaN where nothing can be said, as in
    `lobench.analysis.stats.intervals`. A quantile takes a seed that diverged for one that is worse than any other: of
    ten seeds of which one diverged, the median is still a number.

    Args:
      rows: The curves of the seeds: float64[..., num_seeds, num_points].
    """
    with np.errstate(invalid="ignore", over="ignore"):
        mean = rows.mean(axis=-2)
        lower, upper, _ = metric_bounds(metric, rows)
        return np.stack([mean, lower, upper, *_quantiles(rows, direction)], axis=-2)


def _quantiles(rows: NDArray[np.float64], direction: Direction | None) -> list[NDArray[np.float64]]:
    worst = -np.inf if direction is Direction.MAX else np.inf
    ordered = np.sort(np.where(np.isnan(rows), worst, rows), axis=-2)
    found = []
    for share in _QUANTILES:
        place = share * (ordered.shape[-2] - 1)
        below, part = math.floor(place), place - math.floor(place)
        value = ordered[..., below, :]
        if part > 0:  # between two seeds; numpy's own makes NaN of a finite one beside an infinite one
            value = value * (1 - part) + ordered[..., below + 1, :] * part
        found.append(value)
    return found
