"""How much a suite's cases tell about methods: signal, noise, redundancy, sufficient subsets, needed seeds.

Signal and noise are defined as by Heineman et al. (arXiv 2508.13144) for benchmarks of language models: the spread
between methods, and the spread within a method. Here the spread within a method is between seeds, after removing a
seed's common effect on all methods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from lobench.analysis.stats.intervals import common_seeds_of
from lobench.analysis.stats.mean_ranks import ranks_of
from lobench.analysis.stats.t_distribution import t_isf
from lobench.core.errors import StoreError
from lobench.core.wording import counted

__all__ = [
    "LEAST_FOR_INTERVAL",
    "LEAST_METHODS",
    "CaseWorth",
    "Subset",
    "SuiteScores",
    "SuiteWorth",
    "choose_subsets",
    "seed_noise",
    "seeds_needed",
    "suite_worth",
]

LEAST_METHODS = 6  # three to choose with, three to judge with
LEAST_FOR_INTERVAL = 12  # six to judge with; fewer have too few distinct orders
_MOST_SEEDS = 100_000
_POWER = 0.8
_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseWorth:
    """Information that a case gives about methods, and its cost.

    Attributes:
      name: Name of the case.
      signal: Standard deviation of the methods' means, without the contribution of noise.
      noise: Standard deviation of a seed's score within a method.
      p_value: P-value of an F test that all methods are equal on the case. NaN with one seed.
      correlation: Correlation of the methods' means with their means over the other cases. NaN if all means are equal.
      seconds: Seconds of one seed, as the median over methods. NaN if unknown.
      num_seeds: Number of seeds that show `SuiteWorth.difference` on this case alone. None: too many.
    """

    name: str
    signal: float
    noise: float
    p_value: float
    correlation: float
    seconds: float
    num_seeds: int | None

    @property
    def signal_to_noise(self) -> float:
        return self.signal / self.noise if self.noise > 0 else math.inf if self.signal > 0 else 0.0

    @property
    def own(self) -> float:
        """Fraction of the variance between methods that the other cases do not predict."""
        return 1.0 if math.isnan(self.correlation) else 1.0 - self.correlation**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """Greedily chosen subset of the cases that keeps the order of methods best.

    Attributes:
      cases: Indices of the cases, in the order in which they were chosen on all methods.
      rank_correlation: Spearman's correlation between means over the subset and means over all cases. It is measured on
        methods that were not used to choose the subset, and averaged over splits.
      lower, upper: Bounds of the correlation in 95 of 100 splits. NaN with fewer than twelve methods, or if all splits
        agree, since the bounds then say nothing about a new method. Both are 1 for all cases, by definition.
      share_of_cost: Fraction of the whole suite's seconds. NaN if unknown.
    """

    cases: tuple[int, ...]
    rank_correlation: float
    lower: float
    upper: float
    share_of_cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteWorth:
    """Information that the cases of a suite give about methods, and the smallest subset that keeps their order.

    Attributes:
      methods: Names of the methods.
      cases: Worth of each case.
      subsets: Subsets by size. The last one has all cases.
      chosen: Index of the smallest subset whose lower bound is at least `keep`. None: no proper subset is good enough,
        or none has an interval.
      keep: Rank correlation that a subset must keep.
      difference: Difference between two methods' mean scores to be detected.
      num_splits: Number of splits of the methods.
      num_seeds: Number of pairs of seeds that detect the difference over all cases, in 80 of 100 comparisons at a level
        of 5%. None: too many.
      num_seeds_of_chosen: Number of pairs of seeds that detect the difference over the chosen subset. None: too many.
      left_out: Methods and cases that were left out, with the reason.
      other_code: Note on results that were computed by other code than the user's present code; "" if there are none.
    """

    methods: tuple[str, ...]
    cases: tuple[CaseWorth, ...]
    subsets: tuple[Subset, ...]
    chosen: int | None
    keep: float
    difference: float
    num_splits: int
    num_seeds: int | None
    num_seeds_of_chosen: int | None
    left_out: Mapping[str, str] = field(default_factory=dict)
    other_code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteScores:
    """Scores by which the cases of a suite are judged.

    Attributes:
      methods: Names of the methods.
      cases: Names of the cases.
      scores: Scores by seed, for each method and case.
      seconds: Seconds of one seed of each case. NaN if unknown.
      groups: Groups of indices of cases that share the randomness of their seeds. Other cases are independent.
      left_out: Methods and cases that were left out, with the reason.
    """

    methods: Sequence[str]
    cases: Sequence[str]
    scores: Sequence[Sequence[Mapping[int, float]]]
    seconds: Sequence[float]
    groups: Sequence[Sequence[int]] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def means(self) -> _Floats:
        """Returns the mean scores, float64[methods, cases]."""
        return np.array([[np.mean(list(cell.values())) for cell in row] for row in self.scores])

    def noise(self, cases: Sequence[int]) -> float:
        """Returns the noise of one seed's mean over some cases.

        Cases in a group are dependent, groups are independent.
        """
        group_by_case = {case: tuple(group) for group in self.groups for case in group}
        variances = []
        for group in dict.fromkeys(group_by_case.get(case, (case,)) for case in cases):
            members = [case for case in group if case in cases]
            sums_by_seed = [
                {
                    seed: sum(row[case][seed] for case in members)
                    for seed in common_seeds_of([row[case] for case in members])
                }
                for row in self.scores
            ]
            variances.append(seed_noise(sums_by_seed) ** 2 if all(sums_by_seed) else math.nan)
        return math.sqrt(sum(variances)) / len(cases)


def suite_worth(
    suite: SuiteScores, *, keep: float = 0.9, difference: float = 0.05, num_splits: int = 200, where: str = ""
) -> SuiteWorth:
    """Returns how much the cases of a suite contribute to ranking the methods.

    Args:
      suite: Scores of the methods on the cases.
      keep: Rank correlation that a subset must keep.
      difference: Difference between two methods' mean scores to be detected.
      num_splits: Number of splits of the methods.
      where: Name of the store or suite, for errors.
    Raises:
      StoreError: There are fewer than six methods, or fewer than two cases.
    """
    methods, cases = suite.methods, suite.cases
    if len(methods) < LEAST_METHODS or len(cases) < 2:
        raise StoreError(
            "too little to judge a suite by",
            where=where,
            got=f"{counted(len(methods), 'method')} with scores on the same {counted(len(cases), 'case')}",
            expected=f"at least {LEAST_METHODS} methods and 2 cases",
            next_step="evaluate more optimizers on it: `lobench run` with one method each",
        )
    means = suite.means()
    subsets = choose_subsets(means, np.asarray(suite.seconds, np.float64), num_splits=num_splits)
    chosen_index = next((index for index, subset in enumerate(subsets[:-1]) if subset.lower >= keep), None)
    seeds_of_chosen = None
    if chosen_index is not None:
        seeds_of_chosen = seeds_needed(suite.noise(subsets[chosen_index].cases), difference)
    return SuiteWorth(
        methods=tuple(methods),
        cases=tuple(_case_worth(suite, case, means, difference) for case in range(len(cases))),
        subsets=subsets,
        chosen=chosen_index,
        keep=keep,
        difference=difference,
        num_splits=num_splits,
        num_seeds=seeds_needed(suite.noise(range(len(cases))), difference),
        num_seeds_of_chosen=seeds_of_chosen,
        left_out=suite.left_out,
    )


def seed_noise(scores_by_method: Sequence[Mapping[int, float]]) -> float:
    """Returns the standard deviation of a score within a method, without a seed's common effect; NaN with one seed.

    Args:
      scores_by_method: Scores by seed, for each method on one case.
    """
    common_seeds = sorted(set.intersection(*(set(cell) for cell in scores_by_method)))
    if len(common_seeds) > 1:
        scores_by_cell = np.array([[cell[seed] for seed in common_seeds] for cell in scores_by_method])
        residuals = (
            scores_by_cell
            - scores_by_cell.mean(axis=1, keepdims=True)
            - scores_by_cell.mean(axis=0)
            + scores_by_cell.mean()
        )
        return math.sqrt((residuals**2).sum() / ((len(scores_by_method) - 1) * (len(common_seeds) - 1)))
    degrees = sum(len(cell) - 1 for cell in scores_by_method)
    squares = sum(np.var(list(cell.values())) * len(cell) for cell in scores_by_method)
    return math.sqrt(squares / degrees) if degrees else math.nan


def seeds_needed(noise: float, difference: float, *, alpha: float = 0.05) -> int | None:
    """Returns the number of pairs of seeds with which a paired t test has 80% power. None: too many to be useful.

    Args:
      noise: Standard deviation of scores between seeds.
      difference: Difference of two mean scores that the test should find.
      alpha: Level of the test.
    """
    spread = math.sqrt(2.0) * noise
    if math.isnan(spread):
        return None
    low, high = 2, _MOST_SEEDS
    if not _has_power(high, spread, difference, alpha):
        return None
    while low < high:
        candidate = (low + high) // 2
        low, high = (low, candidate) if _has_power(candidate, spread, difference, alpha) else (candidate + 1, high)
    return low


def _has_power(count: int, spread: float, difference: float, alpha: float) -> bool:
    bound = t_isf(alpha / 2, count - 1) + t_isf(1 - _POWER, count - 1)
    return bound * spread <= difference * math.sqrt(count)


def _case_worth(suite: SuiteScores, case: int, means: _Floats, difference: float) -> CaseWorth:
    column = [row[case] for row in suite.scores]
    noise = seed_noise(column)
    counts = np.array([len(cell) for cell in column], np.float64)
    total_variance = float(np.var(means[:, case], ddof=1))
    variance_of_means = noise**2 * float(np.mean(1.0 / counts))
    signal = math.sqrt(max(0.0, total_variance - (0.0 if math.isnan(noise) else variance_of_means)))
    degrees = (len(means) - 1) * (float(counts.min()) - 1)
    p_value = math.nan
    if degrees > 0 and variance_of_means > 0:
        p_value = float(fdtrc(len(means) - 1, degrees, total_variance / variance_of_means))
    elif degrees > 0:
        p_value = 0.0 if total_variance > 0 else 1.0
    return CaseWorth(
        name=suite.cases[case],
        signal=signal,
        noise=noise,
        p_value=p_value,
        correlation=_correlation(means[:, case], np.delete(means, case, axis=1).mean(axis=1)),
        seconds=suite.seconds[case],
        num_seeds=seeds_needed(noise, difference),
    )


def _correlation(first_values: _Floats, second_values: _Floats) -> float:
    first_values = first_values - first_values.mean()
    second_values = second_values - second_values.mean()
    size = math.sqrt(float(first_values @ first_values) * float(second_values @ second_values))
    return float(first_values @ second_values) / size if size > 0 else math.nan


def _correlations(columns: _Floats, vector: _Floats) -> _Floats:
    """Returns the correlation of each column with a vector, float64[n]; 0 if either is constant."""
    columns = columns - columns.mean(axis=0)
    vector = vector - vector.mean()
    sizes = np.sqrt((columns**2).sum(axis=0) * (vector @ vector))
    return np.where(sizes > 0, (columns.T @ vector) / np.where(sizes > 0, sizes, 1.0), 0.0)


def _rank_correlations(columns: _Floats, vector: _Floats) -> _Floats:
    """Returns Spearman's correlation of each column with a vector, float64[n]."""
    return _correlations(ranks_of(columns.T).T, ranks_of(vector))


def choose_subsets(means: _Floats, seconds: _Floats | None = None, *, num_splits: int) -> tuple[Subset, ...]:
    """Chooses subsets of each size on half of the methods and judges them on the other half, for each split.

    Args:
      means: float64[num_methods, num_cases], mean scores.
      seconds: float64[num_cases], seconds of one seed. None: all cases cost the same.
      num_splits: Number of splits.
    """
    seconds = np.ones(means.shape[1]) if seconds is None else seconds
    rng = np.random.default_rng(0)
    half = len(means) // 2
    correlations_of_splits = []
    for _ in range(num_splits):
        method_order = rng.permutation(len(means))
        case_order = _greedy_order(means[method_order[:half]])
        other_means = means[method_order[half:]]
        correlations_of_splits.append(
            _rank_correlations(_running_means(other_means[:, case_order]), other_means.mean(axis=1))
        )
    correlations = np.array(correlations_of_splits)
    case_order = _greedy_order(means)
    intervals = [_split_interval(correlations[:, size], len(means)) for size in range(len(case_order) - 1)]
    intervals.append((1.0, 1.0))  # all cases agree with themselves by definition
    return tuple(
        Subset(
            cases=tuple(case_order[: size + 1]),
            rank_correlation=float(correlations[:, size].mean()),
            lower=intervals[size][0],
            upper=intervals[size][1],
            share_of_cost=float(seconds[case_order[: size + 1]].sum() / seconds.sum()),
        )
        for size in range(len(case_order))
    )


def _split_interval(correlations: _Floats, num_methods: int) -> tuple[float, float]:
    """Returns the bounds of the middle 95% of the splits; NaN if they would not hold for a new method."""
    lower, upper = (float(bound) for bound in np.quantile(correlations, [0.025, 0.975]))
    if num_methods < LEAST_FOR_INTERVAL or not upper > lower:
        return math.nan, math.nan
    return lower, upper


def _greedy_order(means: _Floats) -> list[int]:
    """Returns the order in which a greedy search adds cases to keep the order of methods best.

    Ties are broken by the correlation of the means with the means over all cases.
    """
    overall_means = means.mean(axis=1)
    remaining_cases = list(range(means.shape[1]))
    case_order = list[int]()
    while remaining_cases:
        means_of_candidates = (means[:, case_order].sum(axis=1, keepdims=True) + means[:, remaining_cases]) / (
            len(case_order) + 1
        )
        rank_correlations = _rank_correlations(means_of_candidates, overall_means).round(9)
        correlations = _correlations(means_of_candidates, overall_means)
        case_order.append(remaining_cases.pop(int(np.lexsort((correlations, rank_correlations))[-1])))
    return case_order


def _running_means(columns: _Floats) -> _Floats:
    """Returns the means of the first column, the first two columns, and so on."""
    return columns.cumsum(axis=1) / np.arange(1, columns.shape[1] + 1)
