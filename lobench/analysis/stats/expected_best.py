"""Expected best value after k trials of a search.

Dodge et al., "Show Your Work" (EMNLP 2019), in the unbiased form: the mean over all subsets of k trials of the best of
them, which is a U-statistic. Its interval is the jackknife's with a t quantile. It holds the truth in 88 to 96 of 100
searches for k up to a fifth of the trials (docs/searches.md has the table). Beyond that the best of k hangs on one or
two trials, no resampling knows better ones, and there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.t_distribution import t_isf

__all__ = ["SHARE_WITH_INTERVAL", "expected_best"]

SHARE_WITH_INTERVAL = 0.2
_LEAST = 5  # trials that an interval needs


def expected_best(values: Sequence[float], *, alpha: float = 0.05) -> list[Interval]:
    """Returns the expected best value after 1, 2, ... and all of the trials.

    Args:
      values: One a trial, higher is better; NaN of one that failed, which is as bad as the worst that did not.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return [Interval()] * len(values)
    ordered = np.sort([min(known) if math.isnan(value) else value for value in values])[::-1]
    return [_after(ordered, k, alpha) for k in range(1, len(ordered) + 1)]


def _after(ordered: NDArray[np.float64], k: int, alpha: float) -> Interval:
    count = len(ordered)
    mean = float(ordered @ _weights(count, k))
    if count < _LEAST or k > max(1.0, SHARE_WITH_INTERVAL * count):
        return Interval(mean=mean)
    fewer = _weights(count - 1, k)
    # Without the trial at place j, those before it keep their places and those behind it move up by one.
    before = np.concatenate([[0.0], np.cumsum(ordered[:-1] * fewer)])
    behind = np.concatenate([np.cumsum((ordered[1:] * fewer)[::-1])[::-1], [0.0]])
    without = before + behind
    error = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    half = t_isf(alpha / 2, count - 1) * error
    return Interval(mean=mean, lower=mean - half, upper=mean + half)


def _weights(count: int, k: int) -> NDArray[np.float64]:
    """Returns the chances C(count - i, k - 1) / C(count, k) that the i-th best of `count` is the best of k of them."""
    found = np.zeros(count)
    found[0] = k / count
    for place in range(1, count - k + 1):
        found[place] = found[place - 1] * (count - place - k + 1) / (count - place)
    return found
