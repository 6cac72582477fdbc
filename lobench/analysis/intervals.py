"""Intervals for means over cases and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from lobench.core.result import mean_of

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
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}, not strictly between 0 and 1")
    mean = mean_of([mean_of(cell) for cell in cells])
    if any(len(cell) < 2 for cell in cells) or not math.isfinite(mean):
        return Interval(mean=mean, lower=math.nan, upper=math.nan, degrees=math.nan)
    parts = [float(np.var(cell, ddof=1)) / len(cell) / len(cells) ** 2 for cell in cells]
    variance = math.fsum(parts)
    if variance == 0:
        return Interval(mean=mean, lower=mean, upper=mean, degrees=math.inf)
    # Shares of the variance, not the parts themselves: their squares would underflow for small losses.
    shares = [part / variance for part in parts]
    degrees = 1 / math.fsum(share**2 / (len(cell) - 1) for share, cell in zip(shares, cells, strict=True))
    half = float(special.stdtrit(degrees, 0.5 + confidence / 2)) * math.sqrt(variance)
    return Interval(mean=mean, lower=mean - half, upper=mean + half, degrees=degrees)
