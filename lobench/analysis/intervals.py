"""Intervals for means over cases and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Interval", "stratified_t_mean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with its confidence interval; NaN bounds where nothing can be said.

    Attributes:
      degrees: Satterthwaite's degrees of freedom.
    """

    mean: float
    lower: float
    upper: float
    degrees: float


def stratified_t_mean(cells: Sequence[Sequence[float]], confidence: float = 0.95) -> Interval:
    """Returns the mean over cases of the mean over seeds, with a t interval.

    The variance is sum_c s_c^2 / n_c / C^2, with Satterthwaite's degrees of freedom. A NaN anywhere makes all NaN: what
    diverged does not vanish in a mean. A case of a single seed has no variance of its own, and gives NaN bounds.

    Args:
      cells: The values of each case's seeds.
      confidence: Between 0 and 1.
    Raises:
      ValueError: no case, or an empty one.
    """
    if not cells or any(len(cell) == 0 for cell in cells):
        raise ValueError("stratified_t_mean needs at least one case, and a seed in each")
    means = [math.fsum(cell) / len(cell) for cell in cells]
    mean = math.fsum(means) / len(means)
    if any(len(cell) < 2 for cell in cells) or not math.isfinite(mean):
        return Interval(mean=mean, lower=math.nan, upper=math.nan, degrees=math.nan)
    parts = np.asarray([np.var(cell, ddof=1) / len(cell) for cell in cells]) / len(cells) ** 2
    variance = float(parts.sum())
    if variance == 0:
        return Interval(mean=mean, lower=mean, upper=mean, degrees=math.inf)
    degrees = variance**2 / float(sum(part**2 / (len(cell) - 1) for part, cell in zip(parts, cells, strict=True)))
    half = float(stats.t.ppf(0.5 + confidence / 2, degrees)) * math.sqrt(variance)
    return Interval(mean=mean, lower=mean - half, upper=mean + half, degrees=degrees)
