"""Location tests on a case: Student's t for pairs, or McNemar's exact test if they are binary; Welch's for two samples.

With samples of different sizes, Welch's t is combined with permutations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lobench.analysis.stats.mcnemar import McNemar
from lobench.analysis.stats.paired_samples import Estimate, Samples, variance_of_mean
from lobench.analysis.stats.permutation import Permutation
from lobench.analysis.stats.proportions import two_sided
from lobench.analysis.stats.t_distribution import t_isf, t_sf

__all__ = ["LEAST_P", "Location", "LocationTest", "locate", "mean_location"]

LocationTest: TypeAlias = Literal["paired", "mcnemar", "welch", "permutation"]

_TWICE = 2  # ratio of sizes from which Welch's t errs under heavy tails, skew or unequal variances
LEAST_P = 1e-300  # smallest p-value, because no number of seeds gives certainty


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A mean difference with its noise, and the tests and bounds that follow from it.

    Attributes:
      method: Kind of test.
      estimate: Estimate over the converged seeds; NaN if there are too few.
      samples: Values of the converged seeds.
      permutation: Permutation test, for two samples of which one has at least twice the seeds of the other. Both tests
        must then reject: Welch's alone errs under heavy tails, and permutations alone err if the smaller side is
          noisier.
      mcnemar: Test of binary pairs, in place of Student's.
    """

    method: LocationTest
    estimate: Estimate
    samples: Samples = field(default=Samples(), repr=False)  # one shared instance instead of thousands
    permutation: Permutation | None = field(default=None, repr=False, compare=False)
    mcnemar: McNemar | None = None

    @property
    def is_known(self) -> bool:
        return not math.isnan(self.estimate.variance)

    @property
    def error(self) -> float:
        return math.sqrt(self.estimate.variance)

    def p_above(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the mean is at most `shift`"; NaN if the estimate is not known."""
        return self._tail_p_value(shift, 1)

    def p_below(self, shift: float = 0.0) -> float:
        """Returns the p-value of "the mean is at least `shift`"; NaN if the estimate is not known."""
        return self._tail_p_value(shift, -1)

    def p_value(self) -> float:
        """Returns the two-sided p-value of no difference; NaN if the estimate is not known."""
        if self.is_known and self.estimate.mean == 0:
            return 1.0
        return two_sided(self.p_above(), self.p_below()) if self.is_known else math.nan

    def bounds(self, tail_level: float) -> tuple[float, float]:
        """Returns the interval of shifts that no one-sided test rejects at `tail_level`; NaN if not finite."""
        mean, error = self.estimate.mean, self.error
        if not self.is_known:
            return math.nan, math.nan
        if self.mcnemar is not None:
            unit, raised = self.samples.binary_unit, self.samples.added_shift
            low, high = self.mcnemar.bounds(tail_level)
            return unit * low + raised, unit * high + raised
        half = t_isf(tail_level, self.estimate.degrees) * error if error else 0.0
        if self.permutation is None:
            return mean - half, mean + half
        lower, upper = self.permutation.bounds(tail_level, error)
        if math.isinf(lower) or math.isinf(upper):
            return math.nan, math.nan
        return min(lower, mean - half), max(upper, mean + half)

    def _tail_p_value(self, shift: float, sign: int) -> float:
        if not self.is_known:
            return math.nan
        if self.mcnemar is not None:
            change = (shift - self.samples.added_shift) / self.samples.binary_unit
            return max(LEAST_P, self.mcnemar.p_above(change) if sign > 0 else self.mcnemar.p_below(change))
        distance = sign * (self.estimate.mean - shift)
        if self.estimate.variance == 0:
            p_value = LEAST_P if distance > 0 else 1.0
        else:
            p_value = max(LEAST_P, t_sf(distance / self.error, self.estimate.degrees))
        if self.permutation is None:
            return p_value
        return max(p_value, self.permutation.p_above(shift) if sign > 0 else self.permutation.p_below(shift))


@functools.lru_cache(maxsize=128)  # a comparison, its gate and its table need the same results
def locate(samples: Samples) -> Location:
    """Returns the mean of b - a over converged seeds, with a test that keeps its level for this kind of samples.

    Pairs have Student's t, and binary pairs McNemar's exact test. Two samples have Welch's t, which keeps its level for
    any ratio of the variances if neither side has twice the seeds of the other. Otherwise the p-value is the larger one
    of Welch's t and a permutation test.
    """
    converged = samples.converged()
    few, many = sorted((len(converged.a), len(converged.b)))
    if not few:
        method: LocationTest = "paired" if converged.is_paired else "welch"
        return Location(method=method, estimate=_NOTHING)
    estimate = converged.estimate()
    if converged.binary_unit:
        gains, losses = converged.discordant_counts()
        test = McNemar(gains=gains, losses=losses, num_items=len(converged))
        return Location(method="mcnemar", estimate=estimate, samples=converged, mcnemar=test)
    if converged.is_paired:
        return Location(method="paired", estimate=estimate, samples=converged)
    if few < 2 or many < _TWICE * few or math.isnan(estimate.variance):
        return Location(method="welch", estimate=estimate, samples=converged)
    return Location(method="permutation", estimate=estimate, samples=converged, permutation=Permutation([converged]))


def mean_location(group_locations: Sequence[Location], sizes: Sequence[int] | None = None) -> Location:
    """Returns the mean over groups of cases: a single group itself, or the stratified t of several.

    The variance is the weighted sum of the groups' variances, with Satterthwaite's degrees of freedom. If one group
    needs a permutation test, the samples of all groups are permuted, each within its group.

    Args:
      group_locations: Mean of each group, at least one.
      sizes: Number of cases of each group, which is its weight. None: equal weights.
    """
    if len(group_locations) == 1:
        return group_locations[0]
    estimates = [group_location.estimate for group_location in group_locations]
    weights = None if sizes is None or len(set(sizes)) == 1 else [size / sum(sizes) for size in sizes]
    variance, degrees = variance_of_mean(estimates, weights)
    shares = weights or [1 / len(estimates)] * len(estimates)
    mean = math.fsum(estimate.mean * share for estimate, share in zip(estimates, shares, strict=True))
    if weights is None:
        mean = math.fsum(estimate.mean for estimate in estimates) / len(estimates)
    is_permuted = any(group_location.permutation for group_location in group_locations)
    method = "permutation" if is_permuted else "paired" if group_locations[0].mcnemar else group_locations[0].method
    return Location(
        method=method,
        estimate=Estimate(mean=mean, variance=variance, degrees=degrees),
        permutation=Permutation([group_location.samples for group_location in group_locations], weights)
        if is_permuted
        else None,
    )


_NOTHING = Estimate(mean=math.nan, variance=math.nan, degrees=math.nan)
