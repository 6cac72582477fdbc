"""Mean scores of subjects, and a ranking of checkpoints by them.

This module does not use `scipy.stats`, because its import takes longer than printing a history.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import DIVERGED_SCORE
from lobench.analysis.stats.aggregates import iqm_interval
from lobench.analysis.stats.intervals import Interval, common_seeds_of, grouped_t_mean, without_equal_pairs
from lobench.analysis.stats.proportions import most_share
from lobench.analysis.store.case_groups import case_groups
from lobench.analysis.store.subjects import Cell, StoredSubject
from lobench.core.result import mean_of

__all__ = ["MeanScore", "RankedSubject", "mean_score", "rank_subjects"]


@dataclass(frozen=True, kw_only=True)
class MeanScore:
    """Mean over cases of the mean over seeds of one subject's scores.

    Attributes:
      scores: Score of each seed, by identity of the case. Contains the cases in the mean only.
      num_missing: Number of cases without a curve or a scale, which are not in the mean.
      metric: Name of the metric. None: the primary metric of each case.
      cells: Cells by identity of the case, including cases without scores. They determine the groups of cases.
      scales: Scales of the cases, for the rounding of values that agree on all seeds. None: values are not rounded.
    """

    scores: Mapping[str, Mapping[int, float]]
    num_missing: int
    metric: str | None = None
    cells: Mapping[str, Cell] = field(default_factory=dict, repr=False)
    scales: Scales | None = field(default=None, repr=False, compare=False)

    @property
    def num_diverged(self) -> int:
        """Number of diverged seeds. Each of them scores -1."""
        return sum(len(cell.diverged_at) for cell in self.cells.values())

    @functools.cached_property
    def has_surviving_seed(self) -> bool:
        """Whether any seed in the mean neither diverged nor exploded. Without one, the subject cannot be the best."""
        cells = (self.cells[case] for case in self.scores)
        return any(cell.surviving_seeds(self.metric or cell.case.primary_metric) for cell in cells)

    @property
    def survived_cases(self) -> set[str]:
        """Cases on which a seed neither diverged nor exploded."""
        return {
            case
            for case in self.scores
            if self.cells[case].surviving_seeds(self.metric or self.cells[case].case.primary_metric)
        }

    @property
    def num_cases(self) -> int:
        return len(self.scores)

    @functools.cached_property
    def mean(self) -> float:
        """The value of `interval.mean`, computed without the interval, which takes longer."""
        return mean_of([mean_of(seeds) for seeds in self._scores_by_case()]) if self.scores else math.nan

    @functools.cached_property
    def interval(self) -> Interval:
        """The mean with its 95% bounds. NaN bounds if a case has one seed, or all have two without spread."""
        if not self.scores:
            return Interval()
        least_variances = [self._least_variance(case) for case in self.scores]
        have_items = {index for index, case in enumerate(self.scores) if self.cells[case].case.has_items}
        interval = grouped_t_mean(
            list(self.scores.values()),
            self._indices_of_groups,
            least=least_variances if any(least_variances) else (),
            have_items=have_items,
        )
        return without_equal_pairs(interval, max(map(len, self.scores.values())))

    def _least_variance(self, case: str) -> float:
        """Returns the least variance of a seed's score on a case: that of rounding if all seeds agree, else 0."""
        if self.scales is None or len(set(self.scores[case].values())) > 1:
            return 0.0
        return self.scales.least_variance(self.cells[case], self.metric)

    @functools.cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Identities of the cases in the mean, by group. Cases of one group share the randomness of their seeds."""
        return case_groups([self.cells], list(self.scores))

    @property
    def _indices_of_groups(self) -> list[list[int]]:
        index_by_case = {case: index for index, case in enumerate(self.scores)}
        return [[index_by_case[case] for case in group] for group in self.groups]

    def interquartile_mean(self) -> Interval:
        """Returns the mean of the middle half of all seeds of all cases.

        Seeds of a group are resampled together. If cases of a group have only some items in common, each is resampled
        alone. The interval is then widened by the same factor as the interval of the mean, relative to independent
        cases.
        """
        if not self.scores:
            return Interval()
        seeds_of_case = dict[str, list[int]]()
        indices_of_groups = list[list[int]]()
        is_complete = True
        for group, members in zip(self.groups, self._indices_of_groups, strict=True):
            seeds = common_seeds_of([self.scores[case] for case in group])
            if self.cells[group[0]].case.has_items and any(len(self.scores[case]) > len(seeds) for case in group):
                seeds_of_case |= {case: sorted(self.scores[case]) for case in group}
                indices_of_groups += [[index] for index in members]
                is_complete = False
            else:
                seeds_of_case |= dict.fromkeys(group, seeds)
                indices_of_groups.append(members)
        cells = [[scores[seed] for seed in seeds_of_case[case]] for case, scores in self.scores.items()]
        if not all(cells):
            return Interval()
        interval = iqm_interval(cells, groups=indices_of_groups)
        if not is_complete and interval.upper > interval.lower:
            interval_of_items = grouped_t_mean(list(self.scores.values()), indices_of_groups)
            factor = (self.interval.upper - self.interval.lower) / (interval_of_items.upper - interval_of_items.lower)
            lower, upper = (
                interval.mean + factor * (bound - interval.mean) for bound in (interval.lower, interval.upper)
            )
            return dataclasses.replace(interval, lower=lower, upper=upper)
        if interval.upper > interval.lower:
            return interval
        # If all draws are equal, the interval is as wide as the mean's, which is due to rounding if all seeds agree.
        half_width = (self.interval.upper - self.interval.lower) / 2
        return dataclasses.replace(interval, lower=interval.mean - half_width, upper=interval.mean + half_width)

    def _scores_by_case(self) -> list[list[float]]:
        return [list(scores.values()) for scores in self.scores.values()]

    def over_cases(self, cases: Collection[str]) -> MeanScore:
        """Returns the mean over some of the cases. The other cases count as missing."""
        scores_of_cases = {case: scores for case, scores in self.scores.items() if case in cases}
        if len(scores_of_cases) == len(self.scores):
            return self
        return dataclasses.replace(
            self, scores=scores_of_cases, num_missing=self.num_missing + len(self.scores) - len(scores_of_cases)
        )


def mean_score(
    subject: StoredSubject, metric: str | None, scales: Scales, cases: Iterable[str] | None = None
) -> MeanScore:
    """Returns the headline score of a subject.

    Args:
      subject: The subject.
      metric: Name of the metric. None: the primary metric of each case.
      scales: Scales of the cases.
      cases: Identities of the cases that should be in the mean. None: those of the subject.
    """
    scores_by_case = {identity: scales.scores(cell, metric) for identity, cell in subject.cells.items()}
    finite_scores = {
        key: scores for key, scores in scores_by_case.items() if scores and all(map(math.isfinite, scores.values()))
    }
    return MeanScore(
        scores=finite_scores,
        num_missing=len({*(subject.cells if cases is None else cases)} - finite_scores.keys()),
        metric=metric,
        cells=subject.cells,
        scales=scales,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedSubject:
    """A checkpoint with its mean score.

    Attributes:
      subject: The checkpoint's subject.
      score: Mean over the cases that have a scale, as in all headlines. A diverged seed scores -1.
      ranking_value: Value for ranking: the same mean, but a seed without a result scores -1 too. NaN if all seeds
        diverged or exploded.
      num_cases: Number of cases in the mean.
      num_diverged: Number of diverged seeds.
      num_exploded: Number of other seeds that ended above twice their start.
      num_lost: Number of seeds without a result.
    """

    subject: StoredSubject
    score: Interval
    ranking_value: float
    num_cases: int
    num_diverged: int
    num_exploded: int
    num_lost: int

    def lost_seeds(self) -> tuple[int, int, float]:
        """Returns the number of lost seeds, the number of all seeds, and an upper bound of the share of lost seeds.

        A seed is lost if it diverged or exploded on any case. The bound is one-sided, at 95%. It is needed because the
        interval of the score does not account for losses that did not occur: even if none of a few seeds is lost, many
        seeds of a larger sample may be.
        """
        cells = self.subject.cells.values()
        all_seeds = set[int]().union(*(cell.seeds for cell in cells))
        unconverged_seeds = set[int]().union(*(cell.diverged_seeds | cell.exploded_seeds for cell in cells))
        return len(unconverged_seeds), len(all_seeds), most_share(len(unconverged_seeds), len(all_seeds), 0.05)


def rank_subjects(subjects: Sequence[StoredSubject], metric: str | None, scales: Scales) -> list[RankedSubject]:
    """Returns the subjects with the largest number of evaluated cases, best first. A repeated theta counts once.

    Args:
      subjects: Subjects of checkpoints.
      metric: Name of the metric. None: the primary metric of each case.
      scales: Scales of the cases. A case without a usable scale is in no mean.
    """
    max_cases = max((len(subject.cells) for subject in subjects), default=0)
    last_subjects = {subject.checkpoint.sha256: subject for subject in subjects if len(subject.cells) == max_cases}
    ranking = [_rank_subject(subject, metric, scales) for subject in last_subjects.values()]
    return sorted(
        ranking, key=lambda ranked_subject: (math.isnan(ranked_subject.ranking_value), -ranked_subject.ranking_value)
    )


def _rank_subject(subject: StoredSubject, metric: str | None, scales: Scales) -> RankedSubject:
    score = mean_score(subject, metric, scales)
    means = []
    for identity, cell in subject.cells.items():
        scale = scales.scale(cell.case, metric or cell.case.primary_metric)
        values = [*score.scores.get(identity, {}).values(), *[DIVERGED_SCORE] * len(cell.missing_seeds)]
        if values and scale.is_usable:
            means.append(mean_of(values))
    return RankedSubject(
        subject=subject,
        score=score.interval,
        ranking_value=mean_of(means) if means and score.has_surviving_seed else math.nan,
        num_cases=score.num_cases,
        num_diverged=score.num_diverged,
        num_exploded=subject.num_exploded,
        num_lost=subject.num_missing,
    )
