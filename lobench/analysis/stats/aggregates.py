"""Aggregates over cases and seeds: interquartile mean and probability of improvement, with their intervals.

Cells are the scores of each case's seeds. Cases may have different numbers of seeds. Pass normalised scores only: raw
losses of different tasks have no common mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.t_distribution import t_isf

__all__ = [
    "bootstrap_interval",
    "iqm",
    "iqm_interval",
    "probability_of_improvement",
    "probability_of_improvement_interval",
]

_LEAST_STRETCH = 1.03  # with less, fewer than 93% of the intervals of skewed scores hold the truth

FloatArray = NDArray[np.float64]
SeedScores = Sequence[Sequence[float]]


def iqm(cells: SeedScores) -> float:
    """Returns the interquartile mean over all seeds of all cases, which drops a quarter of the values at either end.

    A case with more seeds weighs more. If a score is NaN (a case without a scale), the result is NaN.
    """
    values = _pooled_values(cells)
    return float(trimmed_mean(values, 0.25)) if np.isfinite(values).all() else math.nan


def probability_of_improvement(ours: SeedScores, theirs: SeedScores) -> float:
    """Returns the mean over cases of P(x > y) + P(x = y)/2, where x is a seed of `ours` and y a seed of `theirs`.

    Args:
      ours, theirs: Scores by case, with the same cases in the same order. Higher is better.

    Raises:
      ValueError: The numbers of cases differ.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} cases against {len(theirs)}")
    for cells in (ours, theirs):
        _pooled_values(cells)
    pairs = zip(ours, theirs, strict=True)
    shares = [float(_wins(x, y).mean()) for x, y in pairs]
    return math.fsum(shares) / len(shares)


def bootstrap_interval(
    cells: SeedScores,
    statistic: Callable[[list[FloatArray]], FloatArray],
    *,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
    groups: Sequence[Sequence[int]] | None = None,
) -> tuple[float, float]:
    """Returns a bootstrap interval, with seeds resampled within each group of cases.

    The bounds are percentiles of the resampled statistics. Their distances from the median of these statistics are
    stretched by two factors and added to the statistic itself, because a plain percentile interval of a few seeds is
    too narrow. The first factor is sqrt(n / (n - 1)), since resampled seeds vary less than seeds by this factor. The
    second is the quantile of Student's t with the seeds' degrees of freedom divided by the normal quantile, at least
    1.03.

    Args:
      cells: Scores by case. If a case has fewer than two seeds or a non-finite score, the bounds are NaN.
      statistic: Function from resampled cells, each float64[num_resamples, num_seeds], to float64[num_resamples].
      confidence: Confidence level, between 0 and 1.
      num_resamples: Number of bootstrap resamples.
      seed: Seed of the resampling. Equal cells give equal intervals.
      groups: Indices of the cases in each group. The cells of a group have the same seeds in the same order, and one
        draw of seeds serves all of them. None: each case is its own group.
    """
    values = [np.asarray(cell, np.float64) for cell in cells]
    if any(len(cell) < 2 or not np.isfinite(cell).all() for cell in values):
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    group_by_index = {index: group for group, members in enumerate(groups or ()) for index in members}
    draws_by_group: dict[int, NDArray[np.int64]] = {}
    resampled_cells = []
    for index, cell in enumerate(values):
        num_seeds = len(cell)
        group = group_by_index.get(index, -1 - index)
        if group not in draws_by_group:
            draws_by_group[group] = rng.integers(0, num_seeds, (num_resamples, num_seeds))
        resampled_cells.append(cell[draws_by_group[group]])
    statistics, estimate = statistic(resampled_cells), float(statistic([cell[None] for cell in values])[0])
    tail_probability, degrees = (1 - confidence) / 2, sum(members.shape[1] - 1 for members in draws_by_group.values())
    inflation = math.sqrt(math.fsum(len(cell) / (len(cell) - 1) for cell in values) / len(values))
    stretch = inflation * max(
        _LEAST_STRETCH, -t_isf(tail_probability, degrees) / NormalDist().inv_cdf(tail_probability)
    )
    median_statistic = float(np.median(statistics))
    percents = 50 * (1 - confidence), 100 - 50 * (1 - confidence)
    bounds = np.percentile(statistics, percents)
    lower, upper = (estimate + stretch * (float(bound) - median_statistic) for bound in bounds)
    return lower, upper


def iqm_interval(
    cells: SeedScores, *, num_resamples: int = 2000, groups: Sequence[Sequence[int]] | None = None
) -> Interval:
    """Returns the interquartile mean with its stratified, stretched bootstrap interval; see `bootstrap_interval`."""
    lower, upper = bootstrap_interval(
        cells,
        lambda resampled: np.asarray(trimmed_mean(np.concatenate(resampled, axis=1), 0.25)),
        num_resamples=num_resamples,
        groups=groups,
    )
    return Interval(mean=iqm(cells), lower=lower, upper=upper, method="bootstrap")


def probability_of_improvement_interval(
    ours: SeedScores, theirs: SeedScores, *, groups: Sequence[Sequence[int]] | None = None, confidence: float = 0.95
) -> Interval:
    """Returns the probability of improvement with Newcombe's interval for the Mann-Whitney statistic.

    The interval holds the probabilities P whose distance from the observed one is at most z standard errors at P, plus
    half a step of the statistic. The variance at P is a sum over cases, as if each case had the probability P. If cases
    differ, this exceeds their variance, because the variance is a concave function of P. A percentile bootstrap has no
    spread if one side wins all pairs: for three seeds against three it would give [1, 1].

    If no arrangement of the seeds has a two-sided p-value of at most 1 - confidence, as for three seeds against three,
    the interval contains one half.

    Args:
      ours, theirs: Scores by case, with the same cases in the same order. Higher is better.
      groups: Indices of the cases in each group. The cases of a group may move together, so their standard errors are
        added. None: each case is its own group.
      confidence: Confidence level, between 0 and 1.

    Source: Newcombe 2006, part 2, method 5.
    """
    mean = probability_of_improvement(ours, theirs)
    all_cells = [*ours, *theirs]
    if any(len(cell) < 2 or not all(map(math.isfinite, cell)) for cell in all_cells):
        return Interval(mean=mean, method="newcombe")
    sizes = [(len(x), len(y)) for x, y in zip(ours, theirs, strict=True)]
    index_groups = groups or [(index,) for index in range(len(sizes))]
    z = -NormalDist().inv_cdf((1 - confidence) / 2)
    half_step = 0.5 / sum(x * y for x, y in sizes)

    def is_plausible(probability: float) -> bool:
        errors = [math.sqrt(_rank_variance(probability, *size)) for size in sizes]
        variance = (
            math.fsum(math.fsum(errors[index] for index in group) ** 2 for group in index_groups) / len(sizes) ** 2
        )
        return abs(mean - probability) <= z * math.sqrt(variance) + half_step

    lower = _boundary(mean, 0.0, is_plausible)
    upper = _boundary(mean, 1.0, is_plausible)
    # A group has as many independent arrangements of seeds as its smallest case.
    arrangements = math.prod(
        min(math.comb(sum(sizes[index]), sizes[index][0]) for index in group) for group in index_groups
    )
    if 2 / arrangements > 1 - confidence:
        lower = min(lower, 0.5)
        upper = max(upper, 0.5)
    return Interval(mean=mean, lower=lower, upper=upper, method="newcombe")


def _rank_variance(probability: float, size_x: int, size_y: int) -> float:
    """Returns the variance of the share of pairs that x wins, if it wins each pair with probability `probability`."""
    half_excess = (size_x + size_y) / 2 - 1
    factor = 1 + half_excess * ((1 - probability) / (2 - probability) + probability / (1 + probability))
    return probability * (1 - probability) * factor / (size_x * size_y)


def _boundary(inner_point: float, outer_point: float, is_met: Callable[[float], bool]) -> float:
    """Returns the point between `inner_point` and `outer_point` up to which a condition holds."""
    if is_met(outer_point):
        return outer_point
    for _ in range(50):
        midpoint = (inner_point + outer_point) / 2
        inner_point, outer_point = (midpoint, outer_point) if is_met(midpoint) else (inner_point, midpoint)
    return inner_point


def _wins(x: Sequence[float], y: Sequence[float]) -> FloatArray:
    """Returns 1 for pairs with x above y, 1/2 for equal pairs and 0 otherwise: float64[num_x, num_y].

    All entries are NaN if any value is not finite.
    """
    x_column = np.asarray(x, np.float64)[:, None]
    y_row = np.asarray(y, np.float64)
    if not (np.isfinite(x_column).all() and np.isfinite(y_row).all()):
        return np.full((len(x), len(y)), np.nan)
    return np.asarray((x_column > y_row) + 0.5 * (x_column == y_row))


def _pooled_values(cells: SeedScores) -> FloatArray:
    if not cells or any(len(cell) == 0 for cell in cells):
        raise ValueError("an aggregate needs at least one case, and a seed in each")
    return np.concatenate([np.asarray(cell, np.float64) for cell in cells])


def trimmed_mean(values: Any, share: float) -> Any:
    """Returns the mean over the last axis, after dropping the fraction `share` of the values at either end."""
    size = values.shape[-1]
    num_dropped = int(share * size)
    return np.partition(values, (num_dropped, size - num_dropped - 1), axis=-1)[
        ..., num_dropped : size - num_dropped
    ].mean(axis=-1)
