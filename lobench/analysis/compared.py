"""B against A over their common cases and seeds: effects by metric, and the gate's verdict on each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lobench.analysis.comparison import Comparison, PairedT, compare_cases
from lobench.analysis.findings import differences, improvement
from lobench.analysis.gate_looks import decide
from lobench.analysis.gates import GateReport, GateRules
from lobench.analysis.intervals import Interval
from lobench.analysis.reading import case_names
from lobench.analysis.scales import Scales
from lobench.analysis.score_scale import SIGNED, ScoreScale, are_plain, say_nothing
from lobench.analysis.subjects import Subject, headline_metrics, place_of
from lobench.core.case import CaseInfo
from lobench.core.errors import UsageError
from lobench.core.metric import UnknownDirection

__all__ = ["Compared", "MetricEffect", "compare_subjects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricEffect:
    """B against A in one metric; cases are named by their identity.

    Attributes:
      metric: Its name; `primary` where cases have different primary metrics.
      improvement: Chance that a seed of B ends better than one of A, mean over the cases.
      num_pairs: Common seeds, summed over the cases.
      margins: What the gate tolerates on each case.
      tolerated: How many times higher a loss that is; NaN on a linear scale.
      ratios: How many times A's loss B's is; no bounds, and no mean, where a seed is clipped or on a linear scale.
      notes: What limits a case's verdict; only of cases of which there is something to say.
    """

    metric: str
    comparison: Comparison
    gate: GateReport
    improvement: Interval
    num_pairs: int
    margins: Mapping[str, float]
    tolerated: Mapping[str, float]
    ratios: Mapping[str, Interval]
    notes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What is to be said of B against A.

    Attributes:
      effects: The primary metric's first, then the other losses'.
      cases: By identity, those of either side.
      changed: Names of cases that both have, with different bindings: they are two cases, and not compared.
      num_exploded: Of A and of B, seeds that ended above twice their start, without having diverged.
    """

    a: Subject
    b: Subject
    effects: tuple[MetricEffect, ...]
    cases: Mapping[str, CaseInfo]
    changed: tuple[str, ...]
    num_exploded: tuple[int, int]

    @property
    def primary(self) -> MetricEffect:
        return self.effects[0]

    def name(self, identity: str) -> str:
        """Returns what to call a case."""
        return case_names(list(self.cases.values()))[identity]


def compare_subjects(
    subjects: Sequence[Subject],
    *,
    metrics: Sequence[str] = (),
    rules: GateRules | None = None,
    scales: Scales | None = None,
    margin: float | None = None,
) -> list[Compared]:
    """Compares every subject but the first with the first.

    Args:
      metrics: Instead of the primary one and the losses of train and test.
      margin: Of all cases; None: the default of each case's scale.
      scales: Of all that the stores of the subjects hold; None: of these subjects alone.
    Raises:
      UsageError: no case in common, or nobody knows a metric.
      UnknownDirection: of a metric that was asked for; nobody declares which way it is better.
    """
    rules, scales = rules or GateRules(), scales or Scales.of(subjects)
    for metric in (name for asked in metrics for name in scales.undeclared(asked)):
        raise UnknownDirection(metric)
    first, *others = subjects
    return [_compared(*_on_common_forms(first, other), subjects, metrics, rules, scales, margin) for other in others]


def _compared(
    first: Subject,
    other: Subject,
    subjects: Sequence[Subject],
    metrics: Sequence[str],
    rules: GateRules,
    scales: Scales,
    margin: float | None,
) -> Compared:
    changed = _changed(first, other)
    if not first.cells.keys() & other.cells.keys():
        raise UsageError(
            f"{first.label} and {other.label} have no case in common",
            got=f"changed between the two: {', '.join(changed)}"
            if changed
            else f"{_names(first)}, and {_names(other)}",
            next_step="evaluate both on the same suite" + (", as it is now" if changed else ""),
        )
    chosen = _metrics(subjects, metrics)
    effects = [_effect(first, other, label, metric, scales, rules, margin) for label, metric in chosen]
    if not any(effects):
        raise UsageError(
            f"neither {first.label} nor {other.label} has the metric",
            got=", ".join(label for label, _ in chosen),
            expected=", ".join(sorted(first.metrics() | other.metrics())),
        )
    cases = {identity: cell.case for side in (first, other) for identity, cell in side.cells.items()}
    exploded_a, exploded_b = (sum(scales.num_exploded(cell) for cell in side.cells.values()) for side in (first, other))
    return Compared(
        a=first,
        b=other,
        effects=tuple(effect for effect in effects if effect),
        cases=cases,
        changed=changed,
        num_exploded=(exploded_a, exploded_b),
    )


def _on_common_forms(a: Subject, b: Subject) -> tuple[Subject, Subject]:
    """Returns both with the cells that are to be compared: those of former forms only where they share no others."""
    common = a.every_form().keys() & b.every_form().keys()
    if a.cells.keys() & b.cells.keys() or not common:
        return a, b
    former_a, former_b = (
        dataclasses.replace(side, cells={key: cell for key, cell in side.every_form().items() if key in common})
        for side in (a, b)
    )
    return former_a, former_b


def _names(subject: Subject) -> str:
    return ", ".join(sorted(f"{cell.case.suite}/{cell.case.name}" for cell in subject.cells.values())) or "none"


def _metrics(subjects: Sequence[Subject], asked: Sequence[str]) -> list[tuple[str, str | None]]:
    """Returns each metric with its label; None stands for the primary metric of each case, where they differ."""
    known = set().union(*(subject.metrics() for subject in subjects))
    for metric in asked:
        if metric not in known:
            raise UsageError("nobody has this metric", got=repr(metric), expected=", ".join(sorted(known)))
    return [(metric, metric) for metric in asked] or headline_metrics(subjects)


def _effect(
    a: Subject,
    b: Subject,
    label: str,
    metric: str | None,
    scales: Scales,
    rules: GateRules,
    margin: float | None,
) -> MetricEffect | None:
    found = differences(a, b, metric, scales)
    # A changed case is on one side only, twice; it is named once, and is no missing result of either.
    changed = {identity for identity in found if _is_changed(identity, a, b)}
    found = {identity: values for identity, values in found.items() if identity not in changed}
    if not found:
        return None
    cases = {key: (a.cells.get(key) or b.cells[key]).case for key in found}
    names = {key: metric or case.primary_metric for key, case in cases.items()}
    scale_of = {key: scales.scale(case, names[key]) for key, case in cases.items()}
    signed = {key for key, case in cases.items() if scales.is_signed(case, names[key])}
    margins = {key: scale.default_margin if margin is None else margin for key, scale in scale_of.items()}
    # Reports have the linear scale where a loss is signed; whether that was meant only the suite can say.
    gated = {key: [math.nan] * len(values) if key in signed else values for key, values in found.items()}
    comparison = compare_cases(found, alpha=rules.alpha)
    pairs = {key: pairs for key in found if (pairs := _common(a, b, key, names[key]))}
    effects = {effect.case: effect.paired for effect in comparison.cases}
    return MetricEffect(
        metric=label,
        comparison=comparison,
        gate=decide(gated, rules, margins),
        improvement=improvement(a, b, metric, scales),
        num_pairs=sum(len(values) for values in found.values()),
        margins=margins,
        tolerated={key: scale.tolerated_ratio(margins[key]) for key, scale in scale_of.items()},
        ratios={
            key: _ratio(effects[key], pairs[key], scale_of[key], scales.starts(cases[key], names[key])) for key in pairs
        },
        notes={
            key: note
            for key in pairs
            if (note := _note(pairs[key], scale_of[key], scales.starts(cases[key], names[key]), key in signed))
        },
    )


# Of the common seeds of a case: the seeds, and the final values of A and B; NaN where one diverged.
_Pairs = tuple[list[int], list[float], list[float]]


def _common(a: Subject, b: Subject, identity: str, metric: str) -> _Pairs | None:
    if identity not in a.cells or identity not in b.cells:
        return None
    cells = [side.cells[identity] for side in (a, b)]
    finals = [cell.final.get(metric, {}) for cell in cells]
    seeds = sorted(finals[0].keys() & finals[1].keys())
    if not seeds:
        return None
    ours, theirs = (
        [math.nan if seed in cell.diverged_at else values[seed] for seed in seeds]
        for cell, values in zip(cells, finals, strict=True)
    )
    return seeds, ours, theirs


def _ratio(paired: PairedT, pairs: _Pairs, scale: ScoreScale, starts: Mapping[int, float]) -> Interval:
    seeds, ours, theirs = pairs
    begins = [starts.get(seed, math.nan) for seed in seeds]
    is_plain = all(are_plain(side, scale, starts=begins).all() for side in (ours, theirs))
    mean, lower, upper = (
        scale.ratio(value) if is_plain else math.nan for value in (paired.mean, paired.upper, paired.lower)
    )
    return Interval(mean=mean, lower=lower, upper=upper, degrees=math.nan)


def _note(pairs: _Pairs, scale: ScoreScale, starts: Mapping[int, float], is_signed: bool) -> str:
    seeds, ours, theirs = pairs
    silent = say_nothing(ours, theirs, scale, starts=[starts.get(seed, math.nan) for seed in seeds]).sum()
    found = [SIGNED] if is_signed else []
    if silent:
        found.append(f"on {silent} of {len(seeds)} seeds both are clipped alike or at the floor, which is no evidence")
    if scale.is_usable and scale.is_thin:
        found.append("thin scale")
    return "; ".join(found)


def _is_changed(identity: str, a: Subject, b: Subject) -> bool:
    sides = (a, b) if identity in a.cells else (b, a)
    if identity in sides[1].cells:
        return False
    place = place_of(sides[0].cells[identity].case)
    return any(place_of(cell.case) == place for cell in sides[1].every_form().values())


def _changed(a: Subject, b: Subject) -> tuple[str, ...]:
    """Returns the names of cases that both have, in forms that they do not share."""
    found = {identity: cell.case for side in (a, b) for identity, cell in side.cells.items()}
    names = {f"{case.suite}/{case.name}" for identity, case in found.items() if _is_changed(identity, a, b)}
    return tuple(sorted(names))
