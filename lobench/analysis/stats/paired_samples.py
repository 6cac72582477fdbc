"""Samples of two sides on one case: pairs of common seeds, or two samples without common seeds.

The noise of a difference has a floor: repeated values show that values were rounded, and three equal differences of
rounded values prove little.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

__all__ = [
    "DIVERGED",
    "FLOAT_STEP",
    "RELATIVE_TOLERANCE",
    "Estimate",
    "Samples",
    "rounding_step",
    "variance_of_mean",
    "variance_of_sum",
]

DIVERGED = -math.inf  # worse than any value

# Stored values are float32, so means are known up to their last bit only, and smaller differences do not count.
FLOAT_STEP = 2.0**-23
RELATIVE_TOLERANCE = 4 * FLOAT_STEP


_NONE = frozenset[int]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean with its variance and the variance's degrees of freedom. Both are NaN for a single seed."""

    mean: float
    variance: float
    degrees: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Values of two sides on one case; higher is better.

    Attributes:
      a, b: Value of each seed; DIVERGED if it diverged, NaN if the case has no scale. Pairs are in the same order.
      is_paired: Whether the seeds are common. If not, seed 3 of one side is unrelated to seed 3 of the other.
      step: Step q to which the values were rounded; 0 without a sign of rounding.
      precision: Difference that a float32 cannot resolve, in units of these values; at least that of their own size.
      may_vary: Whether the underlying quantities may vary although these values do not: scores are clipped, differences
        cancel.
      binary_unit: Difference of a success and a failure, if each value is one of these two and the pairs are items; 0
        otherwise.
      replicate: Noun for one of the values: "seed" or "item".
      added_shift: Sum of the shifts that `shifted` added to B.
      seeds: Seed of each value of A, and of B; equal for pairs. (): 0, 1, ...
      shared_trainings: Names of the trainings that this case shares with others; see
        `lobench.analysis.stats.seed_groups`.
      missing_seeds: Planned seeds of A and of B that have no value. They are not missing at random and limit the
        verdict; see `lobench.analysis.stats.comparison.limit_verdict`. A seed that several cases of a
        group lack counts once.
    """

    a: tuple[float, ...] = ()
    b: tuple[float, ...] = ()
    is_paired: bool = True
    step: float = 0.0
    precision: float = 0.0
    may_vary: bool = False
    binary_unit: float = 0.0
    added_shift: float = 0.0
    # No test of one case depends on these.
    replicate: str = field(default="seed", compare=False, repr=False)
    seeds: tuple[tuple[int, ...], tuple[int, ...]] = field(default=((), ()), compare=False, repr=False)
    shared_trainings: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    missing_seeds: tuple[frozenset[int], frozenset[int]] = field(default=(_NONE, _NONE), compare=False, repr=False)

    @classmethod
    def of(cls, a: Sequence[float], b: Sequence[float], *, is_paired: bool = True) -> Samples:
        """Returns samples whose rounding step is estimated from the values."""
        step = rounding_step(a, b, is_paired=is_paired)
        return cls(a=tuple(a), b=tuple(b), is_paired=is_paired, step=step)

    @classmethod
    def of_differences(cls, differences: Sequence[float]) -> Samples:
        """Returns pairs of which only the differences b - a are known."""
        step = _smallest_gap([0.0, *differences]) if _has_repeats([value for value in differences if value]) else 0.0
        return cls(a=(0.0,) * len(differences), b=tuple(differences), step=step, may_vary=True)

    def __len__(self) -> int:
        """Returns the number of pairs, or of seeds of the side with fewer."""
        return min(len(self.a), len(self.b))

    @property
    def num_missing(self) -> tuple[int, int]:
        """Numbers of planned seeds of A and of B that have no value."""
        return len(self.missing_seeds[0]), len(self.missing_seeds[1])

    @property
    def num_diverged(self) -> tuple[int, int]:
        """Numbers of diverged seeds of A and of B."""
        return self.a.count(DIVERGED), self.b.count(DIVERGED)

    @property
    def has_scale(self) -> bool:
        return not any(map(math.isnan, (*self.a, *self.b)))

    def converged(self) -> Samples:
        """Returns the pairs in which both sides converged, or the converged seeds of each side."""
        if not any(self.num_diverged):
            return self
        a = self.values_by_seed("a")
        b = self.values_by_seed("b")
        if self.is_paired:
            # Seeds of pairs are the same on both sides.
            converged_seeds = [
                seed
                for seed, value_a, value_b in zip(a, self.a, self.b, strict=True)
                if DIVERGED not in (value_a, value_b)
            ]
            a, b = ({seed: values_by_seed[seed] for seed in converged_seeds} for values_by_seed in (a, b))
        else:
            a, b = (
                {seed: value for seed, value in values_by_seed.items() if value != DIVERGED}
                for values_by_seed in (a, b)
            )
        return replace(self, a=tuple(a.values()), b=tuple(b.values()), seeds=(tuple(a), tuple(b)))

    def values_by_seed(self, side: Literal["a", "b"]) -> dict[int, float]:
        """Returns the values of a side by their seeds, in the order of the values."""
        values, seeds = (self.a, self.seeds[0]) if side == "a" else (self.b, self.seeds[1])
        return dict(zip(seeds or range(len(values)), values, strict=True))

    def shifted(self, shift: float) -> Samples:
        """Returns samples whose differences b - a are larger by `shift`."""
        return replace(self, b=tuple(value + shift for value in self.b), added_shift=self.added_shift + shift)

    def first_seeds(self, count: int) -> Samples:
        """Returns the first `count` seeds of each side."""
        seeds = (self.seeds[0][:count], self.seeds[1][:count])
        return replace(self, a=self.a[:count], b=self.b[:count], seeds=seeds)

    @property
    def least_variance(self) -> float:
        """Smallest variance of one value: that of rounding to the step, or to a float32.

        Source: a uniform error over one step has the variance q^2 / 12.
        """
        return max(self.step, self.precision, FLOAT_STEP * _largest_magnitude((*self.a, *self.b))) ** 2 / 12

    @property
    def has_spread(self) -> bool:
        """Whether the converged seeds differ by more than the rounding of a float32."""
        spreads = [self._differences()] if self.is_paired else [self.a, self.b]
        return any(max(values) - min(values) > self._tolerance for values in spreads)

    @property
    def are_equal(self) -> bool:
        """Whether the two values of no pair differ by more than the rounding of a float32."""
        return all(abs(difference) <= self._tolerance for difference in self._differences())

    @property
    def _tolerance(self) -> float:
        return max(RELATIVE_TOLERANCE * _largest_magnitude((*self.a, *self.b)), 4 * self.precision)

    @property
    def has_one_value(self) -> bool:
        """Whether all converged seeds of both sides have the same value, so that the rounding step is unknown."""
        converged = self.converged()
        values = (*converged.a, *(value - self.added_shift for value in converged.b))
        least = max(RELATIVE_TOLERANCE * _largest_magnitude(values), 4 * self.precision)
        return len(values) > 0 and not self.may_vary and max(values) - min(values) <= least

    def _differences(self) -> list[float]:
        return [b - a for a, b in zip(self.a, self.b, strict=True)]

    def discordant_counts(self) -> tuple[int, int]:
        """Returns the numbers of binary pairs with a success of B alone, and of A alone."""
        changes = [round((b - self.added_shift - a) / self.binary_unit) for a, b in zip(self.a, self.b, strict=True)]
        return changes.count(1), changes.count(-1)

    def _binary_estimate(self) -> Estimate:
        (gains, losses), num_items = self.discordant_counts(), len(self)
        discordant = (gains + losses + 1) / (num_items + 2)
        mean = (gains - losses) / (num_items + 2)
        variance = self.binary_unit**2 * (discordant - mean**2) / num_items
        degrees = num_items - 1 if num_items > 1 else math.nan
        return Estimate(
            mean=self.binary_unit * (gains - losses) / num_items + self.added_shift,
            variance=variance if num_items > 1 else math.nan,
            degrees=degrees,
        )

    def estimate(self) -> Estimate:
        """Returns the mean of b - a over converged seeds with its variance: Student's for pairs, else Welch's.

        The variance of a pair's difference is at least that of two roundings, q^2 / 6; that of a sample's value q^2 /
        12.

        Example: (1, 1.1) and (2, 2.1) differ by 1 with a standard error of 0.071, on 2 degrees of freedom.

        Binary pairs have the variance of a table with half an item added to each of its four cells, since few items may
        all agree by chance.

        Source: Student 1908; Welch 1947; Satterthwaite 1946; Agresti and Min 2005.
        """
        if self.binary_unit and len(self):
            return self._binary_estimate()
        if self.is_paired:
            return _sample_estimate(self._differences(), 2 * self.least_variance)
        a = _sample_estimate(self.a, self.least_variance)
        b = _sample_estimate(self.b, self.least_variance)
        variance, degrees = variance_of_sum([a, b])
        return Estimate(mean=b.mean - a.mean, variance=variance, degrees=degrees)


def variance_of_sum(estimates: Sequence[Estimate]) -> tuple[float, float]:
    """Returns the variance of a sum of independent means, and Satterthwaite's degrees of freedom.

    Source: Satterthwaite 1946.
    """
    return _pooled([(estimate.variance, estimate.degrees) for estimate in estimates])


def variance_of_mean(estimates: Sequence[Estimate], weights: Sequence[float] | None = None) -> tuple[float, float]:
    """Returns the variance of the mean of independent means, and Satterthwaite's degrees of freedom.

    Args:
      estimates: The means.
      weights: Weights of the means, with sum 1. None: equal weights.
    """
    if weights is None:
        square = len(estimates) ** 2
        return _pooled([(estimate.variance / square, estimate.degrees) for estimate in estimates])
    return _pooled(
        [(estimate.variance * w**2, estimate.degrees) for estimate, w in zip(estimates, weights, strict=True)]
    )


def _pooled(variances_and_degrees: Sequence[tuple[float, float]]) -> tuple[float, float]:
    total = math.fsum(variance for variance, _ in variances_and_degrees)
    if not total > 0:  # or NaN
        return total, math.inf if total == 0 else math.nan
    # Shares of the variance, not the parts themselves: their squares would underflow for small losses.
    return total, 1 / math.fsum(
        (part_variance / total) ** 2 / degrees for part_variance, degrees in variances_and_degrees if part_variance > 0
    )


def rounding_step(a: Sequence[float], b: Sequence[float], *, is_paired: bool) -> float:
    """Returns q, the smallest gap between distinct values, if values repeat at different seeds; else 0.

    A seed on which both sides end alike does not count as a repetition, because two equal methods do so. Repeated
    differences do count: they reveal a grid that the values alone may not show. Diverged seeds do not count.
    """
    if not is_paired:
        values = [value for value in (*a, *b) if math.isfinite(value)]
        return _smallest_gap(values) if _has_repeats(values) else 0.0
    pairs = [pair for pair in zip(a, b, strict=True) if all(map(math.isfinite, pair))]
    # Values in a baseline file are rounded, so equality is up to that.
    values = [value for pair in pairs for value in (pair[:1] if _has_repeats(pair) else pair)]
    differences = [value_b - value_a for value_a, value_b in pairs if not _has_repeats((value_a, value_b))]
    return (
        _smallest_gap(values) if _has_repeats(values) or _has_repeats(differences, _largest_magnitude(values)) else 0.0
    )


def _largest_magnitude(values: Sequence[float]) -> float:
    return max(map(abs, values), default=0.0)


def _has_repeats(values: Sequence[float], size: float = 0.0) -> bool:
    """Returns whether two values are equal up to the rounding of float32 numbers of their size, or of size `size`."""
    pairs = itertools.pairwise(sorted(values))
    return any(high - low <= RELATIVE_TOLERANCE * max(size, abs(low), abs(high)) for low, high in pairs)


def _smallest_gap(values: Sequence[float]) -> float:
    pairs = itertools.pairwise(sorted(values))
    return min(
        (high - low for low, high in pairs if high - low > RELATIVE_TOLERANCE * max(abs(low), abs(high))), default=0.0
    )


def _sample_estimate(values: Sequence[float], floor: float) -> Estimate:
    count = len(values)
    mean = math.fsum(values) / count if count and all(map(math.isfinite, values)) else math.nan
    if count < 2 or math.isnan(mean):
        return Estimate(mean=mean, variance=math.nan, degrees=math.nan)
    return Estimate(mean=mean, variance=max(float(np.var(values, ddof=1)), floor) / count, degrees=count - 1)
