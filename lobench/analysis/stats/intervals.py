"""Confidence intervals of means over cases and seeds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.paired_samples import RELATIVE_TOLERANCE, Estimate, variance_of_mean
from lobench.analysis.stats.proportions import least_share, most_share
from lobench.analysis.stats.shared_items import clustered_mean
from lobench.analysis.stats.t_distribution import t_isf
from lobench.core.result import mean_of

__all__ = [
    "Interval",
    "IntervalMethod",
    "IntervalRecord",
    "agreed_variance",
    "common_seeds_of",
    "grouped_t_mean",
    "is_trial",
    "logged_step",
    "metric_bounds",
    "metric_mean",
    "metric_means",
    "num_examples",
    "stratified_t",
    "stratified_t_mean",
    "without_equal_pairs",
]

IntervalMethod = Literal["t", "log-t", "logit-t", "exact", "bootstrap", "newcombe", "sign"]
_TAIL_PROBABILITY = 0.025  # probability beyond each bound of a 95% interval
# Bounds on the number of examples in a share: fewer would be a single trial, more make little difference.
_LEAST_EXAMPLES, _MOST_EXAMPLES = 4, 1000
_MOST_DIGITS = 6  # significant digits of a value that was logged as text
_HALF_BITS = (8, 11)  # significant bits of bfloat16 and float16
# Width up to which an interval of a mean of two scores shows rounding only. The t quantile of one degree makes it 12.7
# times their difference, which is below 8e-6 then: that of float32 losses (6e-8 of a loss) on a scale whose unit is a
# hundredth of the loss.
_LEAST_WIDTH_OF_PAIR = 1e-4
# Log variance above which the log-normal interval of a loss stops growing, so that seeds of other orders of magnitude
# give bounds that can be read.
_MOST_LOG_VARIANCE = 2.0


class IntervalRecord(TypedDict):
    """Mean with its 95% interval; null if unknown."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its confidence interval. The bounds are NaN if it cannot be computed.

    Attributes:
      mean: The mean.
      lower, upper: Bounds of the interval.
      degrees: Degrees of freedom, Satterthwaite's for several cases.
      method: Kind of interval; see `metric_bounds`.

    >>> Interval(mean=0.5, lower=0.4, upper=0.6).method
    't'
    """

    mean: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    degrees: float = math.nan
    method: IntervalMethod = "t"

    def error(self, alpha: float = 0.05) -> float:
        """Returns the standard error of the mean, given that the bounds are a t interval at level 1 - alpha."""
        half = self.upper - self.mean
        return half / t_isf(alpha / 2, self.degrees) if half else 0.0


def stratified_t_mean(
    cells: Sequence[Sequence[float]], confidence: float = 0.95, *, least: Sequence[float] = ()
) -> Interval:
    """Returns the mean over cases of the mean over seeds, with a t interval.

    The variance is sum_c s_c^2 / n_c / C^2, with Satterthwaite's degrees of freedom. Diverged seeds stay visible in the
    mean: any NaN makes it NaN, an infinity makes it infinite, and either gives NaN bounds. A case with a single seed
    has no variance, so the bounds are NaN. If all seeds of each case are equal, both bounds equal the mean, unless
    `least` has a variance.

    >>> found = stratified_t_mean([[0.9, 1.1], [0.4, 0.6]])
    >>> round(found.mean, 3), round(found.lower, 3), round(found.upper, 3)
    (0.75, 0.446, 1.054)

    Args:
      cells: Values of each case's seeds. Cases may have different numbers of seeds.
      confidence: Confidence level, strictly between 0 and 1.
      least: Least variance of a seed's value of each case, such as that of rounding. (): 0.

    Raises:
      ValueError: `cells` or a case in it is empty, or the confidence is out of range.

    Source: Satterthwaite 1946; Cochran 1977, section 5.4, for stratified sampling.
    """
    if not cells or any(len(cell) == 0 for cell in cells):
        raise ValueError("stratified_t_mean needs at least one case, and a seed in each")
    means = [mean_of(cell) for cell in cells]
    if any(len(cell) < 2 for cell in cells) or not math.isfinite(mean_of(means)):
        return Interval(mean=mean_of(means))
    estimates = [
        Estimate(mean=mean, variance=max(variance, floor) / len(cell), degrees=len(cell) - 1)
        for mean, variance, floor, cell in zip(
            means, _variances(cells), least or itertools.repeat(0.0, len(cells)), cells, strict=True
        )
    ]
    return stratified_t(estimates, confidence)


def _variances(cells: Sequence[Sequence[float]]) -> list[float]:
    """Returns the sample variance of each case's seeds, in one array operation if all cases have equally many seeds."""
    if len({len(cell) for cell in cells}) > 1:
        return [float(np.var(cell, ddof=1)) for cell in cells]
    variances: list[float] = np.var(np.asarray(cells, np.float64), axis=1, ddof=1).tolist()
    return variances


def grouped_t_mean(
    cells: Sequence[Mapping[int, float]],
    groups: Sequence[Sequence[int]],
    confidence: float = 0.95,
    *,
    least: Sequence[float] = (),
    have_items: Collection[int] = (),
) -> Interval:
    """Returns `stratified_t_mean` over cases some of which share the randomness of their seeds.

    A seed of a group has one value, the mean over the group's cases. Seeds that lack a case of their group count in the
    mean, but not in its variance. The bounds are NaN if fewer than two seeds have all cases of a group. The cases of a
    group may have different items of one data set, all of which count; see `lobench.analysis.stats.shared_items`.

    Args:
      cells: Values of each case, by seed.
      groups: Indices of the cases in each group.
      confidence: Confidence level, strictly between 0 and 1.
      least: Least variance of a seed's value of each case. (): 0.
      have_items: Indices of the cases whose keys are items instead of seeds.
    """
    if all(len(group) == 1 for group in groups):
        return stratified_t_mean([list(cell.values()) for cell in cells], confidence, least=least)
    mean = mean_of([mean_of(list(cell.values())) for cell in cells])
    if not math.isfinite(mean):
        return Interval(mean=mean)
    estimates = []
    for group in groups:
        members = [cells[index] for index in group]
        floor = math.fsum(least[index] for index in group) / len(group) ** 2 if least else 0.0
        if not have_items or not any(index in have_items for index in group):
            seeds = common_seeds_of(members)
            members = [{seed: mean_of([cell[seed] for cell in members]) for seed in seeds}]
        group_mean = clustered_mean(members, [1 / len(members)] * len(members))
        size = min(map(len, members))
        if size < 2:
            return Interval(mean=mean)
        estimates.append(
            Estimate(mean=group_mean.mean, variance=max(group_mean.variance, floor / size), degrees=group_mean.degrees)
        )
    interval = stratified_t(estimates, confidence, [len(group) / len(cells) for group in groups])
    shift = mean - interval.mean
    return Interval(mean=mean, lower=interval.lower + shift, upper=interval.upper + shift, degrees=interval.degrees)


def without_equal_pairs(interval: Interval, num_seeds: int) -> Interval:
    """Returns the interval of a mean score, without bounds if it is of two seeds whose scores show no variance.

    A comparison of two such seeds is undecided, too.

    Args:
      interval: Interval of the mean score.
      num_seeds: Number of seeds; of several cases, the largest.

    >>> without_equal_pairs(stratified_t_mean([[0.5, 0.5]]), 2).lower
    nan
    """
    has_width = interval.upper - interval.lower > _LEAST_WIDTH_OF_PAIR
    return Interval(mean=interval.mean) if num_seeds == 2 and not has_width else interval


def common_seeds_of(cells: Sequence[Mapping[int, float]]) -> list[int]:
    """Returns the seeds that all given cases have, sorted."""
    return sorted(set.intersection(*(set(cell) for cell in cells))) if cells else []


def stratified_t(
    means: Sequence[Estimate], confidence: float = 0.95, weights: Sequence[float] | None = None
) -> Interval:
    """Returns the mean of the cases' means, with a t interval; see `stratified_t_mean`.

    Args:
      means: Mean of each case, at least one.
      confidence: Confidence level, strictly between 0 and 1.
      weights: Weights of the means, with sum 1. None: equal weights.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, not strictly between 0 and 1")
    mean = mean_of([estimate.mean for estimate in means])
    if weights is not None:
        mean = math.fsum(estimate.mean * weight for estimate, weight in zip(means, weights, strict=True))
    variance, degrees = variance_of_mean(means, weights)
    if math.isnan(variance):
        return Interval(mean=mean)
    if variance == 0:
        return Interval(mean=mean, lower=mean, upper=mean, degrees=math.inf)
    half_width = t_isf(0.5 - confidence / 2, degrees) * math.sqrt(variance)
    return Interval(mean=mean, lower=mean - half_width, upper=mean + half_width, degrees=degrees)


def _is_share_name(metric: str) -> bool:
    """Returns whether a metric is a share by its name: a fraction of correct examples or of successes."""
    return metric.rpartition("/")[2].endswith(("accuracy", "success", "rate", "solved"))


def _is_loss_name(metric: str) -> bool:
    return metric.rpartition("/")[2].endswith("loss")


def is_trial(metric: str) -> bool:
    """Returns whether values 0 and 1 of a metric are single trials, such as the success of an episode.

    An accuracy or a rate is a mean over many examples: an accuracy of 1 on four seeds is not four coin tosses.

    >>> is_trial("eval/success"), is_trial("test/accuracy")
    (True, False)
    """
    return metric.rpartition("/")[2].endswith(("success", "solved"))


def metric_mean(metric: str, values: Sequence[float]) -> Interval:
    """Returns the mean of a metric over seeds with its 95% interval, as shown in all tables, pages and sinks.

    The bounds are those of `metric_bounds`. They are NaN for a single seed, or if a seed diverged.

    >>> found = metric_mean("test/loss", [0.2, 0.3, 0.25])
    >>> round(found.mean, 3), round(found.lower, 3), round(found.upper, 3), found.method
    (0.25, 0.151, 0.42, 'log-t')

    Args:
      metric: Name of the metric.
      values: Value of each seed, at least one.
    """
    return metric_means(metric, [values])[0]


def metric_means(metric: str, rows: Sequence[Sequence[float]]) -> list[Interval]:
    """Returns `metric_mean` of each row of a column. It computes in arrays, because tables have thousands of rows.

    Args:
      metric: Name of the metric.
      rows: Values of the seeds of each row, at least one. Rows may have different lengths.
    """
    indices_by_size: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        indices_by_size.setdefault(len(row), []).append(index)
    intervals = [Interval()] * len(rows)
    for size, indices in indices_by_size.items():
        with np.errstate(invalid="ignore", over="ignore"):
            values = np.asarray([rows[index] for index in indices], np.float64)[:, :, None]
            bound_lists = (array.ravel().tolist() for array in metric_bounds(metric, values))
        for index, lower, upper, method in zip(indices, *bound_lists, strict=True):
            mean = mean_of(rows[index])
            intervals[index] = Interval(mean=mean, lower=lower, upper=upper, degrees=size - 1, method=method)
    return intervals


def num_examples(share: float) -> int:
    """Returns the smallest number of examples, from 4 to 1,000, that can give a share.

    The true number of examples is a multiple of it, so bounds computed with it are conservative. Values are float32.

    >>> num_examples(0.97), num_examples(0.96875), num_examples(1.0)
    (100, 32, 4)
    """
    for count in range(1, _MOST_EXAMPLES):
        if abs(share * count - round(share * count)) <= RELATIVE_TOLERANCE * count:
            return count * -(-_LEAST_EXAMPLES // count)
    return _MOST_EXAMPLES


@functools.lru_cache(maxsize=4096)
def logged_step(value: float) -> float:
    """Returns the step to which a value was rounded, if it has few digits or the bits of a half precision; else 0.

    The step of decimals is a power of ten, 1 at most. If the value may be either kind, it is the larger step.

    >>> logged_step(3.28), logged_step(3.28125), logged_step(1 / 3)
    (0.01, 0.015625, 0.0)
    """
    if not math.isfinite(value) or value == 0:
        return 0.0
    fraction, exponent = math.frexp(abs(value))
    binary_step = next((2.0 ** (exponent - bits) for bits in _HALF_BITS if (fraction * 2**bits).is_integer()), 0.0)
    # A float32 just below a power of ten counts as that power.
    leading_exponent = math.floor(math.log10(abs(value)) + RELATIVE_TOLERANCE)
    for num_decimals in range(max(-leading_exponent, 0), _MOST_DIGITS - leading_exponent):
        scaled = value * 10.0**num_decimals
        if abs(scaled - round(scaled)) <= RELATIVE_TOLERANCE * abs(scaled):
            return max(binary_step, 10.0**-num_decimals)
    return binary_step


def agreed_variance(metric: str, values: Sequence[float]) -> float:
    """Returns a lower bound of the variance of a seed's value if all seeds agree; 0 if they do not.

    Equal values with two decimals may differ in further digits, so the bound is the variance of rounding to
    `logged_step`. For a share it is chosen so that the t interval of the mean is as wide as the exact interval of
    `metric_bounds`.
    """
    if len(values) < 2 or not all(math.isfinite(value) for value in values):
        return 0.0
    if max(values) - min(values) > RELATIVE_TOLERANCE * abs(values[0]):
        return 0.0
    if _is_share_name(metric) and 0 <= values[0] <= 1:
        mean = metric_mean(metric, values)
        half_width = (mean.upper - mean.lower) / 2
        return len(values) * (half_width / t_isf(_TAIL_PROBABILITY, len(values) - 1)) ** 2
    return logged_step(values[0]) ** 2 / 12


@functools.lru_cache(maxsize=4096)
def _agreed_bounds(share: float, num_seeds: int) -> tuple[float, float]:
    """Returns the bounds of a share that is equal on all seeds, as the share of the examples of all seeds together."""
    num_per_seed = num_examples(share)
    num_trials = num_per_seed * num_seeds
    num_right = round(share * num_per_seed) * num_seeds
    return min(least_share(num_right, num_trials, _TAIL_PROBABILITY), share), max(
        most_share(num_right, num_trials, _TAIL_PROBABILITY), share
    )


def _lognormal_bounds(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the 95% bounds of the means of log-normal samples by the modified Cox method. All rows must be above 0.

    Source: Olsson 2005.
    """
    count = rows.shape[-2]
    logs = np.log(rows)
    variance = np.minimum(logs.var(axis=-2, ddof=1), _MOST_LOG_VARIANCE)
    half_width = t_isf(_TAIL_PROBABILITY, count - 1) * np.sqrt(variance / count + variance**2 / (2 * (count - 1)))
    centre = logs.mean(axis=-2) + variance / 2
    return np.exp(centre - half_width), np.exp(centre + half_width)


def metric_bounds(
    metric: str, rows: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.str_]]:
    """Returns the 95% bounds of means over seeds, and the kind of each interval, which depends on the metric.

    - "t": mean and standard error.
    - "log-t", for losses above 0: t on the logarithm of the mean, so that the bounds are above 0. From three seeds on,
      the interval also includes the interval of a log-normal law, which is hardly wider if the seeds' deviation is
      below a fifth of their mean. All seeds may agree if losses are logged with few digits. Their variance is then the
      variance of rounding (`logged_step`).
    - "logit-t", for shares in [0, 1]: t on the logit of the mean, so that the bounds are inside.
    - "exact", Clopper and Pearson's, for trials that succeed or fail as a whole: four successes of four give a lower
      bound of 40%. Also for shares that are equal on all seeds, which have no variance. Their number of examples is
      then the smallest that allows such a share, 100 for .97, and at least 4 (`num_examples`).

    Args:
      metric: Name of the metric.
      rows: Values, float64[..., num_seeds, num_points].

    Returns:
      lower, upper: float64[..., num_points]; NaN without an interval.
      methods: str[..., num_points].

    Source: the delta method; Olsson 2005; Agresti 2013, section 3.1; Clopper and Pearson 1934.
    """
    count = rows.shape[-2]
    mean = rows.mean(axis=-2)
    # Elementwise, so that one cell's method does not depend on other cells in the array.
    is_share = _is_share_name(metric) & (rows >= 0).all(axis=-2) & (rows <= 1).all(axis=-2)
    is_positive = _is_loss_name(metric) & (rows > 0).all(axis=-2)
    methods = np.where(is_share, "logit-t", np.where(is_positive, "log-t", "t"))
    if count < 2:
        return np.full_like(mean, np.nan), np.full_like(mean, np.nan), methods
    deviation = rows.std(axis=-2, ddof=1)
    for mask in zip(
        *np.nonzero(is_positive & (np.ptp(rows, axis=-2) <= RELATIVE_TOLERANCE * np.abs(mean))), strict=True
    ):
        deviation[mask] = max(deviation[mask], logged_step(float(mean[mask])) / math.sqrt(12))
    half_width = t_isf(_TAIL_PROBABILITY, count - 1) * deviation / math.sqrt(count)
    lower, upper = mean - half_width, mean + half_width
    if is_positive.any():
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = np.exp(half_width / mean)
            loss_lower, loss_upper = mean / factor, mean * factor
            if count > 2:
                lowest, highest = _lognormal_bounds(rows)
                loss_lower = np.minimum(loss_lower, lowest)
                loss_upper = np.maximum(loss_upper, highest)
            lower = np.where(is_positive, loss_lower, lower)
            upper = np.where(is_positive, loss_upper, upper)
    if not is_share.any():
        return lower, upper, methods
    is_inside = is_share & (mean > 0) & (mean < 1) & (half_width > 0)
    safe_mean = np.where(is_inside, mean, 0.5)
    centre = np.log(safe_mean / (1 - safe_mean))
    logit_half_width = half_width / (safe_mean * (1 - safe_mean))
    lower, upper = (
        np.where(is_inside, 0.5 + np.tanh((centre + shift) / 2) / 2, plain_bound)
        for shift, plain_bound in ((-logit_half_width, lower), (logit_half_width, upper))
    )
    are_equal = is_share & (np.ptp(rows, axis=-2) <= RELATIVE_TOLERANCE * np.abs(mean))
    for mask in zip(*np.nonzero(are_equal), strict=True):
        lower[mask], upper[mask] = _agreed_bounds(float(mean[mask]), count)
        methods[mask] = "exact"
    is_binary = is_share & ((rows == 0) | (rows == 1)).all(axis=-2)
    for num_successes in range(count + 1) if is_trial(metric) else ():
        mask = is_binary & (np.rint(mean * count) == num_successes)
        if mask.any():
            lower[mask], upper[mask] = (
                least_share(num_successes, count, _TAIL_PROBABILITY),
                most_share(num_successes, count, _TAIL_PROBABILITY),
            )
            methods[mask] = "exact"
    return lower, upper, methods
