"""The studentized permutation test of two samples whose sizes differ much: where Welch's t alarms too often."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Permutation"]

_MOST_EXACT = 5000  # permutations that are all taken; of more so many are drawn, always the same
_SAME = 1e-9  # what a statistic differs by, relatively, from one that is as extreme

FloatArray = NDArray[np.float64]


class Permutation:
    """Tests of the mean of b - a less a shift, over the ways in which the values could have fallen to the sides.

    The statistic is the difference over Welch's standard error, so that it holds its level where the variances differ,
    too. The values as they fell are one of the permutations, so that no p-value is 0.

    Args:
      floor: Least variance of one value.
    Source: Janssen 1997; Chung and Romano 2013.
    """

    def __init__(self, a: Sequence[float], b: Sequence[float], floor: float = 0.0) -> None:
        self._sizes, self._floor = (len(a), len(b)), floor
        values = np.asarray([*a, *b], np.float64)
        centre = values.mean()
        self.mean = math.fsum(b) / len(b) - math.fsum(a) / len(a)
        values = values - centre
        to_b = _permutations(len(a), len(b))
        of_b = to_b[:, len(a) :]  # the values of b that fall to it again
        self._total, self._total_square = values.sum(), (values**2).sum()
        self._own_total, self._own_square = values[len(a) :].sum(), (values[len(a) :] ** 2).sum()
        self._sums, self._squares = to_b @ values, to_b @ values**2
        self._own_sums, self._counts = of_b @ values[len(a) :], of_b.sum(axis=1)

    @property
    def least(self) -> float:
        """The smallest p-value that there can be, one-sided."""
        return 1 / len(self._sums)

    def above(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the mean is at most `shift`"."""
        found = self._statistics(shift)
        return float((found >= found[0] - _SAME * abs(found[0])).mean())

    def below(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the mean is at least `shift`"."""
        found = self._statistics(shift)
        return float((found <= found[0] + _SAME * abs(found[0])).mean())

    def bounds(self, tail: float, error: float) -> tuple[float, float]:
        """Returns the shifts between which neither tail rejects at the level `tail`; infinite where it never can.

        Args:
          error: About the standard error of the mean.
        """
        lower = self._bound(lambda step: self.above(self.mean - step), tail, error)
        upper = self._bound(lambda step: self.below(self.mean + step), tail, error)
        return self.mean - lower, self.mean + upper

    def _bound(self, p_value: Callable[[float], float], tail: float, error: float) -> float:
        if self.least > tail or not error > 0:
            return math.inf if error > 0 else 0.0
        low, high = 0.0, 2 * error
        for _ in range(40):
            if p_value(high) <= tail:
                break
            low, high = high, 2 * high
        else:
            return math.inf
        for _ in range(24):
            middle = (low + high) / 2
            low, high = (low, middle) if p_value(middle) <= tail else (middle, high)
        return high

    def _statistics(self, shift: float) -> FloatArray:
        """Returns the statistic of every permutation, the values of b being less by the shift; as they fell first."""
        size_a, size_b = self._sizes
        total, square = self._total - shift * size_b, self._own_square - 2 * shift * self._own_total
        square += self._total_square - self._own_square + shift**2 * size_b
        sums = self._sums - shift * self._counts
        squares = self._squares - 2 * shift * self._own_sums + shift**2 * self._counts
        means = sums / size_b, (total - sums) / size_a
        spread_b = (squares - size_b * means[0] ** 2) / (size_b - 1)
        spread_a = (square - squares - size_a * means[1] ** 2) / (size_a - 1)
        least = max(self._floor, 1e-12 * square / (size_a + size_b))
        error = np.sqrt(np.maximum(spread_b, least) / size_b + np.maximum(spread_a, least) / size_a)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.nan_to_num((means[0] - means[1]) / error))


@functools.lru_cache(maxsize=64)
def _permutations(size_a: int, size_b: int) -> FloatArray:
    """Returns float64[num_permutations, size_a + size_b], 1 for what falls to b; in the first row they are as given."""
    size = size_a + size_b
    if math.comb(size, size_b) <= _MOST_EXACT:
        chosen = sorted(itertools.combinations(range(size), size_b), key=lambda one: one[0] != size_a)
        places = np.asarray(chosen)
    else:
        ranks = np.random.default_rng([size_a, size_b]).random((_MOST_EXACT - 1, size)).argsort(axis=1)
        places = np.concatenate([np.arange(size_a, size)[None], ranks[:, :size_b]])
    found = np.zeros((len(places), size))
    np.put_along_axis(found, places, 1.0, axis=1)
    return found
