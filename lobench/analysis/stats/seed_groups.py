"""Means over cases some of which share the randomness of their seeds.

Cases that share a training, or its data and initial parameters, move together from seed to seed. A mean that takes them
as independent finds differences in .2 to .6 of comparisons of equal methods. So the cases are divided into groups by
design. Within a group a seed has one value, the mean over the group's cases. Between groups the variances are added, as
for independent cases. A group's seed counts as diverged if it diverged on any case of the group.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.stats.location import Location, locate, mean_location
from lobench.analysis.stats.paired_samples import DIVERGED, Estimate, Samples, variance_of_sum
from lobench.analysis.stats.proportions import Counts
from lobench.analysis.stats.shared_items import item_mean

__all__ = [
    "CasesMean",
    "are_compared_by_items",
    "contrast_location",
    "counts_of",
    "group_counts",
    "group_indices",
    "join_cases",
    "mean_over_cases",
    "num_missing_in_group",
    "seed_means_ratio",
]

_LEAST_TO_CHECK = 8  # seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesMean:
    """Mean over cases of b - a, over the seeds that converge.

    Attributes:
      location: Mean with its test. None if no group can be tested.
      groups: Indices of the cases that are in the mean, by group.
      num_converged: Number of converged seeds of the group with the fewest.
      num_incomplete: Number of seeds that lack a case of their group, and are excluded from the mean.
    """

    location: Location | None
    groups: tuple[tuple[int, ...], ...]
    num_converged: int = 0
    num_incomplete: int = 0


def group_indices(cases: Sequence[frozenset[str]]) -> tuple[tuple[int, ...], ...]:
    """Returns the indices of the cases by group.

    Cases that share a training, directly or through others, form one group.

    >>> group_indices([frozenset({"run 1"}), frozenset(), frozenset({"run 1", "run 2"})])
    ((0, 2), (1,))

    Args:
      cases: Names of the trainings of each case. Empty if it shares none.
    """
    return _group_indices(tuple(cases))


@functools.lru_cache(maxsize=256)  # cases may have thousands of items each, and a comparison asks several times
def _group_indices(cases: tuple[frozenset[str], ...]) -> tuple[tuple[int, ...], ...]:
    first_index_by_training: dict[str, int] = {}
    root = list(range(len(cases)))

    def find(index: int) -> int:
        while root[index] != index:
            index = root[index]
        return index

    for index, trainings in enumerate(cases):
        for training in trainings:
            smaller_root, larger_root = sorted((find(first_index_by_training.setdefault(training, index)), find(index)))
            root[larger_root] = smaller_root
    groups: dict[int, list[int]] = {}
    for index in range(len(cases)):
        groups.setdefault(find(index), []).append(index)
    return tuple(tuple(indices) for indices in groups.values())


def counts_of(samples: Samples) -> Counts:
    """Returns the numbers of diverged seeds and of all seeds of both sides."""
    lost_a, lost_b = samples.num_diverged
    return Counts(lost_a, len(samples.a), lost_b, len(samples.b))


def group_counts(cases: Sequence[Samples]) -> list[Counts]:
    """Returns the counts of diverged seeds of each group.

    A seed that diverged on several cases of the group counts once.
    """
    groups = []
    for indices in group_indices([case.shared_trainings for case in cases]):
        members = [cases[index] for index in indices]
        if len(members) == 1:
            groups.append(counts_of(members[0]))
            continue
        counts = []
        for side_name in ("a", "b"):
            values = [member.values_by_seed(side_name) for member in members]
            seeds = set[int]().union(*values)
            diverged = {
                seed for values_of_side in values for seed, value in values_of_side.items() if value == DIVERGED
            }
            counts += [len(diverged), len(seeds)]
        groups.append(Counts(*counts))
    return groups


def num_missing_in_group(cases: Sequence[Samples]) -> tuple[int, int]:
    """Returns the numbers of seeds that A and B lack on any case of a group. A seed counts once."""
    missing_a, missing_b = (set[int]().union(*(case.missing_seeds[side] for case in cases)) for side in (0, 1))
    return len(missing_a), len(missing_b)


def join_cases(cases: Sequence[Samples], weights: Sequence[float] | None = None) -> Samples:
    """Returns one sample for a group of cases: the mean over the cases of each seed that has all of them.

    A seed that diverged on any case diverged. The step represents the rounding of all cases.

    Args:
      cases: At least one case, each with a scale.
      weights: Weights of the cases. None: equal weights with sum 1.
    """
    if len(cases) == 1 and weights is None:
        return cases[0]
    weights = [1 / len(cases)] * len(cases) if weights is None else weights
    is_paired = all(case.is_paired for case in cases)
    values_of_sides, seeds = [], []
    for side_name in ("a", "b"):
        values = [case.values_by_seed(side_name) for case in cases]
        seeds_of_all = [seed for seed in values[0] if all(seed in values_of_case for values_of_case in values[1:])]
        seeds.append(seeds_of_all)
        values_of_sides.append(
            [_weighted_sum([values_of_case[seed] for values_of_case in values], weights) for seed in seeds_of_all]
        )
    if is_paired and seeds[0] != seeds[1]:  # only for inconsistent input, because each case is paired by seed
        raise ValueError("pairs of a group have other seeds on either side")
    floor = math.fsum(weight**2 * case.converged().least_variance for case, weight in zip(cases, weights, strict=True))
    return Samples(
        a=tuple(values_of_sides[0]),
        b=tuple(values_of_sides[1]),
        is_paired=is_paired,
        step=math.sqrt(12 * floor),
        may_vary=any(case.may_vary for case in cases),
        added_shift=math.fsum(weight * case.added_shift for case, weight in zip(cases, weights, strict=True)),
        seeds=(tuple(seeds[0]), tuple(seeds[1])),
        shared_trainings=frozenset().union(*(case.shared_trainings for case in cases)),
    )


def are_compared_by_items(cases: Sequence[Samples]) -> bool:
    """Returns whether cases of a group are compared by items. All items of each case then count in its mean."""
    return len(cases) > 1 and all(case.is_paired for case in cases) and any(case.replicate == "item" for case in cases)


def _weighted_sum(values: Sequence[float], weights: Sequence[float]) -> float:
    if DIVERGED in values:
        return DIVERGED
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True))


def mean_over_cases(cases: Sequence[Samples], independent: Sequence[Location] = ()) -> CasesMean:
    """Returns the mean over cases with equal weights, by groups as described in the module.

    A group is excluded if fewer than two of its seeds have all of its cases and converge on both sides. Cases that are
    compared by items have the mean of all of their items; see `lobench.analysis.stats.shared_items`.

    Args:
      cases: Cases that can be tested.
      independent: Means of further cases that are their own groups.
    """
    locations = list(independent)
    sizes = [1] * len(independent)
    groups = list[tuple[int, ...]]()
    num_converged = list[int]()
    num_incomplete = 0
    for indices in group_indices([case.shared_trainings for case in cases]):
        members = [cases[index] for index in indices]
        have_items = are_compared_by_items(members)
        joined_samples = members[0] if have_items else join_cases(members)
        location = item_mean(members) if have_items else locate(joined_samples)
        if not location.is_known:
            continue
        locations.append(location)
        sizes.append(len(indices))
        groups.append(indices)
        num_converged.append(min(len(sample.converged()) for sample in (members if have_items else [joined_samples])))
        num_incomplete += 0 if have_items else max(len(member) for member in members) - len(joined_samples)
    return CasesMean(
        location=mean_location(locations, sizes) if locations else None,
        groups=tuple(groups),
        num_converged=min(num_converged, default=0),
        num_incomplete=num_incomplete,
    )


def contrast_location(cases: Sequence[Samples], weights: Sequence[float]) -> Location | None:
    """Returns the weighted sum over cases of the mean of b - a, by groups; None if a group cannot be tested.

    Args:
      cases: Cases that can be tested.
      weights: Weights of the cases, of either sign.
    """
    estimates = []
    for indices in group_indices([case.shared_trainings for case in cases]):
        location = locate(join_cases([cases[index] for index in indices], [weights[index] for index in indices]))
        if not location.is_known:
            return None
        estimates.append(location.estimate)
    if not estimates:
        return None
    variance, degrees = variance_of_sum(estimates)
    mean = math.fsum(estimate.mean for estimate in estimates)
    return Location(method="paired", estimate=Estimate(mean=mean, variance=variance, degrees=degrees))


def seed_means_ratio(cases: Sequence[Samples]) -> tuple[float, float]:
    """Returns the variance of the seeds' means over groups relative to the pooled one, and its p-value.

    It is a diagnostic that no decision depends on. Independent cases have a ratio near 1, cases that move together a
    larger one.

    Args:
      cases: Paired samples.

    Returns:
      ratio: Ratio of the variances.
      p_value: One-sided p-value of the ratio being above 1. Both are NaN with fewer than two groups, or with fewer than
        eight seeds that have all cases.
    """
    groups = group_indices([case.shared_trainings for case in cases])
    group_samples = [join_cases([cases[index] for index in indices]).converged() for indices in groups]
    if len(group_samples) < 2 or not all(samples.is_paired for samples in group_samples):
        return math.nan, math.nan
    sizes = [len(indices) / len(cases) for indices in groups]
    all_samples = join_cases(group_samples, sizes)
    if len(all_samples) < _LEAST_TO_CHECK:
        return math.nan, math.nan
    rows = np.asarray(
        [[differences[seed] for seed in all_samples.seeds[0]] for differences in map(_differences, group_samples)]
    )
    variances = rows.var(axis=1, ddof=1) * np.square(sizes)
    together = float(np.var(np.asarray(sizes) @ rows, ddof=1))
    total = float(variances.sum())
    if not total > 0:
        return math.nan, math.nan
    num_degrees = len(all_samples) - 1
    degrees = num_degrees / float(np.square(variances / total).sum())
    from scipy.special import fdtrc  # slow to import, and seldom needed

    return together / total, float(fdtrc(num_degrees, degrees, together / total))


def _differences(pairs: Samples) -> dict[int, float]:
    """Returns the differences b - a of pairs, by seed."""
    b = pairs.values_by_seed("b")
    return {seed: b[seed] - value for seed, value in pairs.values_by_seed("a").items()}
