"""Comparison of B with A over common cases and seeds: effects by metric, and the gate's verdict on each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.comparisons.first_difference import FirstDifferences, first_differences
from lobench.analysis.comparisons.gate_looks import decide
from lobench.analysis.comparisons.gates import GateReport, GateRules
from lobench.analysis.comparisons.paired_values import PairedValues, samples_of, without_scale
from lobench.analysis.comparisons.summary import differences, improvement, is_changed
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import SIGNED, are_plain, are_undecided, silence
from lobench.analysis.stats.comparison import (
    MeanDifference,
    PairComparison,
    compare_cases,
    effect_words,
    mean_difference,
)
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.store.case_groups import CaseDesign, are_labels, redesigned
from lobench.analysis.store.snapshot import case_names
from lobench.analysis.store.subjects import Cell, StoredSubject, headline_metrics
from lobench.core.case import CaseInfo
from lobench.core.errors import UsageError
from lobench.core.metric import Direction, UnknownDirection, stored_spelling
from lobench.core.wording import counted

__all__ = ["APART", "MethodComparison", "MetricEffect", "compare_subjects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEffect:
    """B against A in one metric; cases are named by their identity.

    Attributes:
      metric: Its name; `primary` where cases have different primary metrics.
      improvement: Chance that a seed of B ends better than one of A, mean over the cases.
      num_pairs: Common seeds, summed over the cases.
      margins: What the gate tolerates on each case.
      tolerated: How many times higher a loss that is; NaN on a linear scale.
      ratios: B's geometric mean loss over A's; no bounds, and no mean, where a seed is clipped or on a linear scale.
      values: Final value of B less that of A, in the metric's own unit: arithmetic means, whose bounds hold for all
        cases together.
      is_of_finals: Whether no case has scores: the differences are of final values.
      notes: What limits a case's verdict; only of cases of which there is something to say.
      directions: Which way the metric of a case is better; None if nobody declares it.
      geometric_means: Of A's and of B's losses, less the case's minimum, over the seeds that the ratio is of; only of
        cases with a ratio.
    """

    metric: str
    comparison: PairComparison
    gate: GateReport
    improvement: Interval
    num_pairs: int
    margins: Mapping[str, float]
    tolerated: Mapping[str, float]
    ratios: Mapping[str, Interval]
    values: Mapping[str, MeanDifference]
    is_of_finals: bool
    notes: Mapping[str, str]
    directions: Mapping[str, Direction | None]
    geometric_means: Mapping[str, tuple[float, float]]

    @property
    def ratios_known(self) -> bool:
        """Whether any case has a ratio."""
        return bool(self.geometric_means)

    @property
    def improvements(self) -> dict[str, MeanDifference]:
        """Return `values` with the sign of the scores: above 0, B is better; none if no direction is declared."""
        return {
            key: one if self.directions[key] is Direction.MAX else _negative(one)
            for key, one in self.values.items()
            if self.directions[key] is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodComparison:
    """What is to be said of B against A.

    Attributes:
      effects: The primary metric's first, then the other losses'.
      cases: By identity, those of either side.
      changed: Names of cases that both have, with different bindings: they are two cases, and not compared.
      num_exploded: Of A and of B, seeds that ended above twice their start, without having diverged.
      parted: The first step at which their curves differ, by the identity of the case.
      edges: Parameters of searches that chose A or B whose best value is the least or the largest tried, as lines.
      design: Which cases were taken for a group.
    """

    a: StoredSubject
    b: StoredSubject
    effects: tuple[MetricEffect, ...]
    cases: Mapping[str, CaseInfo]
    changed: tuple[str, ...]
    num_exploded: tuple[int, int]
    parted: FirstDifferences
    edges: tuple[str, ...] = ()
    design: CaseDesign = "by design"

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Names of the cases in the mean of the primary metric, by group."""
        names = case_names(list(self.cases.values()))
        return tuple(tuple(names[case] for case in group) for group in self.primary.comparison.groups)

    @property
    def has_labels(self) -> bool:
        """Whether the seeds of several cases are labels of a table, and nothing says whether the cases share them."""
        compared = [one.case for one in self.primary.comparison.cases]
        cells = [side.cells[case] for side in (self.a, self.b) for case in compared if case in side.cells]
        return self.design == "by design" and len(compared) > 1 and any(map(are_labels, cells))

    @property
    def primary(self) -> MetricEffect:
        return self.effects[0]

    @property
    def primary_metrics(self) -> dict[str, str]:
        """Returns the metric of each case, by identity, that the verdict is about."""
        metric = self.primary.metric
        compared = [one.case for one in self.primary.comparison.cases]
        return {key: self.cases[key].primary_metric if metric == "primary" else metric for key in compared}

    def name(self, identity: str) -> str:
        """Returns what to call a case."""
        return case_names(list(self.cases.values()))[identity]


def compare_subjects(
    subjects: Sequence[StoredSubject],
    *,
    metrics: Sequence[str] = (),
    rules: GateRules | None = None,
    scales: Scales | None = None,
    margin: float | None = None,
    design: CaseDesign = "by design",
) -> list[MethodComparison]:
    """Compares every subject but the first with the first.

    Args:
      metrics: Instead of the primary one and the losses of train and test.
      margin: Of all cases; None: the default of each case's scale.
      scales: Of all that the stores of the subjects hold; None: of these subjects alone.
      design: Which cases are taken for a group, whose seeds have one value each.
    Raises:
      UsageError: no case in common, or nobody knows a metric.
      UnknownDirection: of a metric that was asked for; nobody declares which way it is better.
    """
    rules, scales = rules or GateRules(), scales or Scales.of(subjects)
    for metric in (name for asked in metrics for name in scales.undeclared(asked)):
        raise UnknownDirection(metric)
    first, *others = subjects
    return [
        _compared(*_on_common_forms(first, other), subjects, metrics, rules, scales, margin, design) for other in others
    ]


def _compared(
    first: StoredSubject,
    other: StoredSubject,
    subjects: Sequence[StoredSubject],
    metrics: Sequence[str],
    rules: GateRules,
    scales: Scales,
    margin: float | None,
    design: CaseDesign,
) -> MethodComparison:
    changed = _changed(first, other)
    if not first.cells.keys() & other.cells.keys():
        raise UsageError(
            f"{first.label} and {other.label} have no case in common",
            got=f"changed between the two: {', '.join(changed)}"
            if changed
            else f"{_names(first)}, and {_names(other)}",
            next_step="evaluate both on the same suite" + (", as it is now" if changed else ""),
        )
    chosen = _metrics([first, other, *subjects], metrics)
    effects = [_effect(first, other, label, metric, scales, rules, margin, design) for label, metric in chosen]
    if not any(effects):
        raise UsageError(
            f"neither {first.label} nor {other.label} has the metric",
            got=", ".join(label for label, _ in chosen),
            expected=", ".join(sorted(first.metrics() | other.metrics())),
        )
    cases = {identity: cell.case for side in (first, other) for identity, cell in side.cells.items()}
    exploded_a, exploded_b = (scales.num_exploded(*side.cells.values()) for side in (first, other))
    return MethodComparison(
        a=first,
        b=other,
        effects=tuple(effect for effect in effects if effect),
        cases=cases,
        changed=changed,
        num_exploded=(exploded_a, exploded_b),
        parted=first_differences(first, other),
        design=design,
    )


def _on_common_forms(a: StoredSubject, b: StoredSubject) -> tuple[StoredSubject, StoredSubject]:
    """Returns both with the cells that are to be compared: those of former forms only where they share no others."""
    common = a.every_form().keys() & b.every_form().keys()
    if a.cells.keys() & b.cells.keys() or not common:
        return a, b
    former_a, former_b = (
        dataclasses.replace(side, cells={key: cell for key, cell in side.every_form().items() if key in common})
        for side in (a, b)
    )
    return former_a, former_b


def _names(subject: StoredSubject) -> str:
    return ", ".join(sorted(f"{cell.case.suite}/{cell.case.name}" for cell in subject.cells.values())) or "none"


def _metrics(subjects: Sequence[StoredSubject], asked: Sequence[str]) -> list[tuple[str, str | None]]:
    """Returns each metric with its label; None stands for the primary metric of each case, where they differ."""
    known = set().union(*(subject.metrics() for subject in subjects))
    asked = list(dict.fromkeys(stored_spelling(metric, known) for metric in asked))
    for metric in asked:
        if metric not in known:
            raise UsageError("no subject has this metric", got=repr(metric), expected=", ".join(sorted(known)))
    return [(metric, metric) for metric in asked] or headline_metrics(subjects)


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
    found = differences(a, b, metric, scales)
    if not found:
        return None
    cases = {key: (a.cells.get(key) or b.cells[key]).case for key in found}
    names = {key: metric or case.primary_metric for key, case in cases.items()}
    signed = {key for key, case in cases.items() if scales.is_signed(case, names[key]) and not found[key].is_of_finals}
    margins = {key: one.scale.default_margin if margin is None else margin for key, one in found.items()}
    samples = {key: redesigned(one.samples, design) for key, one in found.items()}
    # Reports have the linear scale where a loss is signed; whether that was meant only the suite can say.
    gated = {key: without_scale(one) if key in signed else one for key, one in samples.items()}
    comparison = compare_cases(samples, alpha=rules.alpha)
    ends = {key: ends for key in found if (ends := _Ends.of(a, b, key, names[key], scales))}
    effects = {effect.case: effect.paired for effect in comparison.cases}
    notes = {key: _note(one, found[key], effects[key], key in signed) for key, one in ends.items()}
    limits = {key: (lack_note(a, b, key), ends_note(a, b, key), labels_note(a, b, key)) for key in found}
    notes = {key: "; ".join(filter(None, (*limits[key], notes.get(key, "")))) for key in found}
    notes = {key: note for key, note in notes.items() if note}
    return MetricEffect(
        metric=label,
        comparison=comparison,
        gate=decide(gated, rules, margins),
        improvement=improvement(a, b, metric, scales, design),
        num_pairs=sum(len(one) for one in samples.values() if one.is_paired),
        margins=margins,
        tolerated={key: one.scale.tolerated_ratio(margins[key]) for key, one in found.items()},
        ratios={key: _ratio(effects[key], one, found[key]) for key, one in ends.items()},
        values={key: mean_difference(one.samples, 1 - rules.alpha / len(found)) for key, one in ends.items()},
        is_of_finals=all(one.is_of_finals for one in found.values()),
        notes=notes,
        directions={key: scales.direction(cases[key], names[key]) for key in ends},
        geometric_means={
            key: one.geometric_means(found[key].scale.minimum or 0.0)
            for key, one in ends.items()
            if not math.isnan(_ratio(effects[key], one, found[key]).mean)
        },
    )


def _negative(found: MeanDifference) -> MeanDifference:
    return dataclasses.replace(found, mean=0.0 - found.mean, lower=0.0 - found.upper, upper=0.0 - found.lower)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """What both sides reached on a case: NaN where a seed diverged or exploded. Pairs in order, where they are pairs.

    Attributes:
      begins: Where each seed of either side began, as far as it is known.
      num_seeds: Of either side, those without a partner too.
      samples: The same in the metric's own unit, whichever way is better.
    """

    ours: list[float]
    theirs: list[float]
    begins: tuple[list[float], list[float]]
    num_seeds: tuple[int, int]
    samples: Samples

    @classmethod
    def of(cls, a: StoredSubject, b: StoredSubject, identity: str, metric: str, scales: Scales) -> _Ends | None:
        if identity not in a.cells or identity not in b.cells:
            return None
        cells = [side.cells[identity] for side in (a, b)]
        finals = [cell.converged_finals(metric) for cell in cells]
        found = samples_of(finals[0], finals[1], *cells)
        if not len(found):
            return None
        common = sorted(finals[0].keys() & finals[1].keys()) if found.is_paired else None
        seeds = [common or list(side) for side in finals]
        starts = [scales.starts_of(cell, metric) for cell in cells]
        ours, theirs = ([side[seed] for seed in own] for side, own in zip(finals, seeds, strict=True))
        begun_a, begun_b = (
            [begun.get(seed, math.nan) for seed in own] for begun, own in zip(starts, seeds, strict=True)
        )
        counts = (len(finals[0]), len(finals[1]))
        return cls(ours=ours, theirs=theirs, begins=(begun_a, begun_b), num_seeds=counts, samples=found)

    def geometric_means(self, minimum: float) -> tuple[float, float]:
        """Return the geometric mean of each side's losses less the minimum, of the seeds that converge.

        Of pairs those on which both sides do.
        """
        sides = [np.asarray(self.ours) - minimum, np.asarray(self.theirs) - minimum]
        if self.samples.is_paired:
            converged = np.isfinite(sides[0]) & np.isfinite(sides[1])
            sides = [side[converged] for side in sides]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = [np.log(side[np.isfinite(side)]) for side in sides]
        ours, theirs = (float(np.exp(np.mean(one))) if len(one) else math.nan for one in logs)
        return ours, theirs


def _ratio(paired: MeanDifference, ends: _Ends, values: PairedValues) -> Interval:
    """Return B's geometric mean loss over A's, of the seeds that converge; NaN if one of them is clipped."""
    scale, is_plain = values.scale, values.is_of_finals
    if not is_plain:
        sides = zip((ends.ours, ends.theirs), ends.begins, strict=True)
        is_plain = all((are_plain(side, scale, starts=begins) | ~np.isfinite(side)).all() for side, begins in sides)
    mean, lower, upper = (
        scale.ratio(value) if is_plain else math.nan for value in (paired.mean, paired.upper, paired.lower)
    )
    return Interval(mean=mean, lower=lower, upper=upper, degrees=math.nan)


# What is said of the interval of a difference whose sides share no seed.
APART = {
    "welch": "no common seeds: Welch's interval",
    "permutation": "no common seeds, one side has twice as many: the wider of Welch's and a permutation interval",
}


def _note(ends: _Ends, values: PairedValues, paired: MeanDifference, is_signed: bool) -> str:
    found, seeds, scale = [SIGNED] if is_signed else [], len(ends.ours), values.scale
    found += [text for text in (effect_words(paired), values.note) if text]
    if not ends.samples.is_paired:
        found.append(APART.get(paired.method, ""))
    elif seeds < max(ends.num_seeds):  # a mean is over all seeds, a difference over these
        found.append("{} of {} and {}".format(counted(seeds, "common seed"), *ends.num_seeds))
    if not values.is_of_finals:
        if silent := are_undecided(ends.ours, ends.theirs, scale, starts=ends.begins[0]).sum():
            found.append(silence(silent, seeds))
        if scale.is_usable and scale.is_thin:
            found.append("thin scale")
    return "; ".join(found)


def lack_note(a: StoredSubject, b: StoredSubject, identity: str) -> str:
    """Returns which planned seeds of a case have no result, "" if none.

    Example: "theta_2.npz has 2 of 3 seeds (1 error): compared on common seeds only".
    """
    sides = [(side.label, side.cells[identity]) for side in (a, b) if identity in side.cells]
    lacking = [f"{label} has {_count_of(cell)}" for label, cell in sides if cell.missing]
    return f"{'; '.join(lacking)}: compared on common seeds only" if lacking else ""


def _count_of(cell: Cell) -> str:
    num_there = cell.num_planned - len(cell.missing)
    return f"{num_there} of {counted(cell.num_planned, 'seed')} ({cell.why_missing()})"


def labels_note(a: StoredSubject, b: StoredSubject, identity: str) -> str:
    """Returns how to pair seeds that have the same numbers on both sides, and are labels; "" if they are not."""
    if identity not in a.cells or identity not in b.cells:
        return ""
    cells = (a.cells[identity], b.cells[identity])
    if all(cell.draws for cell in cells) or not cells[0].sources.keys() & cells[1].sources.keys():
        return ""
    return "imported seeds are labels: lobench import --paired-seeds pairs those of one number"


def ends_note(a: StoredSubject, b: StoredSubject, identity: str) -> str:
    """Returns at which steps the finals of a case are, if they are at different ones; "" otherwise."""
    cells = [side.cells[identity] for side in (a, b) if identity in side.cells]
    ends = [
        sorted({step for seed, step in cell.last_steps().items() if seed not in cell.unconverged}) for cell in cells
    ]
    if len({step for steps in ends for step in steps}) < 2:
        return ""
    spans = [f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}" for steps in ends if steps]
    return f"finals at different steps, {' against '.join(spans)}: --until-step common compares at one step"


def _changed(a: StoredSubject, b: StoredSubject) -> tuple[str, ...]:
    """Returns the names of cases that both have, in forms that they do not share."""
    found = {identity: cell.case for side in (a, b) for identity, cell in side.cells.items()}
    names = {f"{case.suite}/{case.name}" for identity, case in found.items() if is_changed(identity, a, b)}
    return tuple(sorted(names))
