"""Aggregates over cases and seeds: interquartile mean, probability of improvement, their bootstrap intervals.

Cells are the scores of each case's seeds; cases may have different numbers of seeds. All of them are of normalised
scores: raw losses of different tasks have no common mean.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.intervals import Interval, percentile_bounds

__all__ = [
    "bootstrap_interval",
    "iqm",
    "iqm_interval",
    "probability_of_improvement",
    "probability_of_improvement_interval",
]

FloatArray = NDArray[np.float64]
Cells = Sequence[Sequence[float]]


def iqm(cells: Cells) -> float:
    """Returns the interquartile mean over all seeds of all cases: a quarter is cut off at either end.

    A case with more seeds weighs more. NaN scores (a case without a scale) do not vanish: the result is NaN.
    """
    values = _pooled(cells)
    return float(trimmed_mean(values, 0.25)) if np.isfinite(values).all() else math.nan


def probability_of_improvement(ours: Cells, theirs: Cells) -> float:
    """Returns the mean over cases of P(x > y) + P(x = y)/2, x a seed of ours and y one of theirs.

    Args:
      ours, theirs: Scores by case, the same cases in the same order; higher is better.
    Raises:
      ValueError: not the same number of cases.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} cases against {len(theirs)}")
    for cells in (ours, theirs):
        _pooled(cells)
    pairs = zip(ours, theirs, strict=True)
    shares = [float(_wins(x, y).mean()) for x, y in pairs]
    return math.fsum(shares) / len(shares)


def bootstrap_interval(
    cells: Cells,
    statistic: Callable[[list[FloatArray]], FloatArray],
    *,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Returns a percentile bootstrap interval, seeds resampled within each case.

    Each case's deviations from its mean are inflated by sqrt(n/(n-1)): with a handful of seeds the plain percentile
    interval is too narrow by that factor.

    Args:
      cells: Scores by case; at least two seeds in each, else there is no interval (NaN).
      statistic: From resampled cells, each float64[num_resamples, num_seeds], to float64[num_resamples].
      seed: Of the resampling: the same cells give the same interval.
    """
    values = [np.asarray(cell, np.float64) for cell in cells]
    if any(len(cell) < 2 or not np.isfinite(cell).all() for cell in values):
        return math.nan, math.nan
    draw = np.random.default_rng(seed)
    resampled = []
    for cell in values:
        n = len(cell)
        spread = cell.mean() + (cell - cell.mean()) * math.sqrt(n / (n - 1))
        resampled.append(spread[draw.integers(0, n, (num_resamples, n))])
    lower, upper = percentile_bounds(statistic(resampled), confidence)
    return float(lower), float(upper)


def iqm_interval(cells: Cells, *, num_resamples: int = 2000) -> Interval:
    """Returns the IQM with its stratified, inflated bootstrap interval."""
    lower, upper = bootstrap_interval(
        cells,
        lambda resampled: np.asarray(trimmed_mean(np.concatenate(resampled, axis=1), 0.25)),
        num_resamples=num_resamples,
    )
    return Interval(mean=iqm(cells), lower=lower, upper=upper, method="bootstrap")


def probability_of_improvement_interval(ours: Cells, theirs: Cells, *, num_resamples: int = 2000) -> Interval:
    """Returns the probability of improvement with a bootstrap interval, both sides resampled within each case.

    A percentile of probabilities stays in [0, 1].
    """
    mean, both = probability_of_improvement(ours, theirs), [*ours, *theirs]
    if any(len(cell) < 2 or not all(map(math.isfinite, cell)) for cell in both):
        return Interval(mean=mean, method="bootstrap")
    drawn, shares = _times_drawn(tuple(map(len, both)), num_resamples), []
    for x, y, of_x, of_y in zip(ours, theirs, drawn[: len(ours)], drawn[len(ours) :], strict=True):
        wins = _wins(x, y)
        shares.append(((of_x @ wins) * of_y).sum(axis=1) / wins.size)  # sums of halves are exact
    lower, upper = percentile_bounds(np.stack(shares).mean(axis=0))
    return Interval(mean=mean, lower=float(lower), upper=float(upper), method="bootstrap")


@functools.lru_cache(maxsize=1)  # the pairs of a page have the same seeds
def _times_drawn(sizes: tuple[int, ...], num_resamples: int) -> list[FloatArray]:
    """Returns how often each seed of each cell is in each resample: float64[num_resamples, num_seeds]."""
    draw, found = np.random.default_rng(0), []
    for size in sizes:
        places = draw.integers(0, size, (num_resamples, size)) + size * np.arange(num_resamples)[:, None]
        counts = np.bincount(places.ravel(), minlength=num_resamples * size)
        found.append(counts.reshape(num_resamples, size).astype(np.float64))
    return found


def _wins(x: Sequence[float], y: Sequence[float]) -> FloatArray:
    """Returns 1 where a seed of x is above one of y, 1/2 where they are equal: float64[num_x, num_y].

    NaN stays NaN: all of them are where one value is not finite.
    """
    left, right = np.asarray(x, np.float64)[:, None], np.asarray(y, np.float64)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return np.full((len(x), len(y)), np.nan)
    return np.asarray((left > right) + 0.5 * (left == right))


def _pooled(cells: Cells) -> FloatArray:
    if not cells or any(len(cell) == 0 for cell in cells):
        raise ValueError("an aggregate needs at least one case, and a seed in each")
    return np.concatenate([np.asarray(cell, np.float64) for cell in cells])


def trimmed_mean(values: Any, share: float) -> Any:
    """Returns the mean over the last axis without that share of the values at either end."""
    size = values.shape[-1]
    cut = int(share * size)
    return np.partition(values, (cut, size - cut - 1), axis=-1)[..., cut : size - cut].mean(axis=-1)
