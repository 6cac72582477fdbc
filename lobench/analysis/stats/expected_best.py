"""Expected best value after k trials of a search.

The estimate is that of Dodge et al., "Show Your Work" (EMNLP 2019), in its unbiased form: the mean over all subsets of
k trials of their best value, which is a U-statistic. Its interval is a studentized bootstrap (Efron and Tibshirani
1993, section 12.5) with the jackknife's standard error, because the mean is skewed and a symmetric t interval covers
less often than its level. For k up to a fifth of the trials it covers the truth in 92 to 99 of 100 searches (see the
table in docs/searches.md). If trials depend on earlier ones, this holds up to a tenth. For larger k there is no
interval, because the best of k depends on one or two trials and no resample contains better ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.intervals import Interval

__all__ = ["SHARE_WITH_INTERVAL", "are_ahead", "expected_best"]

SHARE_WITH_INTERVAL = 0.2  # numbers of trials up to this share of all independent trials have an interval
_SHARE_OF_DEPENDENT = 0.1
# At 20 trials (normal, t3) the bootstrap of a difference errs 1.2 to 1.5 times as often as its level allows. With this
# share of the level it errs at most as often as the whole level allows; see docs/statistics.md.
_SHARE_OF_LEVEL = 2 / 3
_MIN_TRIALS = 5  # trials that an interval needs


def expected_best(values: Sequence[float], *, are_independent: bool = True, alpha: float = 0.05) -> list[Interval]:
    """Returns the expected best value after 1, 2, ... and all of the trials.

    Equal values give equal intervals, because the resamples are drawn with a fixed seed.

    Args:
      values: Value of each trial, higher is better. NaN if the trial failed, which counts as the worst other value.
      are_independent: Whether no trial was chosen by the results of others, as in a random search.
      alpha: One minus the confidence level.
    """
    sorted_values = _best_to_worst(values)
    if sorted_values is None:
        return [Interval()] * len(values)
    count = len(sorted_values)
    num_with_interval = _most_with_interval(count, are_independent=are_independent)
    samples = _resample(sorted_values, _num_resamples(count), seed=0) if num_with_interval else sorted_values[None]
    intervals = [_interval(*_mean_and_error(samples, k), alpha) for k in range(1, num_with_interval + 1)]
    intervals_of_means = [
        Interval(mean=float(sorted_values @ _weights(count, k))) for k in range(num_with_interval + 1, count + 1)
    ]
    return intervals + intervals_of_means


def are_ahead(
    a: Sequence[float],
    b: Sequence[float],
    *,
    are_independent: tuple[bool, bool] = (True, True),
    alpha: float = 0.025,
) -> list[bool]:
    """Returns for 1, 2, ... trials whether the expected best of `a` is shown to be above the expected best of `b`.

    The lower bounds of the difference hold for all numbers of trials together: they use the quantile of the largest
    studentized difference over these numbers. For numbers of trials without an interval the result is False.

    Args:
      a, b: Values of the trials of both searches, as for `expected_best`.
      are_independent: For each search, whether no trial was chosen by the results of others.
      alpha: Chance of showing any lead of `a` although it has none.

    Returns:
      As many values as the shorter search has trials.
    """
    num_common = min(len(a), len(b))
    sorted_sides = (_best_to_worst(a), _best_to_worst(b))
    if sorted_sides[0] is None or sorted_sides[1] is None:
        return [False] * num_common
    most_with_interval = min(
        _most_with_interval(len(values), are_independent=independent)
        for values, independent in zip((a, b), are_independent, strict=True)
    )
    num_resamples = _num_resamples(max(len(a), len(b)))
    samples_a, samples_b = (
        _resample(values, num_resamples, seed) for seed, values in enumerate(sorted_sides) if values is not None
    )
    largest_ratios = np.full(num_resamples, -math.inf)
    observed_ratios = list[float]()
    for k in range(1, most_with_interval + 1):
        (mean_a, error_a), (mean_b, error_b) = _mean_and_error(samples_a, k), _mean_and_error(samples_b, k)
        difference = mean_a - mean_b
        error = np.hypot(error_a, error_b)
        has_spread = error > 1e-12 * max(1.0, abs(mean_a[0]), abs(mean_b[0]))
        ratios = np.full(len(error), -math.inf)
        ratios[has_spread] = (difference - difference[0])[has_spread] / error[has_spread]
        largest_ratios = np.maximum(largest_ratios, ratios[1:])
        observed_ratios.append(float(difference[0] / error[0]) if has_spread[0] else -math.inf)
    level = _SHARE_OF_LEVEL * alpha
    threshold = max(0.0, float(np.quantile(largest_ratios, 1 - level))) if observed_ratios else math.inf
    return [difference > threshold for difference in observed_ratios] + [False] * (num_common - len(observed_ratios))


def _best_to_worst(values: Sequence[float]) -> NDArray[np.float64] | None:
    """Returns the values from best to worst. Failed trials (NaN) have the worst other value. None if all failed."""
    finite_values = [value for value in values if not math.isnan(value)]
    return (
        np.sort([min(finite_values) if math.isnan(value) else value for value in values])[::-1]
        if finite_values
        else None
    )


def _most_with_interval(count: int, *, are_independent: bool) -> int:
    """Returns the largest number of trials whose expected best has an interval."""
    share = SHARE_WITH_INTERVAL if are_independent else _SHARE_OF_DEPENDENT
    return max(1, math.floor(share * count)) if count >= _MIN_TRIALS else 0


def _num_resamples(count: int) -> int:
    return max(99, min(999, 60_000 // count))


def _resample(sorted_values: NDArray[np.float64], num_resamples: int, seed: int) -> NDArray[np.float64]:
    """Returns the sample itself, then its resamples: float64[1 + num_resamples, num_trials]."""
    samples: NDArray[np.float64] = sorted_values[_resampled_indices(len(sorted_values), num_resamples, seed)]
    return samples


@functools.lru_cache(maxsize=4)
def _resampled_indices(count: int, num_resamples: int, seed: int) -> NDArray[np.int64]:
    # Sorted indices of an ordered sample, so that the resamples are ordered too.
    sorted_indices = np.sort(np.random.default_rng(seed).integers(0, count, (num_resamples, count)), axis=1)
    return np.concatenate([np.arange(count)[None], sorted_indices])


def _interval(means: NDArray[np.float64], errors: NDArray[np.float64], alpha: float) -> Interval:
    """Returns the interval of the first sample, given the others as its resamples."""
    mean = float(means[0])
    error = float(errors[0])
    is_spread = errors[1:] > 1e-12 * max(1.0, abs(mean))
    if not error or not is_spread.any():
        return Interval(mean=mean, lower=mean, upper=mean, method="bootstrap")
    ratios = (means[1:] - mean)[is_spread] / errors[1:][is_spread]
    highest_ratio, lowest_ratio = np.quantile(ratios, [1 - alpha / 2, alpha / 2])
    return Interval(
        mean=mean,
        lower=mean - float(highest_ratio) * error,
        upper=mean - float(lowest_ratio) * error,
        method="bootstrap",
    )


def _mean_and_error(samples: NDArray[np.float64], k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the expected best of k and the jackknife's standard error of each sample.

    Args:
      samples: float64[num_samples, num_trials], each sorted from best to worst.
      k: Number of trials.
    """
    count = samples.shape[1]
    weights_of_fewer = _weights(count - 1, k)
    # Without the trial at index j, earlier trials keep their indices and later ones move up by one.
    leave_one_out = np.zeros(samples.shape)
    np.cumsum(samples[:, :-1] * weights_of_fewer, axis=1, out=leave_one_out[:, 1:])
    leave_one_out[:, :-1] += np.cumsum((samples[:, 1:] * weights_of_fewer)[:, ::-1], axis=1)[:, ::-1]
    spread = ((leave_one_out - leave_one_out.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return samples @ _weights(count, k), np.sqrt((count - 1) / count * spread)


def _weights(count: int, k: int) -> NDArray[np.float64]:
    """Returns C(count - i, k - 1) / C(count, k), the probability that the i-th best of `count` is the best of k."""
    weights = np.zeros(count)
    weights[0] = k / count
    for index in range(1, count - k + 1):
        weights[index] = weights[index - 1] * (count - index - k + 1) / (count - index)
    return weights
