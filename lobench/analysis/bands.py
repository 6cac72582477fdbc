"""What seeds say together at every point of a curve: their mean with its interval, their median with its quantiles."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.intervals import is_share, is_trial, share_mean
from lobench.analysis.student import t_isf
from lobench.core.metric import Direction

__all__ = ["BAND", "bands"]

BAND = ("mean", "lower", "upper", "tenth", "median", "ninetieth")
_QUANTILES = (0.1, 0.5, 0.9)
_TAIL = 0.025  # of a 95% interval


def bands(rows: NDArray[np.float64], metric: str, direction: Direction | None) -> NDArray[np.float64]:
    """Returns the six numbers of BAND at each point: float64[..., 6, num_points].

    Many cells of one shape are computed at once: ten thousand one after another take seconds.

    The mean is NaN where a seed diverged, and bounds are NaN where nothing can be said, as in
    `lobench.analysis.intervals`. A quantile takes a seed that diverged for one that is worse than any other: of ten
    seeds of which one diverged, the median is still a number.

    Args:
      rows: The curves of the seeds: float64[..., num_seeds, num_points].
    """
    with np.errstate(invalid="ignore", over="ignore"):
        mean = rows.mean(axis=-2)
        lower, upper = _interval(rows, mean, metric)
        return np.stack([mean, lower, upper, *_quantiles(rows, direction)], axis=-2)


def _interval(
    rows: NDArray[np.float64], mean: NDArray[np.float64], metric: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the bounds of `stratified_t_mean`, and of `share_mean` where the values are shares."""
    count = rows.shape[-2]
    if count < 2:
        return np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    half = t_isf(_TAIL, count - 1) * rows.std(axis=-2, ddof=1) / math.sqrt(count)
    lower, upper = mean - half, mean + half
    finite = rows[np.isfinite(rows)]
    if not (finite.size and is_share(metric, [float(finite.min()), float(finite.max())])):
        return lower, upper
    inside = (mean > 0) & (mean < 1) & (half > 0)
    safe = np.where(inside, mean, 0.5)
    centre, reach = np.log(safe / (1 - safe)), half / (safe * (1 - safe))
    lower, upper = (
        np.where(inside, 0.5 + np.tanh((centre + side) / 2) / 2, plain)
        for side, plain in ((-reach, lower), (reach, upper))
    )
    whole = ((rows == 0) | (rows == 1)).all(axis=-2)  # each seed is a success or a failure
    for right in range(count + 1) if is_trial(metric) else ():
        at = whole & (np.rint(mean * count) == right)
        if at.any():
            found = share_mean([1.0] * right + [0.0] * (count - right), trials=True)
            lower[at], upper[at] = found.lower, found.upper
    return lower, upper


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
