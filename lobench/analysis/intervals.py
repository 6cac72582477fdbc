"""Intervals for means over cases and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lobench.analysis.proportions import least_share, most_share
from lobench.analysis.samples import Estimate, pooled
from lobench.analysis.student import t_isf
from lobench.core.result import mean_of

__all__ = ["Interval", "is_share", "is_trial", "share_mean", "stratified_t", "stratified_t_mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its confidence interval; NaN bounds where nothing can be said.

    Attributes:
      degrees: Satterthwaite's degrees of freedom.
    """

    mean: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    degrees: float = math.nan

    def error(self, alpha: float = 0.05) -> float:
        """Returns the standard error of the mean, from bounds that the t law made at the level 1 - alpha."""
        half = self.upper - self.mean
        return half / t_isf(alpha / 2, self.degrees) if half else 0.0


def stratified_t_mean(cells: Sequence[Sequence[float]], confidence: float = 0.95) -> Interval:
    """Returns the mean over cases of the mean over seeds, with a t interval.

    The variance is sum_c s_c^2 / n_c / C^2, with Satterthwaite's degrees of freedom. What diverged does not vanish in a
    mean: a NaN anywhere makes the mean NaN, an infinity makes it infinite, and either leaves no bounds. A case of a
    single seed has no variance of its own: the mean stays, the bounds are NaN. Where no seed differs from the others of
    its case, the bounds are the mean.

    Args:
      cells: The values of each case's seeds; cases may have different numbers of seeds.
      confidence: Strictly between 0 and 1.
    Raises:
      ValueError: no case, an empty one, or a confidence out of range.
    Source: Satterthwaite 1946, for stratified sampling Cochran 1977, section 5.4.
    """
    if not cells or any(len(cell) == 0 for cell in cells):
        raise ValueError("stratified_t_mean needs at least one case, and a seed in each")
    means = [mean_of(cell) for cell in cells]
    if any(len(cell) < 2 for cell in cells) or not math.isfinite(mean_of(means)):
        return Interval(mean=mean_of(means))
    found = [
        Estimate(mean=mean, variance=float(np.var(cell, ddof=1)) / len(cell), degrees=len(cell) - 1)
        for mean, cell in zip(means, cells, strict=True)
    ]
    return stratified_t(found, confidence)


def stratified_t(means: Sequence[Estimate], confidence: float = 0.95) -> Interval:
    """Returns the mean over cases of a mean of each, with a t interval; see `stratified_t_mean`.

    Args:
      means: One at least.
      confidence: Strictly between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, not strictly between 0 and 1")
    mean = mean_of([one.mean for one in means])
    variance, degrees = pooled([replace(one, variance=one.variance / len(means) ** 2) for one in means])
    if math.isnan(variance):
        return Interval(mean=mean)
    if variance == 0:
        return Interval(mean=mean, lower=mean, upper=mean, degrees=math.inf)
    half = t_isf(0.5 - confidence / 2, degrees) * math.sqrt(variance)
    return Interval(mean=mean, lower=mean - half, upper=mean + half, degrees=degrees)


def is_share(metric: str, values: Sequence[float]) -> bool:
    """Says whether a metric counts how often something is right: an accuracy, a success or a rate, all in [0, 1]."""
    name = metric.rpartition("/")[2]
    return name.endswith(("accuracy", "success", "rate", "solved")) and all(0 <= value <= 1 for value in values)


def is_trial(metric: str) -> bool:
    """Says whether a seed's value of a share is one trial, the success of an episode, where it is 0 or 1.

    An accuracy or a rate is the mean of many examples: one that is 1 on each seed is no coin that fell four times.
    """
    return metric.rpartition("/")[2].endswith(("success", "solved"))


def share_mean(values: Sequence[float], confidence: float = 0.95, *, trials: bool) -> Interval:
    """Returns the mean over seeds of shares in [0, 1], with an interval that lies inside [0, 1].

    Of trials, each a success or a failure as a whole, it is Clopper and Pearson's: four seeds of four that
    succeeded say that at least 40% do. Otherwise it is a t interval on the logit of the mean, whose standard error is
    that of the mean over m (1 - m). A single seed has no interval.

    Args:
      trials: Whether a seed's 0 or 1 is one trial: see `is_trial`.
    Raises:
      ValueError: as `stratified_t_mean`.
    Source: Clopper and Pearson 1934; the delta method; Agresti 2013, section 3.1.
    """
    plain = stratified_t_mean([values], confidence)
    mean, half = plain.mean, plain.upper - plain.mean
    if trials and len(values) > 1 and set(values) <= {0.0, 1.0}:
        count, rest = round(math.fsum(values)), (1 - confidence) / 2
        lower, upper = least_share(count, len(values), rest), most_share(count, len(values), rest)
        return Interval(mean=mean, lower=lower, upper=upper, degrees=plain.degrees)
    if not (0 < mean < 1 and half > 0):  # no bounds, too: NaN is not above 0
        return plain
    centre, reach = math.log(mean / (1 - mean)), half / (mean * (1 - mean))
    lower, upper = (0.5 + math.tanh((centre + side) / 2) / 2 for side in (-reach, reach))
    return Interval(mean=mean, lower=lower, upper=upper, degrees=plain.degrees)
