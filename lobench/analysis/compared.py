"""B against A over their common cases and seeds: effects by metric, and the gate's verdict on each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lobench.analysis.aggregates import probability_of_improvement_interval
from lobench.analysis.comparison import Comparison, compare_cases
from lobench.analysis.findings import differences
from lobench.analysis.gates import GateReport, GateRules, gate_cases
from lobench.analysis.intervals import Interval
from lobench.analysis.reading import case_names
from lobench.analysis.scales import Scales
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
      improvement: Chance that a seed of B scores higher than one of A, mean over the cases.
      num_pairs: Common seeds, summed over the cases.
    """

    metric: str
    comparison: Comparison
    gate: GateReport
    improvement: Interval
    num_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What is to be said of B against A.

    Attributes:
      effects: The primary metric's first, then the other losses'.
      cases: By identity, those of either side.
      changed: Names of cases that both have, with different bindings: they are two cases, and not compared.
    """

    a: Subject
    b: Subject
    effects: tuple[MetricEffect, ...]
    cases: Mapping[str, CaseInfo]
    changed: tuple[str, ...]

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
) -> list[Compared]:
    """Compares every subject but the first with the first.

    Args:
      metrics: Instead of the primary one and the losses of train and test.
      scales: Of all that the stores of the subjects hold; None: of these subjects alone.
    Raises:
      UsageError: no case in common, or nobody knows a metric.
      UnknownDirection: of a metric that was asked for; nobody declares which way it is better.
    """
    rules, scales = rules or GateRules(), scales or Scales.of(subjects)
    for metric in (name for asked in metrics for name in scales.undeclared(asked)):
        raise UnknownDirection(metric)
    first, *others = subjects
    return [_compared(*_on_common_forms(first, other), subjects, metrics, rules, scales) for other in others]


def _compared(
    first: Subject,
    other: Subject,
    subjects: Sequence[Subject],
    metrics: Sequence[str],
    rules: GateRules,
    scales: Scales,
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
    effects = [_effect(first, other, label, metric, scales, rules) for label, metric in chosen]
    if not any(effects):
        raise UsageError(
            f"neither {first.label} nor {other.label} has the metric",
            got=", ".join(label for label, _ in chosen),
            expected=", ".join(sorted(first.metrics() | other.metrics())),
        )
    cases = {identity: cell.case for side in (first, other) for identity, cell in side.cells.items()}
    return Compared(
        a=first, b=other, effects=tuple(effect for effect in effects if effect), cases=cases, changed=changed
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
) -> MetricEffect | None:
    found = differences(a, b, metric, scales)
    # A changed case is on one side only, twice; it is named once, and is no missing result of either.
    changed = {identity for identity in found if _is_changed(identity, a, b)}
    found = {identity: values for identity, values in found.items() if identity not in changed}
    if not found:
        return None
    return MetricEffect(
        metric=label,
        comparison=compare_cases(found, alpha=rules.alpha),
        gate=gate_cases(found, rules),
        improvement=_improvement(a, b, metric, scales, found),
        num_pairs=sum(len(values) for values in found.values()),
    )


def _improvement(
    a: Subject, b: Subject, metric: str | None, scales: Scales, found: Mapping[str, Sequence[float]]
) -> Interval:
    usable = [identity for identity, values in found.items() if values and all(map(math.isfinite, values))]
    nan = math.nan
    if not usable:
        return Interval(mean=nan, lower=nan, upper=nan, degrees=nan)
    ours, theirs = (
        [list(scales.scores(subject.cells[identity], metric).values()) for identity in usable] for subject in (b, a)
    )
    return probability_of_improvement_interval(ours, theirs)


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
