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
    """Returns mean, interval bounds and quantiles at each point, as named in BAND: float64[..., 6, num_points].

    Pass many cells of one shape in one call, because ten thousand single calls take seconds.

    The mean is NaN if a seed diverged. Bounds are NaN without an interval, as in
    `lobench.analysis.stats.intervals`. Quantiles count a diverged seed as worse than any other: if one of ten seeds
    diverged, the median is still a number.

    Args:
      rows: Curves of the seeds, float64[..., num_seeds, num_points].
      metric: Name of the metric, which selects the kind of interval.
      direction: Direction in which the metric is better. None counts as lower is better.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        mean = rows.mean(axis=-2)
        lower, upper, _ = metric_bounds(metric, rows)
        return np.stack([mean, lower, upper, *_quantiles(rows, direction)], axis=-2)


def _quantiles(rows: NDArray[np.float64], direction: Direction | None) -> list[NDArray[np.float64]]:
    worst = -np.inf if direction is Direction.MAX else np.inf
    sorted_rows = np.sort(np.where(np.isnan(rows), worst, rows), axis=-2)
    quantiles = []
    for share in _QUANTILES:
        position = share * (sorted_rows.shape[-2] - 1)
        lower_index = math.floor(position)
        fraction = position - math.floor(position)
        value = sorted_rows[..., lower_index, :]
        if fraction > 0:  # numpy's interpolation gives NaN between a finite and an infinite value
            value = value * (1 - fraction) + sorted_rows[..., lower_index + 1, :] * fraction
        quantiles.append(value)
    return quantiles
