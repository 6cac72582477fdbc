"""Expected best value after k trials of a search.

The estimate is that of Dodge et al., "Show Your Work" (EMNLP 2019), in its unbiased form: the mean over all subsets of
k trials of their best value, which is a U-statistic. Its interval is a studentized bootstrap (Efron and Tibshirani
1993, section 12.5) with the jackknife's standard error, because the mean is skewed and a symmetric t interval covers
less often than its level. For k up to a fifth of the trials it covers the truth in 92 to 99 of 100 searches (see the
table in docs/searches.md). If trials depend on earlier ones, this holds up to a tenth. For larger k there is no
interval, because the best of k depends on one or two trials and no resample contains better ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.intervals import Interval

__all__ = ["SHARE_WITH_INTERVAL", "expected_best"]

SHARE_WITH_INTERVAL = 0.2  # of independent trials
_SHARE_OF_DEPENDENT = 0.1
_LEAST = 5  # trials that an interval needs


def expected_best(values: Sequence[float], *, are_independent: bool = True, alpha: float = 0.05) -> list[Interval]:
    """Returns the expected best value after 1, 2, ... and all of the trials.

    Equal values give equal intervals, because the resamples are drawn with a fixed seed.

    Args:
      values: Value of each trial, higher is better. NaN if the trial failed, which counts as the worst other value.
      are_independent: Whether no trial was chosen by the results of others, as in a random search.
      alpha: One minus the confidence level.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return [Interval()] * len(values)
    ordered = np.sort([min(known) if math.isnan(value) else value for value in values])[::-1]
    count = len(ordered)
    share = SHARE_WITH_INTERVAL if are_independent else _SHARE_OF_DEPENDENT
    with_interval = max(1, math.floor(share * count)) if count >= _LEAST else 0
    # Sorted indices of an ordered sample, so that the resamples are ordered too.
    num_resamples = max(99, min(999, 60_000 // count))
    places = np.sort(np.random.default_rng(0).integers(0, count, (num_resamples, count)), axis=1)
    samples = ordered[np.concatenate([np.arange(count)[None], places])] if with_interval else ordered[None]
    found = [_interval(*_mean_and_error(samples, k), alpha) for k in range(1, with_interval + 1)]
    rest = [Interval(mean=float(ordered @ _weights(count, k))) for k in range(with_interval + 1, count + 1)]
    return found + rest


def _interval(means: NDArray[np.float64], errors: NDArray[np.float64], alpha: float) -> Interval:
    """Returns the interval of the first sample, given the others as its resamples."""
    mean, error = float(means[0]), float(errors[0])
    is_spread = errors[1:] > 1e-12 * max(1.0, abs(mean))
    if not error or not is_spread.any():
        return Interval(mean=mean, lower=mean, upper=mean, method="bootstrap")
    ratios = (means[1:] - mean)[is_spread] / errors[1:][is_spread]
    most, least = np.quantile(ratios, [1 - alpha / 2, alpha / 2])
    return Interval(mean=mean, lower=mean - float(most) * error, upper=mean - float(least) * error, method="bootstrap")


def _mean_and_error(samples: NDArray[np.float64], k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the expected best of k and the jackknife's standard error of each sample.

    Args:
      samples: float64[num_samples, num_trials], each sorted from best to worst.
      k: Number of trials.
    """
    count = samples.shape[1]
    fewer = _weights(count - 1, k)
    # Without the trial at index j, earlier trials keep their indices and later ones move up by one.
    without = np.zeros(samples.shape)
    np.cumsum(samples[:, :-1] * fewer, axis=1, out=without[:, 1:])
    without[:, :-1] += np.cumsum((samples[:, 1:] * fewer)[:, ::-1], axis=1)[:, ::-1]
    spread = ((without - without.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return samples @ _weights(count, k), np.sqrt((count - 1) / count * spread)


def _weights(count: int, k: int) -> NDArray[np.float64]:
    """Returns C(count - i, k - 1) / C(count, k), the probability that the i-th best of `count` is the best of k."""
    found = np.zeros(count)
    found[0] = k / count
    for place in range(1, count - k + 1):
        found[place] = found[place - 1] * (count - place - k + 1) / (count - place)
    return found
