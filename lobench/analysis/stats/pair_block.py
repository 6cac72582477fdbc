"""Paired t tests of one side against many others on one case, as arrays.

The results for each pair equal those of `paired_samples`, `location` and `comparison`, except for rounding; a test
compares them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.paired_samples import FLOAT_STEP, RELATIVE_TOLERANCE, Estimate
from lobench.analysis.stats.t_distribution import t_isf

__all__ = ["PairBlock", "rounding_steps"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBlock:
    """Array version of `Samples` and `Estimate` for many pairs with common seeds, none of which diverged.

    Attributes:
      mean: Mean of b - a: float64[num_pairs].
      variance: Variance of that mean: float64[num_pairs]; NaN with a single seed.
      num_seeds: Number of seeds of every pair.
      can_tell: Whether a pair can be tested: bool[num_pairs]. False with fewer than two seeds, or two without spread.
    """

    mean: FloatArray
    variance: FloatArray
    num_seeds: int
    can_tell: BoolArray

    @classmethod
    def of(cls, a: FloatArray, b: FloatArray, *, step: FloatArray, precision: FloatArray) -> PairBlock:
        """Estimates every pair, like `Samples.estimate`.

        Args:
          a: Values of A, float64[num_seeds]; finite, higher is better.
          b: Values of B, float64[num_pairs, num_seeds]; finite, higher is better.
          step, precision: float64[num_pairs], as in `Samples`.
        """
        num_seeds = len(a)
        differences = b - a
        size = np.maximum(np.abs(a).max(), np.abs(b).max(axis=1))
        floor = np.maximum(np.maximum(step, precision), FLOAT_STEP * size) ** 2 / 12
        mean = differences.sum(axis=1) / num_seeds
        if num_seeds < 2:
            no_variance = np.full(len(b), np.nan)
            return cls(mean=mean, variance=no_variance, num_seeds=num_seeds, can_tell=np.zeros(len(b), bool))
        variance = np.maximum(differences.var(axis=1, ddof=1), 2 * floor) / num_seeds
        spread = differences.max(axis=1) - differences.min(axis=1)
        has_spread = spread > np.maximum(RELATIVE_TOLERANCE * size, 4 * precision)
        return cls(
            mean=mean, variance=variance, num_seeds=num_seeds, can_tell=has_spread | (mean == 0) | (num_seeds > 2)
        )

    def are_worse(self, alpha: float) -> BoolArray:
        """Returns whether B is worse with a two-sided p-value of at most `alpha`: bool[num_pairs]."""
        if self.num_seeds < 2:
            return self.can_tell
        min_difference = t_isf(alpha / 2, self.num_seeds - 1)
        return self.can_tell & (self.mean < 0) & (-self.mean >= min_difference * np.sqrt(self.variance))

    def estimates(self) -> list[Estimate | None]:
        """Returns each pair's mean and its noise; None if the pair cannot be tested."""
        rows = zip(self.mean.tolist(), self.variance.tolist(), self.can_tell.tolist(), strict=True)
        degrees = self.num_seeds - 1
        return [Estimate(mean=m, variance=v, degrees=degrees) if is_testable else None for m, v, is_testable in rows]


def rounding_steps(a: FloatArray, b: FloatArray) -> FloatArray:
    """Returns `rounding_step` of every pair: float64[num_pairs].

    Args:
      a: Values of A, float64[num_seeds]; finite.
      b: Values of B, float64[num_pairs, num_seeds]; finite.
    """
    values_of_a = np.broadcast_to(a, b.shape)
    are_one = np.abs(b - values_of_a) <= RELATIVE_TOLERANCE * np.maximum(np.abs(values_of_a), np.abs(b))
    values = np.sort(np.concatenate([values_of_a, np.where(are_one, np.nan, b)], axis=1), axis=1)  # NaN last
    gaps = np.diff(values)
    sizes = np.maximum(np.abs(values[:, :-1]), np.abs(values[:, 1:]))
    has_repeats = (gaps <= RELATIVE_TOLERANCE * sizes).any(axis=1)
    differences = np.sort(np.where(are_one, np.nan, b - values_of_a), axis=1)
    size = np.fmax.reduce(np.abs(values), axis=1)[:, None]
    sizes_of_both = np.maximum(np.abs(differences[:, :-1]), np.abs(differences[:, 1:]))
    has_repeats |= (np.diff(differences) <= RELATIVE_TOLERANCE * np.maximum(size, sizes_of_both)).any(axis=1)
    smallest_gap = np.where(gaps > RELATIVE_TOLERANCE * sizes, gaps, math.inf).min(axis=1, initial=math.inf)
    return np.where(has_repeats & np.isfinite(smallest_gap), smallest_gap, 0.0)
