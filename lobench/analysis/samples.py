"""What two sides differ by: pairs of seeds that both have, or two samples that share none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = ["Apart", "Differences", "Estimate", "are_finite", "estimate", "first_of", "pooled", "shifted"]

_ROUNDING = 1e-12  # what has no spread but this, times its size, has none


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Values of two sides whose seeds are not the same draws: seed 3 of one says nothing of seed 3 of the other."""

    a: tuple[float, ...]
    b: tuple[float, ...]

    def __len__(self) -> int:
        """Seeds of the side that has fewer."""
        return min(len(self.a), len(self.b))


# b - a of each common seed, or both samples.
Differences: TypeAlias = Sequence[float] | Apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean with the variance of it, and the degrees of freedom of that; NaN where one seed has none."""

    mean: float
    variance: float
    degrees: float


def estimate(differences: Differences) -> Estimate:
    """Returns the mean of b - a: of pairs by Student's law, of two samples by Welch's.

    Welch's variance is s_a^2/n_a + s_b^2/n_b, its degrees of freedom Satterthwaite's. Example: (1, 1.1) and (2, 2.1)
    differ by 1 with a standard error of 0.071, on 2 degrees of freedom.

    Args:
      differences: One value a side at least.
    Source: Welch 1947.
    """
    if isinstance(differences, Apart):
        a, b = _of_sample(differences.a), _of_sample(differences.b)
        variance, degrees = pooled([a, b])
        return Estimate(mean=b.mean - a.mean, variance=variance, degrees=degrees)
    return _of_sample(differences)


def pooled(parts: Sequence[Estimate]) -> tuple[float, float]:
    """Returns the variance of a sum of independent means, and Satterthwaite's degrees of freedom.

    Source: Satterthwaite 1946.
    """
    variance = math.fsum(part.variance for part in parts)
    if not variance > 0:  # or NaN
        return variance, math.inf if variance == 0 else math.nan
    # Shares of the variance, not the parts themselves: their squares would underflow for small losses.
    shares = [(part.variance / variance, part.degrees) for part in parts if part.variance > 0]
    return variance, 1 / math.fsum(share**2 / degrees for share, degrees in shares)


def _of_sample(values: Sequence[float]) -> Estimate:
    n = len(values)
    mean = math.fsum(values) / n if all(map(math.isfinite, values)) else math.nan
    if n < 2 or math.isnan(mean):
        return Estimate(mean=mean, variance=math.nan, degrees=math.nan)
    sd = float(np.std(values, ddof=1))
    # Values of one size have no spread but their rounding: no t statistic must rise from that.
    is_flat = sd <= _ROUNDING * max(map(abs, values))
    return Estimate(mean=mean, variance=0.0 if is_flat else sd**2 / n, degrees=n - 1)


def are_finite(differences: Differences) -> bool:
    sides = (differences.a, differences.b) if isinstance(differences, Apart) else (differences,)
    return all(math.isfinite(value) for side in sides for value in side)


def shifted(differences: Differences, shift: float) -> Differences:
    """Returns differences that are larger by `shift`."""
    if isinstance(differences, Apart):
        return Apart(a=differences.a, b=tuple(value + shift for value in differences.b))
    return [value + shift for value in differences]


def first_of(differences: Differences, count: int) -> Differences:
    """Returns the first seeds of either side."""
    if isinstance(differences, Apart):
        return Apart(a=differences.a[:count], b=differences.b[:count])
    return differences[:count]
