"""B against A over their common cases and seeds: effects by metric, and the gate's verdict on each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lobench.analysis.aggregates import probability_of_improvement_interval
from lobench.analysis.comparison import Comparison, compare_cases
from lobench.analysis.gates import GateReport, GateRules, gate_cases
from lobench.analysis.intervals import Interval
from lobench.analysis.scores import ScoreScale
from lobench.analysis.subjects import Subject, case_scores, differences, headline_metrics, place_of, scales_among
from lobench.core.case import CaseInfo
from lobench.core.errors import UsageError

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
        """Returns what to call a case: suite and name, and its test where that name is several cases'."""
        case = self.cases[identity]
        name = f"{case.suite}/{case.name}"
        namesakes = sum((one.suite, one.name) == (case.suite, case.name) for one in self.cases.values())
        return name if namesakes == 1 else f"{name} ({place_of(case)[-1]})"


def compare_subjects(
    subjects: Sequence[Subject],
    *,
    metrics: Sequence[str] = (),
    rules: GateRules | None = None,
    scales: Mapping[str, Mapping[str, ScoreScale]] | None = None,
) -> list[Compared]:
    """Compares every subject but the first with the first.

    Args:
      metrics: Instead of the primary one and the losses of train and test.
      scales: By metric and identity of the case, from a tuned baseline; a case that is not in it is scored among the
        subjects: untrained 0, the best of them 1.
    Raises:
      UsageError: no case in common, or nobody knows a metric.
    """
    rules = rules or GateRules()
    first, *others = subjects
    found = []
    for other in others:
        if not first.cells.keys() & other.cells.keys():
            changed = _changed(first, other)
            raise UsageError(
                f"{first.label} and {other.label} have no case in common",
                got=f"changed between the two: {', '.join(changed)}"
                if changed
                else f"{_names(first)}, and {_names(other)}",
                next_step="evaluate both on the same suite" + (", as it is now" if changed else ""),
            )
        chosen = _metrics(subjects, metrics)
        effects = [
            _effect(
                first, other, label, metric, {**scales_among(subjects, metric), **(scales or {}).get(label, {})}, rules
            )
            for label, metric in chosen
        ]
        if not any(effects):
            raise UsageError(
                f"neither {first.label} nor {other.label} has the metric",
                got=", ".join(label for label, _ in chosen),
                expected=", ".join(sorted(first.metrics() | other.metrics())),
            )
        cases = {identity: cell.case for side in (first, other) for identity, cell in side.cells.items()}
        changed = _changed(first, other)
        found.append(
            Compared(
                a=first, b=other, effects=tuple(effect for effect in effects if effect), cases=cases, changed=changed
            )
        )
    return found


def _names(subject: Subject) -> str:
    return ", ".join(sorted(f"{cell.case.suite}/{cell.case.name}" for cell in subject.cells.values())) or "none"


def _metrics(subjects: Sequence[Subject], asked: Sequence[str]) -> list[tuple[str, str | None]]:
    """Returns each metric with its label; None stands for the primary metric of each case, where they differ."""
    known = set().union(*(subject.metrics() for subject in subjects))
    for metric in asked:
        if metric not in known:
            raise UsageError("nobody has this metric", got=repr(metric), expected=", ".join(sorted(known)))
    if asked:
        return [(metric, metric) for metric in asked]
    primary = {cell.case.primary_metric for subject in subjects for cell in subject.cells.values()}
    if len(primary) > 1:
        return [("primary", None), *((name, name) for name in ("train/loss", "test/loss") if name in known)]
    # Where no evaluation gave a curve nobody knows a metric: that they are lost is to be said all the same.
    return [(name, name) for name in headline_metrics(subjects) or primary]


def _effect(
    a: Subject,
    b: Subject,
    label: str,
    metric: str | None,
    scales: Mapping[str, ScoreScale],
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
    a: Subject, b: Subject, metric: str | None, scales: Mapping[str, ScoreScale], found: Mapping[str, Sequence[float]]
) -> Interval:
    usable = [identity for identity, values in found.items() if values and all(map(math.isfinite, values))]
    nan = math.nan
    if not usable:
        return Interval(mean=nan, lower=nan, upper=nan, degrees=nan)
    ours, theirs = (
        [list(case_scores(subject.cells[identity], metric, scales[identity]).values()) for identity in usable]
        for subject in (b, a)
    )
    return probability_of_improvement_interval(ours, theirs)


def _is_changed(identity: str, a: Subject, b: Subject) -> bool:
    sides = (a, b) if identity in a.cells else (b, a)
    if identity in sides[1].cells:
        return False
    place = place_of(sides[0].cells[identity].case)
    return any(place_of(cell.case) == place for cell in sides[1].cells.values())


def _changed(a: Subject, b: Subject) -> tuple[str, ...]:
    cases = [cell.case for identity, cell in a.cells.items() if _is_changed(identity, a, b)]
    return tuple(sorted(f"{case.suite}/{case.name}" for case in cases))
