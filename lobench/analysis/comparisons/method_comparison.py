"""Comparison of B with A over common cases and seeds: effects by metric, and the gate's verdict on each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from lobench.analysis.comparisons.gate_looks import decide_gate
from lobench.analysis.comparisons.gates import GateReport, GateResult, GateRules, Verdict
from lobench.analysis.comparisons.ordinary_tests import OutcomesOfTests, outcomes_of_tests
from lobench.analysis.comparisons.paired_values import PairedValues, samples_of_values, untestable_samples
from lobench.analysis.comparisons.summary import improvement_probability, is_changed, paired_differences
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import (
    SIGNED_LOSS_ADVICE,
    are_log_ratios,
    are_uninformative,
    uninformative_seeds_note,
)
from lobench.analysis.stats.comparison import (
    Effect,
    MeanDifference,
    PairComparison,
    compare_cases,
    effect_words,
    simultaneous_differences,
)
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.store.case_groups import CaseDesign, has_label_seeds, regrouped
from lobench.analysis.store.snapshot import case_names
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, StoredSubject, are_common, headline_metrics
from lobench.core.case import PASSED, CaseInfo, common_replicate_noun
from lobench.core.errors import UsageError
from lobench.core.metric import Direction, UnknownDirection, stored_spelling, unknown_metric
from lobench.core.wording import counted

__all__ = [
    "UNPAIRED_NOTES",
    "FirstDifferences",
    "LossRatio",
    "MethodComparison",
    "MetricEffect",
    "compare_subjects",
    "first_differences",
    "one_sided_defaults",
]


FirstDifferences: TypeAlias = Mapping[str, float]  # by identity of the case; infinite if all bits are equal
_Groups: TypeAlias = tuple[tuple[str, ...], ...]  # names or identities of cases


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRatio:
    """Ratio of B's losses to A's on a case.

    Attributes:
      interval: Mean of B's losses divided by A's; see `PairedValues.ratio`. Sides without common seeds may have other
        starts: in scores, each loss is then divided by its seed's loss at step 0. It has no bounds and no mean on a
        linear scale, or if a seed is clipped.
      geometric_means: Geometric means of A's and B's losses, less the case's minimum, over the seeds of the ratio. NaN
        without a ratio.
    """

    interval: Interval
    geometric_means: tuple[float, float]

    @property
    def is_known(self) -> bool:
        return not math.isnan(self.interval.mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEffect:
    """Effect of B against A in one metric. Cases are given by their name.

    Attributes:
      metric: Name of the metric; `primary` if the cases have different primary metrics.
      comparison: Comparison of the scores.
      gate: Verdicts of the gate.
      improvement_probability: Probability that a seed of B ends better than one of A, averaged over the cases.
      num_pairs: Number of common seeds, summed over the cases.
      margins: Margin of the gate on each case.
      tolerated_ratios: Factor by which a loss may be higher within the margin. NaN on a linear scale.
      ratios: Ratio of B's losses to A's, for cases with seeds to compare.
      values: Mean difference of final values, B less A, in the metric's own unit. The bounds hold for all cases
        together.
      is_of_finals: Whether no case has scores, so that the differences are of final values.
      notes: Limits of a case's verdict, for cases with such limits.
      directions: Direction of the metric of each case. None if it is not declared.
    """

    metric: str
    comparison: PairComparison
    gate: GateReport
    improvement_probability: Interval = field(default_factory=Interval)
    num_pairs: int = 0
    margins: Mapping[str, float] = field(default_factory=dict)
    tolerated_ratios: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, LossRatio] = field(default_factory=dict)
    values: Mapping[str, MeanDifference] = field(default_factory=dict)
    is_of_finals: bool = True
    notes: Mapping[str, str] = field(default_factory=dict)
    directions: Mapping[str, Direction | None] = field(default_factory=dict)

    @property
    def has_ratios(self) -> bool:
        """Whether any case has a ratio."""
        return any(ratio.is_known for ratio in self.ratios.values())

    @property
    def improvements(self) -> dict[str, MeanDifference]:
        """Values with the sign of the scores: B is better if they are above 0.

        Cases without a direction are left out.
        """
        return {
            key: difference if self.directions[key] is Direction.MAX else _negative(difference)
            for key, difference in self.values.items()
            if self.directions[key] is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodComparison:
    """Comparison of B with A.

    Attributes:
      a, b: The subjects.
      effects: Effects in the primary metric, then in the other losses.
      cases: Cases of either side, by name.
      changed_cases: Names of cases that both sides have with different bindings. They are two cases, and are not
        compared.
      first_difference_steps: First step at which the curves of both sides differ, by name of the case.
      edge_notes: Lines on parameters of the searches that chose A or B whose best value is the smallest or largest
        tried.
      design: Rule by which cases are grouped.
      tests: Outcomes of the suites' ordinary tests, by name.
      edited_code_notes: Lines on results of A or B that other code than the user's present code made.
    """

    a: StoredSubject
    b: StoredSubject
    effects: tuple[MetricEffect, ...]
    cases: Mapping[str, CaseInfo]
    changed_cases: tuple[str, ...]
    first_difference_steps: FirstDifferences
    edge_notes: tuple[str, ...] = ()
    design: CaseDesign = "by design"
    tests: OutcomesOfTests = field(default_factory=OutcomesOfTests)
    edited_code_notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Verdict of the gate and of the tests: REGRESSED if B fails a test that A passes.

        There is no PASS if a test has no outcome, because B might fail it.
        """
        has_cases = bool(self.primary.comparison.cases)
        gate_verdict = self.primary.gate.verdict
        if self.tests.broken:
            return Verdict.REGRESSED
        if self.tests.unknown and gate_verdict is not Verdict.REGRESSED:
            return Verdict.INCONCLUSIVE
        return gate_verdict if has_cases or not self.tests.has_compared_tests else Verdict.PASS

    @property
    def compared_nothing(self) -> bool:
        """Whether no case has a common seed, and no test an outcome on both sides."""
        return self.primary.gate.compared_nothing and not self.tests.has_compared_tests

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Names of the cases in the mean of the primary metric, by group."""
        return self.primary.comparison.groups

    @property
    def has_labels(self) -> bool:
        """Whether the seeds of several cases are labels of a table, so that shared seeds cannot be inferred."""
        identities = [self.cases[case.case].identity for case in self.primary.comparison.cases]
        cells = [side.cells[case] for side in (self.a, self.b) for case in identities if case in side.cells]
        return self.design == "by design" and len(identities) > 1 and any(map(has_label_seeds, cells))

    @property
    def primary(self) -> MetricEffect:
        return self.effects[0]

    @property
    def replicate(self) -> str:
        """Noun for one of the values that are compared: "seed" or "item"; see `common_replicate_noun`."""
        return common_replicate_noun(self.cases[case.case] for case in self.primary.comparison.cases)

    @property
    def primary_metrics(self) -> dict[str, str]:
        """Metric of each compared case on which the verdict is based, by the case's identity."""
        metric = self.primary.metric
        cases = [self.cases[case.case] for case in self.primary.comparison.cases]
        return {case.identity: case.primary_metric if metric == "primary" else metric for case in cases}

    def case_name(self, identity: str) -> str:
        """Returns the name of a case."""
        return next(name for name, case in self.cases.items() if case.identity == identity)


def compare_subjects(
    subjects: Sequence[StoredSubject],
    *,
    metrics: Sequence[str] = (),
    rules: GateRules | None = None,
    scales: Scales | None = None,
    margin: float | None = None,
    design: CaseDesign = "by design",
) -> list[MethodComparison]:
    """Compares each subject with the first one.

    Args:
      subjects: The subjects, of which the first is A in each comparison.
      metrics: Names of the metrics. Empty: the primary metric and the losses of train and test.
      rules: Rules of the gate. None: the defaults.
      scales: Scales of all content of the subjects' stores. None: scales of these subjects only.
      margin: Margin of the gate on all cases. None: the default of each case's scale.
      design: Rule by which cases are grouped; see `shared_trainings`. Each seed has one value per group.

    Raises:
      UsageError: The subjects have no case in common, or none has the metric.
      UnknownDirection: The direction of a given metric is not declared.
    """
    rules = rules or GateRules()
    scales = scales or Scales.of(subjects)
    for metric in (name for requested_name in metrics for name in scales.metrics_without_direction(requested_name)):
        raise UnknownDirection(metric)
    first_subject, *other_subjects = subjects
    return [
        _compare(*_on_common_forms(first_subject, other_subject), subjects, metrics, rules, scales, margin, design)
        for other_subject in other_subjects
    ]


def _compare(
    first_subject: StoredSubject,
    other_subject: StoredSubject,
    subjects: Sequence[StoredSubject],
    metrics: Sequence[str],
    rules: GateRules,
    scales: Scales,
    margin: float | None,
    design: CaseDesign,
) -> MethodComparison:
    changed_names = _changed_cases(first_subject, other_subject)
    if not first_subject.cells.keys() & other_subject.cells.keys():
        raise UsageError(
            f"{first_subject.label} and {other_subject.label} have no case in common",
            got=f"changed between the two: {', '.join(changed_names)}"
            if changed_names
            else f"{_case_names_text(first_subject)}, and {_case_names_text(other_subject)}",
            next_step="evaluate both on the same suite" + (", in its current form" if changed_names else ""),
        )
    labels_and_metrics = _labelled_metrics([first_subject, other_subject, *subjects], metrics)
    effects = [
        _effect(first_subject, other_subject, label, metric, scales, rules, margin, design)
        for label, metric in labels_and_metrics
    ]
    tests = outcomes_of_tests(first_subject, other_subject)
    if tests.has_tests and not metrics and not any(effects):
        effects = [_empty_effect(rules)]
    if not any(effects):
        raise UsageError(
            f"neither {first_subject.label} nor {other_subject.label} has the metric",
            got=", ".join(label for label, _ in labels_and_metrics),
            expected=", ".join(sorted(first_subject.metrics() | other_subject.metrics())),
        )
    cases = {identity: cell.case for side in (first_subject, other_subject) for identity, cell in side.cells.items()}
    names = case_names(list(cases.values()))
    return MethodComparison(
        a=first_subject,
        b=other_subject,
        effects=tuple(_with_names(effect, names) for effect in effects if effect),
        cases={names[identity]: case for identity, case in cases.items()},
        changed_cases=changed_names,
        first_difference_steps={
            names[identity]: step
            for identity, step in first_differences(first_subject, other_subject).items()
            if not cases[identity].has_only_outcome
        },
        design=design,
        tests=tests.with_names(names),
    )


def _empty_effect(rules: GateRules) -> MetricEffect:
    """Returns an empty effect, for subjects that have only tests without metrics."""
    empty_result = GateResult(case="", verdict=Verdict.INCONCLUSIVE, num_seeds=0, harm=math.nan)
    comparison = PairComparison(
        cases=(),
        overall=Interval(),
        p_value=math.nan,
        p_converged=math.nan,
        p_diverged=math.nan,
        verdict=Effect.UNDECIDED,
        alpha=rules.alpha,
        num_undecidable=0,
    )
    gate = GateReport(cases=(), overall=empty_result, verdict=empty_result.verdict, rules=rules)
    return MetricEffect(metric=PASSED, comparison=comparison, gate=gate)


def _with_names(effect: MetricEffect, names: Mapping[str, str]) -> MetricEffect:
    """Returns an effect with the names of the cases in place of their identities."""
    values_by_field = {attribute.name: getattr(effect, attribute.name) for attribute in dataclasses.fields(effect)}
    renamed_fields: dict[str, Any] = {
        attribute: {names[identity]: value for identity, value in values.items()}
        for attribute, values in values_by_field.items()
        if isinstance(values, Mapping)
    }

    def with_group_names(groups: _Groups) -> _Groups:
        return tuple(tuple(names[identity] for identity in group) for group in groups)

    comparison, gate = effect.comparison, effect.gate
    return dataclasses.replace(
        effect,
        comparison=dataclasses.replace(
            comparison,
            cases=tuple(dataclasses.replace(case, case=names[case.case]) for case in comparison.cases),
            groups=with_group_names(comparison.groups),
        ),
        gate=dataclasses.replace(
            gate,
            cases=tuple(dataclasses.replace(case, case=names[case.case]) for case in gate.cases),
            groups=with_group_names(gate.groups),
        ),
        **renamed_fields,
    )


def _on_common_forms(a: StoredSubject, b: StoredSubject) -> tuple[StoredSubject, StoredSubject]:
    """Returns both subjects with the cells to compare. Former forms are compared only if no current form is common."""
    common_forms = a.all_cells().keys() & b.all_cells().keys()
    if a.cells.keys() & b.cells.keys() or not common_forms:
        return a, b
    former_a, former_b = (
        dataclasses.replace(
            subject, cells={key: cell for key, cell in subject.all_cells().items() if key in common_forms}
        )
        for subject in (a, b)
    )
    return former_a, former_b


def _case_names_text(subject: StoredSubject) -> str:
    return ", ".join(sorted(f"{cell.case.suite}/{cell.case.name}" for cell in subject.cells.values())) or "none"


def _labelled_metrics(subjects: Sequence[StoredSubject], names: Sequence[str]) -> list[tuple[str, str | None]]:
    """Returns each metric with its label. None means the primary metric of each case, if these differ."""
    stored_metrics = set().union(*(subject.metrics() for subject in subjects))
    names = list(dict.fromkeys(stored_spelling(metric, stored_metrics) for metric in names))
    for metric in names:
        if metric not in stored_metrics:
            raise unknown_metric(metric, stored_metrics)
    return [(metric, metric) for metric in names] or headline_metrics([*map(_with_metrics, subjects)])


def _with_metrics(subject: StoredSubject) -> StoredSubject:
    """Removes tests without metrics from a subject, unless it has no other cases. They are in no mean."""
    cells = {identity: cell for identity, cell in subject.cells.items() if not cell.case.has_only_outcome}
    return dataclasses.replace(subject, cells=cells) if 0 < len(cells) < len(subject.cells) else subject


def _effect(
    a: StoredSubject,
    b: StoredSubject,
    label: str,
    metric: str | None,
    scales: Scales,
    rules: GateRules,
    margin: float | None,
    design: CaseDesign,
) -> MetricEffect | None:
    values_by_case = paired_differences(a, b, metric, scales)
    if not values_by_case:
        return None
    cases = {key: (a.cells.get(key) or b.cells[key]).case for key in values_by_case}
    names = {key: metric or case.primary_metric for key, case in cases.items()}
    signed_cases = {
        key
        for key, case in cases.items()
        if scales.is_signed(case, names[key]) and not values_by_case[key].is_of_finals
    }
    margins = {key: values.scale.default_margin if margin is None else margin for key, values in values_by_case.items()}
    samples = {key: regrouped(values.samples, design) for key, values in values_by_case.items()}
    # If a loss is signed, reports use the linear scale, but a gate does not: only the suite can declare it.
    gated_samples = {
        key: untestable_samples(sample) if key in signed_cases else sample for key, sample in samples.items()
    }
    comparison = compare_cases(samples, alpha=rules.alpha)
    final_values = {
        key: final_values for key in values_by_case if (final_values := _FinalValues.of(a, b, key, names[key], scales))
    }
    effects = {effect.case: effect.paired for effect in comparison.cases}
    verdict_words = {
        effect.case: effect_words(effect.paired, effect.p_holm, rules.alpha) for effect in comparison.cases
    }
    missing_notes = {key: missing_seeds_note(a, b, key) for key in values_by_case}
    notes = {
        key: _case_note(
            finals_of_case,
            values_by_case[key],
            effects[key],
            verdict_words[key],
            key in signed_cases,
            cases[key].replicate_noun,
            bool(missing_notes[key]),
        )
        for key, finals_of_case in final_values.items()
    }
    case_notes = {
        key: (missing_notes[key], last_steps_note(a, b, key), labels_note(a, b, key)) for key in values_by_case
    }
    notes = {key: "; ".join(filter(None, (*case_notes[key], notes.get(key, "")))) for key in values_by_case}
    notes = {key: note for key, note in notes.items() if note}
    return MetricEffect(
        metric=label,
        comparison=comparison,
        gate=decide_gate(gated_samples, rules, margins),
        improvement_probability=improvement_probability(a, b, metric, scales, design),
        num_pairs=sum(len(sample) for sample in samples.values() if sample.is_paired),
        margins=margins,
        tolerated_ratios={key: values.ratio(-margins[key]) for key, values in values_by_case.items()},
        ratios={
            key: _loss_ratio(effects[key], finals_of_case, values_by_case[key])
            for key, finals_of_case in final_values.items()
        },
        values=simultaneous_differences(
            {key: finals_of_case.samples for key, finals_of_case in final_values.items()}, alpha=rules.alpha
        ),
        is_of_finals=all(values.is_of_finals for values in values_by_case.values()),
        notes=notes,
        directions={key: scales.direction(cases[key], names[key]) for key in final_values},
    )


def _negative(difference: MeanDifference) -> MeanDifference:
    return dataclasses.replace(
        difference, mean=0.0 - difference.mean, lower=0.0 - difference.upper, upper=0.0 - difference.lower
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinalValues:
    """Final values of both sides on a case. NaN if a seed diverged or exploded. Common seeds are in the same order.

    Attributes:
      values_a, values_b: Final values of A and of B.
      starts: Value at step 0 of each seed of both sides; NaN if unknown.
      num_seeds: Number of seeds of both sides, including those without a partner.
      samples: Final values in the metric's own unit, whose signs do not depend on the metric's direction.
    """

    values_a: list[float]
    values_b: list[float]
    starts: tuple[list[float], list[float]]
    num_seeds: tuple[int, int]
    samples: Samples

    @classmethod
    def of(cls, a: StoredSubject, b: StoredSubject, identity: str, metric: str, scales: Scales) -> _FinalValues | None:
        if identity not in a.cells or identity not in b.cells:
            return None
        cells = [subject.cells[identity] for subject in (a, b)]
        finals = [cell.converged_finals(metric) for cell in cells]
        samples = samples_of_values(finals[0], finals[1], *cells)
        if not len(samples):
            return None
        common_seeds = sorted(finals[0].keys() & finals[1].keys()) if samples.is_paired else None
        seeds = [common_seeds or list(finals_of_side) for finals_of_side in finals]
        starts = [scales.cell_starts(cell, metric) for cell in cells]
        values_a, values_b = (
            [finals_of_side[seed] for seed in seeds_of_side]
            for finals_of_side, seeds_of_side in zip(finals, seeds, strict=True)
        )
        starts_a, starts_b = (
            [start_values.get(seed, math.nan) for seed in seeds_of_side]
            for start_values, seeds_of_side in zip(starts, seeds, strict=True)
        )
        counts = (len(finals[0]), len(finals[1]))
        return cls(values_a=values_a, values_b=values_b, starts=(starts_a, starts_b), num_seeds=counts, samples=samples)

    def geometric_means(self, minimum: float) -> tuple[float, float]:
        """Returns the geometric mean of each side's losses less the minimum, over the seeds that converge.

        For pairs, these are the pairs in which both sides converge.
        """
        losses_of_sides = [np.asarray(self.values_a) - minimum, np.asarray(self.values_b) - minimum]
        if self.samples.is_paired:
            converged = np.isfinite(losses_of_sides[0]) & np.isfinite(losses_of_sides[1])
            losses_of_sides = [losses[converged] for losses in losses_of_sides]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = [np.log(losses[np.isfinite(losses)]) for losses in losses_of_sides]
        mean_a, mean_b = (float(np.exp(np.mean(log))) if len(log) else math.nan for log in logs)
        return mean_a, mean_b


def _loss_ratio(paired: MeanDifference, final_values: _FinalValues, values: PairedValues) -> LossRatio:
    """Returns B's mean loss divided by A's, over converged seeds. NaN if one of them is clipped."""
    scale, is_plain = values.scale, values.is_of_finals
    if not is_plain:
        values_and_starts = zip((final_values.values_a, final_values.values_b), final_values.starts, strict=True)
        is_plain = all(
            (are_log_ratios(losses, scale, starts=begins) | ~np.isfinite(losses)).all()
            for losses, begins in values_and_starts
        )
    mean, lower, upper = (
        values.ratio(value) if is_plain else math.nan for value in (paired.mean, paired.upper, paired.lower)
    )
    interval = Interval(mean=mean, lower=lower, upper=upper, degrees=math.nan)
    geometric_means = (math.nan, math.nan) if math.isnan(mean) else final_values.geometric_means(scale.minimum or 0.0)
    return LossRatio(interval=interval, geometric_means=geometric_means)


# Notes on the interval of a difference whose sides share no seed.
UNPAIRED_NOTES = {
    "welch": "no common seeds: Welch's interval",
    "permutation": "no common seeds, one side has twice as many: the wider of Welch's and a permutation interval",
}
_OWN_STARTS_NOTE = "scores and ratios are relative to each seed's value at step 0"


def _case_note(
    final_values: _FinalValues,
    values: PairedValues,
    paired: MeanDifference,
    verdict_words: str,
    is_signed: bool,
    replicate: str,
    has_lack: bool,
) -> str:
    notes = [SIGNED_LOSS_ADVICE] if is_signed else []
    num_common = len(final_values.values_a)
    scale = values.scale
    notes += [text for text in (verdict_words, values.note) if text]
    if not final_values.samples.is_paired:
        method_note = UNPAIRED_NOTES.get(paired.method, "")
        notes += [method_note, *([_OWN_STARTS_NOTE] if method_note and not values.is_of_finals else [])]
    elif (
        num_common < max(final_values.num_seeds) and not has_lack
    ):  # else `missing_seeds_note` has the number of common seeds
        notes.append("{} of {} and {}".format(counted(num_common, f"common {replicate}"), *final_values.num_seeds))
    notes += ["McNemar's exact test"] * (paired.method == "mcnemar")
    notes += filter(None, [_equality_note(values, paired, replicate)])
    if not values.is_of_finals:
        is_paired = final_values.samples.is_paired
        if is_paired and (
            num_silent := are_uninformative(
                final_values.values_a, final_values.values_b, scale, starts=final_values.starts[0]
            ).sum()
        ):
            notes.append(uninformative_seeds_note(num_silent, num_common))
        if scale.is_usable and scale.is_thin:
            notes.append("thin scale")
    return "; ".join(notes)


def _equality_note(values: PairedValues, paired: MeanDifference, replicate: str) -> str:
    """Returns a note on an interval that shows no variance, because differences are equal up to rounding; else ""."""
    samples = values.samples
    converged = samples.converged()
    if not samples.is_paired or paired.method == "mcnemar" or math.isnan(paired.lower) or converged.has_spread:
        return ""
    seeds_text = f"on all {counted(len(converged), replicate)}"
    if len(converged) < len(samples):
        seeds_text = f"on the {counted(len(converged), replicate)} that converge"
    noun = "values" if values.is_of_finals else "scores"
    if converged.a == converged.b:
        return f"equal {noun} {seeds_text}"
    if converged.are_equal:
        return f"{noun} {seeds_text} differ by rounding only"
    return f"equal differences {seeds_text}: the interval shows rounding only"


def missing_seeds_note(a: StoredSubject, b: StoredSubject, identity: str) -> str:
    """Returns a note on planned seeds of a case without a result; "" if all have one.

    Example: "theta_2.npz has 2 of 3 seeds (1 error): compared on the 2 common seeds".
    """
    labels_and_cells = [(subject.label, subject.cells[identity]) for subject in (a, b) if identity in subject.cells]
    missing_texts = [f"{label} has {_count_text(cell)}" for label, cell in labels_and_cells if cell.missing_seeds]
    if not missing_texts:
        return ""
    cells = [cell for _, cell in labels_and_cells]
    num_common = len(cells[0].curves_by_seed.keys() & cells[-1].curves_by_seed.keys()) if len(cells) == 2 else 0
    is_paired = num_common > 0 and are_common(cells[0].draws, cells[-1].draws)
    common_text = (
        f": compared on the {counted(num_common, f'common {cells[0].case.replicate_noun}')}" if is_paired else ""
    )
    return "; ".join(missing_texts) + common_text


def _count_text(cell: Cell) -> str:
    num_present = cell.num_planned - len(cell.missing_seeds)
    return f"{num_present} of {counted(cell.num_planned, 'seed')} ({cell.missing_seeds_text()})"


def labels_note(a: StoredSubject, b: StoredSubject, identity: str) -> str:
    """Returns a note if both sides have seeds of equal numbers that are only labels and thus not paired; else ""."""
    if identity not in a.cells or identity not in b.cells:
        return ""
    cells = (a.cells[identity], b.cells[identity])
    if all(cell.draws for cell in cells) or not cells[0].curves_by_seed.keys() & cells[1].curves_by_seed.keys():
        return ""
    return "seeds are not paired: imported seed numbers are only labels; `lobench import --paired-seeds` pairs them"


def last_steps_note(a: StoredSubject, b: StoredSubject, identity: str) -> str:
    """Returns a note on the last steps of a case, if they differ between seeds; "" otherwise."""
    cells = [subject.cells[identity] for subject in (a, b) if identity in subject.cells]
    last_steps = [
        sorted({step for seed, step in cell.last_step_by_seed().items() if seed not in cell.unconverged_seeds})
        for cell in cells
    ]
    if len({step for steps in last_steps for step in steps}) < 2:
        return ""
    spans = [f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}" for steps in last_steps if steps]
    return f"finals at different steps, {' against '.join(spans)}: --until-step common compares at one step"


def _changed_cases(a: StoredSubject, b: StoredSubject) -> tuple[str, ...]:
    """Returns the names of cases that both subjects have, in forms that they do not share."""
    cases = {identity: cell.case for subject in (a, b) for identity, cell in subject.cells.items()}
    names = {f"{case.suite}/{case.name}" for identity, case in cases.items() if is_changed(identity, a, b)}
    return tuple(sorted(names))


def one_sided_defaults(binding: StoredSubject, other: StoredSubject) -> tuple[str, ...]:
    """Returns the settings that one subject binds to their defaults, and the other has and does not bind."""
    names = dict[str, None]()
    for identity, cell in binding.cells.items():
        other_cell = other.cells.get(identity)
        if other_cell is None or not other_cell.blocks or other_cell.case.program_hash != cell.case.program_hash:
            continue
        bound_names = {name for curves in cell.blocks for name in curves.origin.bound_defaults.split(", ") if name}
        if bound_names:
            lines = other_cell.blocks[0].provenance.bindings.splitlines()
            bound_by_other = ["/" + line.partition(" = ")[0] for line in lines]
            names |= dict.fromkeys(
                name for name in sorted(bound_names) if not any(key.endswith(f"/{name}") for key in bound_by_other)
            )
    return tuple(name.removeprefix("lobench.") for name in names)


_LOSSES = ("train/loss", "test/loss")


def first_differences(a: StoredSubject, b: StoredSubject) -> FirstDifferences:
    """Returns, for each common case, the first evaluated step at which a loss or the primary metric has different bits.

    Cases without common seeds drawn by lobench are left out, because nothing is equal at their start.
    """
    common_cells = {key: (cell, b.cells[key]) for key, cell in a.cells.items() if key in b.cells}
    first_steps = {key: _first_difference(*cell_pair) for key, cell_pair in common_cells.items()}
    return {key: step for key, step in first_steps.items() if step is not None}


def _first_difference(a: Cell, b: Cell) -> float | None:
    if not a.draws == b.draws == LOBENCH_SEEDS:
        return None
    steps = [
        _first_difference_of_seed(a, b, metric, seed)
        for metric in dict.fromkeys((a.case.primary_metric, *_LOSSES))
        for seed in a.curves_by_seed.keys() & b.curves_by_seed.keys()
        if all(metric in cell.curves_by_seed[seed][0].shapes for cell in (a, b))
    ]
    return min(steps, default=None)


def _first_difference_of_seed(a: Cell, b: Cell, metric: str, seed: int) -> float:
    values_by_step = [
        dict(zip(curves.eval_steps, np.asarray(curves.metrics[metric])[row], strict=False))
        for curves, row in (a.curves_by_seed[seed], b.curves_by_seed[seed])
    ]
    common_steps = sorted(values_by_step[0].keys() & values_by_step[1].keys())
    values = [np.asarray([step_values[step] for step in common_steps]) for step_values in values_by_step]
    differing = np.flatnonzero(~((values[0] == values[1]) | (np.isnan(values[0]) & np.isnan(values[1]))))
    return float(common_steps[differing[0]]) if len(differing) else math.inf
