"""Summary of a store: mean scores, differences, comparisons and speed-ups, each with the results that it excludes."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lobench.analysis.comparisons.paired_values import PairedValues, paired_values
from lobench.analysis.scores.baseline_file import BaselineCase
from lobench.analysis.scores.mean_scores import MeanScore, mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.aggregates import iqm_interval, probability_of_improvement_interval
from lobench.analysis.stats.comparison import CaseEffect, Effect, PairComparison, compare_cases
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.speedup import SMOOTHING_WINDOW, BaselineCurve, Speedup, SpeedupReference, speedup
from lobench.analysis.store.case_groups import CaseDesign, case_groups
from lobench.analysis.store.methods import read_methods
from lobench.analysis.store.snapshot import Snapshot, read_store
from lobench.analysis.store.subjects import Cell, StoredSubject, headline_metrics
from lobench.core.case import HEADLINES, ROLES, CaseInfo
from lobench.core.errors import LobenchError
from lobench.core.result import mean_of
from lobench.core.wording import counted, groups_text
from lobench.engine.store.current import place_of_case

if TYPE_CHECKING:
    from lobench.analysis.comparisons.race import RaceResult


__all__ = [
    "CaseFinding",
    "Summary",
    "improvement_note",
    "improvement_probability",
    "is_changed",
    "paired_differences",
    "summary_of",
    "summary_of_methods",
    "undecided_words",
]


def improvement_probability(
    a: StoredSubject, b: StoredSubject, metric: str | None, scales: Scales, design: CaseDesign = "by design"
) -> Interval:
    """Returns P(better), the probability that a seed of B ends better than a seed of A, averaged over common cases.

    It compares unclipped final values, so it needs no scale. A diverged seed is worse than any other.

    Args:
      a, b: The subjects.
      metric: Name of the metric. None: the primary metric of each case.
      scales: Scales of the cases, which have the directions of the metrics.
      design: Rule by which cases are grouped.
    """
    ranks_of_b = []
    ranks_of_a = []
    cases = list[str]()
    common_cases = (
        identity for identity, cell in a.cells.items() if identity in b.cells and not cell.case.has_only_outcome
    )
    for identity in common_cases:
        x, y = (scales.ordering_values(subject.cells[identity], metric) for subject in (b, a))
        if x and y:
            ranks = np.unique([*x, *y], return_inverse=True)[1].tolist()  # ranks are finite also for diverged seeds
            ranks_of_b.append(ranks[: len(x)])
            ranks_of_a.append(ranks[len(x) :])
            cases.append(identity)
    if not ranks_of_b:
        return Interval()
    groups = case_groups([a.cells, b.cells], cases, design)
    indices_of_groups = [[cases.index(case) for case in group] for group in groups]
    return probability_of_improvement_interval(ranks_of_b, ranks_of_a, groups=indices_of_groups)


def improvement_note(comparison: PairComparison, interval: Interval) -> str:
    """Returns a note if P(better) shows a difference that the mean of the scores does not; else "".

    The two may disagree because a few seeds can determine a mean.
    """
    if interval.lower > 0.5 and comparison.verdict is not Effect.BETTER:
        return f"better on more seeds than not, P = {interval.mean:.2f}"
    if interval.upper < 0.5 and comparison.verdict is not Effect.WORSE:
        return f"worse on more seeds than not, P = {interval.mean:.2f}"
    return ""


def undecided_words(comparison: PairComparison, seeds: str) -> str:
    """Returns the words for an undecided verdict, given the text of `improvement_note`."""
    if comparison.is_capped:
        return "undecided, as planned seeds gave no result"
    return "no difference of the score is shown" if seeds else "no difference is shown"


def paired_differences(
    a: StoredSubject, b: StoredSubject, metric: str | None, scales: Scales
) -> dict[str, PairedValues]:
    """Returns the values by which B is compared with A, by identity of the case; see `paired_values`.

    A case that only one side was evaluated on, or whose evaluation gave no curves, is included without common seeds.
    A case is left out if neither side has the metric, or if it was changed between the evaluations of the two sides.
    Tests without metrics are left out too; `outcomes_of_tests` has their outcomes.

    Args:
      a, b: The subjects.
      metric: Name of the metric. None: the primary metric of each case.
      scales: Scales of the cases.
    """
    values_by_case: dict[str, PairedValues] = {}
    for identity in {**a.cells, **b.cells}:
        if is_changed(identity, a, b):
            continue
        cell_pair = [subject.cells.get(identity) for subject in (a, b)]
        present_cells = [cell for cell in cell_pair if cell is not None]
        if any(cell.case.has_only_outcome for cell in present_cells):
            continue
        if any(
            cell.num_lost_by_outcome or cell.final_values.get(metric or cell.case.primary_metric)
            for cell in present_cells
        ):
            values_by_case[identity] = paired_values(cell_pair[0], cell_pair[1], metric, scales)
    return values_by_case


def is_changed(identity: str, a: StoredSubject, b: StoredSubject) -> bool:
    """Returns whether only one side has a case, and the other side has another form of it."""
    subject_and_other = (a, b) if identity in a.cells else (b, a)
    if identity in subject_and_other[1].cells:
        return False
    case_place = place_of_case(subject_and_other[0].cells[identity].case)
    return any(place_of_case(cell.case) == case_place for cell in subject_and_other[1].all_cells().values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFinding:
    """Results of one subject on one case.

    Attributes:
      case_index: Index of the case in the snapshot.
      final_means: Seed mean of the final value, by metric.
      scores: Mean score by metric of the headline, with Student's interval over the seeds.
      num_seeds, num_diverged, num_exploded: Numbers of seeds.
      best_single, envelope: Speed-ups over the tuned baseline. None without a tuned baseline.
      effect: Difference from the reference subject. None for a single subject.
    """

    case_index: int
    final_means: dict[str, float]
    scores: dict[str, Interval]
    num_seeds: int
    num_diverged: int
    num_exploded: int
    best_single: Speedup | None
    envelope: Speedup | None
    effect: CaseEffect | None


class Summary:
    """Summary of a store: the headlines' subject, compared with the first subject and with tuned baselines.

    Subjects and cases are given by their indices in the snapshot. The metric `primary` is the primary metric of each
    case.

    Args:
      snapshot: Content of the store.
      scales: Scales of the cases.
      compared: Subjects that are compared. Their mean scores are over the cases that all of them have, so that no
        subject is best because it lacks a hard case. A subject without any score does not restrict the cases. None: all
        subjects, if they contain no run.

    >>> from lobench.analysis.comparisons.summary import summary_of
    >>> summary_of(Path("results")).snapshot.labels
    ('adam()', 'sgd()')
    """

    def __init__(self, snapshot: Snapshot, scales: Scales, compared: Collection[int] | None = None) -> None:
        self.snapshot, self.scales = snapshot, scales
        self.compared = frozenset(() if snapshot.groups.runs else range(len(snapshot.subjects)))
        self.compared = self.compared if compared is None else frozenset(compared)
        self._own_means: dict[tuple[int, str], MeanScore] = {}  # by the `id` of the subject, and the metric
        self._mean_cache: dict[tuple[int, str, str], MeanScore] = {}  # by index, metric and suite
        self._common_cases: dict[str, frozenset[str]] = {}
        labels = [label for label, _ in headline_metrics(snapshot.subjects)] if snapshot.subjects else []
        primary = {case.primary_metric for case in snapshot.cases}
        # Train and test loss next to each other. The train column shows the primary metric if that is another one.
        has_test = "test/loss" in labels and primary != {"test/loss"}
        self.metrics = ("primary", *(("test/loss",) if has_test else ()))

    def for_part(self, snapshot: Snapshot) -> Summary:
        """Returns the summary of a part of its subjects. Scores computed for one of the two are reused by the other."""
        summary = Summary(snapshot, self.scales)
        summary._own_means = self._own_means
        return summary

    def for_later(self, snapshot: Snapshot) -> Summary:
        """Returns the summary of some subjects of a later reading, on the scales of this one.

        Scores of subjects that are the same objects are reused. Scores of other subjects are not cached, because the
        cache has keys by `id`, and another object may get the same `id` later.
        """
        summary = Summary(snapshot, self.scales)
        summary._own_means = dict(self._own_means)
        return summary

    @functools.cached_property
    def headline_index(self) -> int:
        """Index of the headlines' subject: the best method, ranked as in the table of methods.

        For runs it is `Snapshot.headline_index`, the last checkpoint, even if optimizers were evaluated with the run.
        """
        if not self.snapshot.subjects:
            return 0
        means = {} if self.has_checkpoints else self.ranked_means
        return max(means, key=lambda index: means[index], default=self.snapshot.headline_index)

    @functools.cached_property
    def ranked_means(self) -> dict[int, float]:
        """Mean scores of the methods among which the best is chosen, by the indices of their subjects."""
        subjects = self.snapshot.subjects
        means = {index: self.mean_score(index, "primary") for index in range(len(subjects))}
        scored_indices = [
            index
            for index, score in means.items()
            if not math.isnan(score.mean) and score.has_surviving_seed and index not in self.out_of_race
        ]
        scored_indices = [
            index for index in scored_indices if not subjects[index].lacks_seeds(subjects)
        ] or scored_indices
        return {index: means[index].mean for index in scored_indices}

    @property
    def has_checkpoints(self) -> bool:
        """Whether there are checkpoints, which have an order, and not only methods."""
        return not self.snapshot.experiment.method_names and any(
            subject.subject.has_theta for subject in self.snapshot.subjects
        )

    @functools.cached_property
    def reference_index(self) -> int:
        """Index of the subject with which the headline subject is compared.

        For a checkpoint it is the first checkpoint of its run. For a method it is the first other method, or the
        headline method itself if there is no other.
        """
        if run := self.snapshot.groups.run_of(self.headline_index):
            return run[0]
        return 1 if self.headline_index == 0 and len(self.snapshot.subjects) > 1 and not self.has_checkpoints else 0

    @property
    def baseline_label(self) -> str:
        """Name of the baseline that scores 1; "" if it serves no case."""
        return self.scales.baseline_label

    @property
    def scale_label(self) -> str:
        none = ""
        if not self.scales.baselines.baseline_by_case:
            none = " (no baseline fits)" if self.scales.baselines.problems else " (no baseline found)"
        return f"0 is {self.scales.zero_text}, 1 is {self.scales.one_text}{none}"

    def metric_of(self, case_index: int, metric: str) -> str:
        return self.snapshot.cases[case_index].primary_metric if metric == "primary" else metric

    def metric_label(self, metric: str) -> str:
        names = sorted({self.metric_of(case, metric) for case in range(len(self.snapshot.cases))})
        return names[0] if len(names) == 1 else "primary metric"

    def case_baseline(self, case_index: int) -> BaselineCase | None:
        return self.scales.baselines.baseline_by_case.get(self.snapshot.cases[case_index].identity)

    def mean_score(self, subject_index: int, metric: str, suite: str = "") -> MeanScore:
        """Returns a subject's mean score over the cases of a suite, or over all."""
        key = (subject_index, metric, suite)
        if key not in self._mean_cache:
            mean = self._own_mean(subject_index, metric)
            mean = mean.over_cases(self.common_cases(metric)) if subject_index in self.compared else mean
            self._mean_cache[key] = mean.over_cases(self.cases_of(suite)) if suite else mean
        return self._mean_cache[key]

    def cases_of(self, suite: str) -> frozenset[str]:
        """Returns the identities of a suite's cases."""
        return frozenset(case.identity for case in self.snapshot.cases if case.suite == suite)

    def _own_mean(self, subject_index: int, metric: str) -> MeanScore:
        stored_subject = self.snapshot.subjects[subject_index]
        key = (id(stored_subject), metric)
        if key not in self._own_means:
            cases = [case.identity for case in self.snapshot.cases]
            self._own_means[key] = mean_score(stored_subject, _metric_or_none(metric), self.scales, cases)
        return self._own_means[key]

    def own_scores(self, subject_index: int, metric: str) -> Mapping[str, Mapping[int, float]]:
        """Returns a subject's scores by case and seed, on all its cases, whatever the other subjects have."""
        return self._own_mean(subject_index, metric).scores

    def common_cases(self, metric: str) -> frozenset[str]:
        """Returns the cases on which all compared subjects have a score."""
        if metric not in self._common_cases:
            cases_by_subject = [frozenset(self._own_mean(index, metric).scores) for index in self.compared]
            self._common_cases[metric] = functools.reduce(
                frozenset.intersection, filter(None, cases_by_subject), frozenset().union(*cases_by_subject)
            )
        return self._common_cases[metric]

    def omitted_cases(self, metric: str) -> dict[str, list[str]]:
        """Returns the cases that compared means leave out, by name, with the labels of the subjects that lack them."""
        scores_by_subject = {index: self._own_mean(index, metric).scores for index in sorted(self.compared)}
        scores_by_subject = {index: scores for index, scores in scores_by_subject.items() if scores}
        return {
            self.snapshot.case_names[case.identity]: [
                self.snapshot.labels[index]
                for index, scores in scores_by_subject.items()
                if case.identity not in scores
            ]
            for case in self.snapshot.cases
            if case.identity not in self.common_cases(metric)
            and any(case.identity in scores for scores in scores_by_subject.values())
        }

    def groups_note(self, metric: str) -> str:
        """Returns a note on the groups of cases in the compared means; "" if each case is its own group."""
        cases = [case.identity for case in self.snapshot.cases if case.identity in self.common_cases(metric)]
        groups = case_groups([self.snapshot.subjects[index].cells for index in sorted(self.compared)], cases)
        return groups_text([[self.snapshot.case_names[case] for case in group] for group in groups])

    def common_cases_text(self, metric: str, *, with_names: bool = True) -> str:
        """Returns the cases in the compared means, and the subjects that lack other cases; "" if none lacks any."""
        missing = self.omitted_cases(metric)
        num_common = len(self.common_cases(metric))
        lacking_subjects = "; ".join(f"{case}: not of {', '.join(labels)}" for case, labels in sorted(missing.items()))
        text = f"the {num_common} of {counted(len(self.snapshot.cases), 'case')} that all methods have"
        return (f"{text} ({lacking_subjects})" if with_names else text) if missing else ""

    def scores_by_role(self, metric: str) -> dict[str, tuple[Interval, int]]:
        """Returns the headline subject's mean score and number of cases, for each role that its suites declare."""
        cells = self.snapshot.subjects[self.headline_index].cells
        overall_score = self.mean_score(self.headline_index, metric)
        identities_by_role: dict[str, list[str]] = {}
        for identity in overall_score.scores:
            identities_by_role.setdefault(cells[identity].case.role, []).append(identity)
        return {
            role: (overall_score.over_cases(identities_by_role[role]).interval, len(identities_by_role[role]))
            for role in ROLES
            if role in identities_by_role
        }

    @property
    def headline(self) -> str:
        """Headline of reports, as set by the suites; "score" if they differ."""
        headlines = {case.headline for case in self.snapshot.cases}
        return headlines.pop() if len(headlines) == 1 else HEADLINES[0]

    def has_smooth_envelope(self, case_index: int) -> bool:
        """Returns whether a case has a baseline whose budget covers at least one smoothing window of its envelope."""
        baseline = self.case_baseline(case_index)
        return (
            baseline is not None
            and baseline.training.num_inner_steps >= SMOOTHING_WINDOW * baseline.training.eval_every
        )

    def speedups(self) -> tuple[Interval, int, int]:
        """Returns VeLO's headline number of the headline subject: its speed-up over the envelope.

        Returns:
          The interquartile mean over cases and seeds, with its interval; the number of cases; and the number of seeds
          whose speed-up is only a lower bound, because they ended below the lowest value of the envelope. A diverged
          seed has a speed-up of 0.
        """
        speedups_by_case = list[list[float]]()
        cases = list[str]()
        cells = self.snapshot.subjects[self.headline_index].cells
        num_censored = 0
        for case in range(len(self.snapshot.cases)):
            cell = self.snapshot.cell(self.headline_index, case)
            baseline = self.case_baseline(case)
            if cell is None or baseline is None or "train/loss" not in cell.final_values:
                continue
            speedups = [_speedup_over_envelope(final, baseline) for final in cell.final_values["train/loss"].values()]
            speedups_by_case.append(
                [0.0 if math.isnan(seed_speedup.value) else seed_speedup.value for seed_speedup in speedups]
            )
            cases.append(self.snapshot.cases[case].identity)
            num_censored += sum(seed_speedup.censored for seed_speedup in speedups)
        if not speedups_by_case:
            return Interval(), 0, num_censored
        groups = [[cases.index(case) for case in group] for group in case_groups([cells], cases)]
        are_aligned = all(len({len(speedups_by_case[index]) for index in group}) == 1 for group in groups)
        return (
            iqm_interval(speedups_by_case, groups=groups if are_aligned else None),
            len(speedups_by_case),
            num_censored,
        )

    @functools.cached_property
    def race(self) -> RaceResult | None:
        """State of the race between the snapshot's methods. None without a race, or if no case has a scale.

        It uses the baselines recorded with the evaluations, because those of this summary may have been tuned later.
        """
        if self.snapshot.experiment.race is None:
            return None
        from lobench.analysis.comparisons.race import race_result

        with contextlib.suppress(LobenchError):
            return race_result(self.snapshot.experiment.race.entrants, self.snapshot.experiment.race.rules)
        return None

    @functools.cached_property
    def out_of_race(self) -> frozenset[int]:
        """Indices of the methods that left a race. Their scores have fewer seeds than the others'."""
        exit_looks = self.race.out_at if self.race is not None else ()
        return frozenset(index for index, exit_look in enumerate(exit_looks) if exit_look is not None)

    def interquartile_mean(self, subject_index: int, metric: str) -> Interval:
        """Returns the mean of the middle half of all seeds of all cases, which is robust to outliers."""
        return self.mean_score(subject_index, metric).interquartile_mean()

    def tuned_cell(self, case: CaseInfo, metric: str) -> Cell | None:
        """Returns the final values of the tuned baseline's own seeds as a cell; None if no baseline has the metric."""
        baseline = self.scales.baselines.baseline_by_case.get(case.identity)
        if baseline is None or metric not in baseline.tuned:
            return None
        finals = dict(zip(baseline.seeds, baseline.tuned[metric], strict=True))
        return Cell(case=case, final_values={metric: finals}, untrained_values={})

    def tuned_scores(self, metric: str) -> dict[str, dict[int, float]]:
        """Returns the scores of the tuned baseline's own seeds, by identity of the case."""
        scores = {}
        for index, case in enumerate(self.snapshot.cases):
            baseline = self.case_baseline(index)
            name = self.metric_of(index, metric)
            if baseline is not None and name in baseline.tuned:
                tuned_finals = dict(zip(baseline.seeds, baseline.tuned[name], strict=True))
                scores[case.identity] = self.scales.seed_scores(case, name, tuned_finals)
        return scores

    def comparison_with_tuned(self, metric: str) -> PairComparison | None:
        """Compares the headline subject with the final values of the tuned baselines, on the baselines' own seeds.

        "Better" is above tuned. None without a case that has a baseline.
        """
        samples_by_case: dict[str, Samples] = {}
        for identity, cell in self.snapshot.subjects[self.headline_index].cells.items():
            name = _metric_or_none(metric) or cell.case.primary_metric
            tuned_cell = self.tuned_cell(cell.case, name)
            if tuned_cell is not None and name in cell.final_values:
                samples_by_case[identity] = paired_values(tuned_cell, cell, name, self.scales).samples
        return compare_cases(samples_by_case) if samples_by_case else None

    def comparison(
        self, index_a: int, index_b: int, metric: str, *, alpha: float = 0.05, suite: str = ""
    ) -> PairComparison | None:
        """Compares two subjects, paired by seed. Returns None if they share no case.

        Args:
          index_a, index_b: Indices of the subjects A and B.
          metric: Name of the metric, or "primary".
          alpha: Level of the verdicts.
          suite: Suite whose cases are compared. "": all suites.
        """
        subjects = [self.snapshot.subjects[index] for index in (index_a, index_b)]
        if not subjects[0].cells.keys() & subjects[1].cells.keys():
            return None
        values_by_case = paired_differences(subjects[0], subjects[1], _metric_or_none(metric), self.scales)
        if suite:
            cases = self.cases_of(suite)
            values_by_case = {case: values for case, values in values_by_case.items() if case in cases}
        return (
            compare_cases({case: values.samples for case, values in values_by_case.items()}, alpha=alpha)
            if values_by_case
            else None
        )

    def headline_improvement(self) -> Interval:
        """Returns the probability that a seed of the headline subject ends better than a seed of the reference."""
        first_subject, shown_subject = (
            self.snapshot.subjects[index] for index in (self.reference_index, self.headline_index)
        )
        return improvement_probability(first_subject, shown_subject, None, self.scales)

    def headline_comparison(self) -> PairComparison | None:
        """Compares the headline subject with the reference. Returns None if they are the same, or share no case."""
        return (
            None
            if self.reference_index == self.headline_index
            else self.comparison(self.reference_index, self.headline_index, "primary")
        )

    def shown_cases(self, comparison: PairComparison | None) -> list[CaseFinding]:
        """Returns the results of the headline subject on each case for which it has curves."""
        case_indices = range(len(self.snapshot.cases))
        return [
            finding
            for case in case_indices
            if (finding := self.case_finding(self.headline_index, case, comparison)) is not None
        ]

    def case_finding(
        self, subject_index: int, case_index: int, comparison: PairComparison | None
    ) -> CaseFinding | None:
        """Returns the results of a subject on a case; None if it has no curve."""
        cell = self.snapshot.cell(subject_index, case_index)
        if cell is None or not cell.seeds:
            return None
        means = {metric: self._own_mean(subject_index, metric) for metric in self.metrics}
        identity = self.snapshot.cases[case_index].identity
        effects = {effect.case: effect for effect in comparison.cases} if comparison else {}
        best_single, envelope = _speedups(cell, self.case_baseline(case_index))
        names = [self.metric_of(case_index, metric) for metric in self.metrics]
        return CaseFinding(
            case_index=case_index,
            final_means={
                name: mean_of(list(cell.finals(name).values())) for name in names if name in cell.final_values
            },
            scores={
                metric: mean.over_cases([identity]).interval
                for metric, mean in means.items()
                if identity in mean.scores
            },
            num_seeds=len(cell.seeds),
            num_diverged=len(cell.diverged_at),
            num_exploded=len(cell.exploded_seeds),
            best_single=best_single,
            envelope=envelope,
            effect=effects.get(identity),
        )

    def times_to_tuned(self, subject_indices: Sequence[int]) -> np.ndarray:
        """Returns the inner steps to the tuned baseline's final training loss: float64[num_subjects + 1, num_cases].

        The last row is the baseline's own. Steps are infinite if the loss was never reached. Cases without a baseline
        are left out.
        """
        rows: list[list[float]] = [[] for _ in range(len(subject_indices) + 1)]
        for case in range(len(self.snapshot.cases)):
            baseline = self.case_baseline(case)
            if baseline is None:
                continue
            target = baseline.tuned_mean("train/loss")
            target += 1e-5 * abs(target) + 1e-30  # means of float32 curves, so equality is up to rounding
            for row, subject in zip(rows, subject_indices, strict=False):
                cell = self.snapshot.cell(subject, case)
                if cell is None or "train/loss" not in cell.final_values:
                    row.append(math.inf)
                    continue
                row.append(_first_step_at(cell.mean_curve("train/loss"), cell.steps, target))
            rows[-1].append(_first_step_at(baseline.curves.means["train/loss"], baseline.curves.steps, target))
        return np.asarray(rows, np.float64)


def summary_of(store: Path, baselines: Sequence[Path] | None = None, *, snapshot: Snapshot | None = None) -> Summary:
    """Reads a store, which may be in use, and the baselines of its cases.

    Args:
      store: Folder of the store.
      baselines: Suites, or baseline files, as in `Scales.of`.
      snapshot: Content that was read before, such as a part of the store. None: reads all of it.

    Raises:
      StoreError: The folder is not a store.
      BaselineError: A baseline file cannot be read.
    """
    snapshot = snapshot or read_store(store, summarized=True)
    return Summary(snapshot, Scales.of_snapshot(snapshot, baselines))


def summary_of_methods(store: Path, experiment: str | None = None, *, include_all: bool = False) -> Summary:
    """Reads the methods of an experiment, or of the whole store, for tables and rankings, without curves.

    Args:
      store: Folder of the store.
      experiment, include_all: As in `read_methods`.

    Raises:
      StoreError: The folder is not a store.
      BaselineError: A baseline file cannot be read.
      UsageError: The store lacks the experiment.
    """
    return summary_of(store, snapshot=read_methods(store, experiment, include_all=include_all, summarized=True))


def _metric_or_none(metric: str) -> str | None:
    return None if metric == "primary" else metric


def _speedups(cell: Cell, baseline: BaselineCase | None) -> tuple[Speedup | None, Speedup | None]:
    if baseline is None or "train/loss" not in cell.final_values:
        return None, None
    final = mean_of(list(cell.final_values["train/loss"].values()))
    best = _baseline_curve(baseline.curves.steps, baseline.curves.means["train/loss"], SpeedupReference.BEST_SINGLE)
    return speedup(final, baseline.training.num_inner_steps, best), _speedup_over_envelope(final, baseline)


def _speedup_over_envelope(final: float, baseline: BaselineCase) -> Speedup:
    curve = _baseline_curve(baseline.envelope_steps, baseline.curves.envelope, SpeedupReference.ENVELOPE)
    return speedup(final, baseline.training.num_inner_steps, curve)


def _baseline_curve(steps: np.ndarray, losses: np.ndarray, form: SpeedupReference) -> BaselineCurve:
    running = np.fmin.accumulate(np.asarray(losses, np.float64))
    return BaselineCurve(steps=np.asarray(steps, np.float64), losses=running, form=form)


def _first_step_at(curve: np.ndarray, steps: np.ndarray, target: float) -> float:
    has_reached = np.asarray(curve) <= target
    return float(max(steps[int(has_reached.argmax())], 1)) if has_reached.any() else math.inf
