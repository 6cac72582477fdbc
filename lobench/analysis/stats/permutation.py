"""Studentized permutation test of two samples of different sizes, for which Welch's t rejects too often."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.paired_samples import Samples

__all__ = ["Permutation"]

_NUM_DRAWN = 2000  # permutations; a single case with fewer uses all, else a fixed random set
_SAME = 1e-9  # relative tolerance for equally extreme statistics

FloatArray = NDArray[np.float64]


class _PermutedSides:
    """Two samples under every permutation of their values between the sides.

    The first permutation is the original one.
    """

    def __init__(self, a: Sequence[float], b: Sequence[float], floor: float, to_b: FloatArray) -> None:
        self._sizes = (len(a), len(b))
        self._floor = floor
        values = np.asarray([*a, *b], np.float64)
        values = values - values.mean()
        stays_in_b = to_b[:, len(a) :]  # values of b that stay with b
        self._total, self._total_square = values.sum(), (values**2).sum()
        self._own_total = values[len(a) :].sum()
        self._sums, self._squares = to_b @ values, to_b @ values**2
        self._own_sums, self._counts = stays_in_b @ values[len(a) :], stays_in_b.sum(axis=1)

    def differences(self, shift: float) -> tuple[FloatArray, FloatArray]:
        """Returns mean difference and squared standard error of every permutation, after subtracting a shift from b."""
        size_a, size_b = self._sizes
        total = self._total - shift * size_b
        square = self._total_square - 2 * shift * self._own_total
        square += shift**2 * size_b
        sums = self._sums - shift * self._counts
        squares = self._squares - 2 * shift * self._own_sums + shift**2 * self._counts
        mean_b, mean_a = sums / size_b, (total - sums) / size_a
        spread_b = (squares - size_b * mean_b**2) / (size_b - 1)
        spread_a = (square - squares - size_a * mean_a**2) / (size_a - 1)
        least = max(self._floor, 1e-12 * square / (size_a + size_b))
        return mean_b - mean_a, np.maximum(spread_b, least) / size_b + np.maximum(spread_a, least) / size_a


class _SignedPairs:
    """Differences of pairs under random signs, which are equally likely if nothing differs.

    The first signs are all 1.
    """

    def __init__(self, a: Sequence[float], b: Sequence[float], floor: float, signs: FloatArray) -> None:
        differences = np.subtract(b, a)
        self._size = len(a)
        self._floor = 2 * floor
        self._sums, self._counts = signs @ differences, signs.sum(axis=1)
        self._total, self._square = differences.sum(), (differences**2).sum()

    def differences(self, shift: float) -> tuple[FloatArray, FloatArray]:
        """Returns mean and squared standard error for every choice of signs, after subtracting a shift."""
        means = (self._sums - shift * self._counts) / self._size
        square = self._square - 2 * shift * self._total + shift**2 * self._size
        spread = (square - self._size * means**2) / (self._size - 1)
        return means, np.maximum(spread, max(self._floor, 1e-12 * square / self._size)) / self._size


class Permutation:
    """Tests whether the mean of b - a differs from a shift, by permuting the values between the sides.

    For several cases it tests the mean over them, and values are permuted within each case. The statistic is
    the difference divided by Welch's standard error, so the test keeps its level if the variances differ. The original
    arrangement is one of the permutations, so no p-value is 0.

    Args:
      cases: At least one case, each with at least two seeds a side, all of which converged.
      weights: Weights of the cases, with sum 1. None: equal weights.

    Source: Janssen 1997; Chung and Romano 2013.
    """

    def __init__(self, cases: Sequence[Samples], weights: Sequence[float] | None = None) -> None:
        is_alone = len(cases) == 1
        self._weights = [1 / len(cases)] * len(cases) if weights is None else list(weights)
        self._cases: list[_PermutedSides | _SignedPairs] = []
        for index, case_samples in enumerate(cases):
            if case_samples.is_paired:
                self._cases.append(
                    _SignedPairs(
                        case_samples.a,
                        case_samples.b,
                        case_samples.least_variance,
                        _random_signs(len(case_samples.a), index),
                    )
                )
            else:
                permutations = _permutations(len(case_samples.a), len(case_samples.b), -1 if is_alone else index)
                self._cases.append(
                    _PermutedSides(case_samples.a, case_samples.b, case_samples.least_variance, permutations)
                )
        means = [
            math.fsum(case_samples.b) / len(case_samples.b) - math.fsum(case_samples.a) / len(case_samples.a)
            for case_samples in cases
        ]
        self.mean = math.fsum(mean * weight for mean, weight in zip(means, self._weights, strict=True))
        self.least_p_value = 1 / len(self._statistics(0.0))  # smallest possible p-value, one-sided

    def p_above(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the mean is at most `shift`"."""
        statistics = self._statistics(shift)
        return float((statistics >= statistics[0] - _SAME * abs(statistics[0])).mean())

    def p_below(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the mean is at least `shift`"."""
        statistics = self._statistics(shift)
        return float((statistics <= statistics[0] + _SAME * abs(statistics[0])).mean())

    def bounds(self, tail_level: float, error: float) -> tuple[float, float]:
        """Returns the interval of shifts that neither tail rejects; infinite if a tail can never reject.

        Args:
          tail_level: Level of each tail.
          error: Approximate standard error of the mean.
        """
        lower = self._bound(lambda step: self.p_above(self.mean - step), tail_level, error)
        upper = self._bound(lambda step: self.p_below(self.mean + step), tail_level, error)
        return self.mean - lower, self.mean + upper

    def _bound(self, p_value: Callable[[float], float], tail_level: float, error: float) -> float:
        if self.least_p_value > tail_level or not error > 0:
            return math.inf if error > 0 else 0.0
        low, high = 0.0, 2 * error
        for _ in range(30):
            if p_value(high) <= tail_level:
                break
            low, high = high, 2 * high
        else:
            return math.inf
        for _ in range(16):
            midpoint = (low + high) / 2
            low, high = (low, midpoint) if p_value(midpoint) <= tail_level else (midpoint, high)
        return high

    def _statistics(self, shift: float) -> FloatArray:
        difference = np.zeros(1)
        square = np.zeros(1)
        for case, weight in zip(self._cases, self._weights, strict=True):
            case_difference, case_square = case.differences(shift)
            difference = difference + weight * case_difference
            square = square + weight**2 * case_square
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.nan_to_num(difference / np.sqrt(square)))


@functools.lru_cache(maxsize=64)
def _permutations(size_a: int, size_b: int, case_index: int) -> FloatArray:
    """Returns float64[num_permutations, size_a + size_b], 1 for values assigned to b. The first row is the original.

    Args:
      size_a, size_b: Sizes of the sides.
      case_index: Index of the case among others, each of which has its own draws. -1: a single case, for which all
        permutations are listed if they are few.
    """
    size = size_a + size_b
    if case_index < 0 and math.comb(size, size_b) <= _NUM_DRAWN:
        chosen = sorted(itertools.combinations(range(size), size_b), key=lambda combination: combination[0] != size_a)
        indices_of_b = np.asarray(chosen)
    else:
        draw = np.random.default_rng([size_a, size_b, case_index + 1])
        ranks = draw.random((_NUM_DRAWN - 1, size)).argsort(axis=1)
        indices_of_b = np.concatenate([np.arange(size_a, size)[None], ranks[:, :size_b]])
    assignments = np.zeros((len(indices_of_b), size))
    np.put_along_axis(assignments, indices_of_b, 1.0, axis=1)
    return assignments


@functools.lru_cache(maxsize=64)
def _random_signs(size: int, case_index: int) -> FloatArray:
    """Returns float64[num_permutations, size] of 1 and -1; 1 in the first row."""
    draw = np.random.default_rng([size, case_index])
    return np.concatenate([np.ones((1, size)), draw.choice([-1.0, 1.0], (_NUM_DRAWN - 1, size))])
