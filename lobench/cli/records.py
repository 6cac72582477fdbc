"""JSON records of commands that evaluate: plans, endings, verdicts. NaN becomes null when they are printed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Findings
    from lobench.api.dry_run import Costs
    from lobench.api.engine_run import Watched
    from lobench.core.subject import Subject
    from lobench.engine.chief.interfaces import Ending

__all__ = ["costs_record", "ending_record", "verdict_record", "watched_record"]

Record = dict[str, Any]


def watched_record(watched: Watched) -> Record:
    """Returns how a watch ended."""
    return {
        "store": watched.store,
        **ending_record(watched.ending),
        "left_out": {str(path): str(reason) for path, reason in watched.left_out.items()},
        "utilisation": watched.utilisation,
        "subjects": [_subject(subject) for subject in watched.ending.subjects],
    }


def ending_record(ending: Ending) -> Record:
    """Returns what a watch and a run have of their end alike."""
    return {
        "interrupted": ending.interrupted,
        "over_budget": ending.over_budget,
        "outcomes": _counts(ending.outcomes),
        "recorded": _counts(ending.recorded),
        "num_left": ending.num_left,
        "core_seconds": ending.core_seconds,
        "sinks_behind": dict(ending.behind),
        "unread": dict(ending.unread),
    }


def _counts(outcomes: Mapping[Any, int]) -> dict[str, int]:
    return {str(outcome): count for outcome, count in sorted(outcomes.items())}


def _subject(subject: Subject) -> Record:
    has_theta = subject.has_theta
    return {
        "kind": subject.kind,
        "label": subject.label,
        "uri": subject.uri,
        "outer_step": subject.outer_step if has_theta else None,
        "generation": subject.generation if has_theta else None,
        "sha256": subject.sha256,
    }


def costs_record(costs: Costs) -> Record:
    """Returns what one checkpoint would cost."""
    return {
        "cases": [
            {
                "suite": cost.case.suite,
                "case": cost.case.name,
                "num_evaluations": cost.num_evaluations,
                "seconds": cost.seconds,
                "num_cpus": cost.num_cpus,
                "num_gpus": cost.num_gpus,
                "is_recorded": cost.recorded,
            }
            for cost in costs.cases
        ],
        "num_evaluations": costs.num_evaluations,
        "core_seconds": costs.core_seconds,
        "device_seconds": costs.device_seconds,
        "max_cores": costs.max_cores,
        "wall_seconds": costs.wall_seconds,
    }


def verdict_record(findings: Findings, methods: Collection[Record]) -> Record:
    """Returns a report's verdict: scores of every subject, the change, what it says in words."""
    from lobench.analysis.scores.score_scale import SCORE_VERSION
    from lobench.report.tables.verdict import verdict_lines, warnings

    reading, comparison = findings.reading, findings.change()
    cases = findings.shown_cases(comparison)
    return {
        "store": reading.store,
        "score_version": SCORE_VERSION,
        "scale": findings.scale_label,
        "shown": reading.labels[findings.shown],
        "subjects": [_scored(findings, place) for place in range(len(reading.subjects))],
        "change": None
        if comparison is None
        else {
            "against": reading.labels[findings.first],
            "effect": str(comparison.verdict),
            "difference": dataclasses.asdict(comparison.overall),
            "p_value": comparison.p_value,
            "cases": {reading.names[effect.case]: str(effect.verdict) for effect in comparison.cases},
        },
        "gates": [dict(detail) for kind, detail in reading.events if kind == "gate"],
        "verdict": verdict_lines(findings, comparison, cases),
        "notes": warnings(findings, cases),
        "methods": list(methods),
    }


def _scored(findings: Findings, place: int) -> Record:
    subject, scores = findings.reading.subjects[place], {}
    for metric in findings.metrics:
        found = findings.mean_score(place, metric)
        scores[findings.metric_label(metric)] = {
            **dataclasses.asdict(found.interval),
            "num_cases": found.num_cases,
            "num_missing": found.num_missing,
        }
    return {
        **_subject(subject.who),
        "label": findings.reading.labels[place],
        "scores": scores,
        "num_seeds": subject.num_seeds,
        "num_diverged": subject.num_diverged,
    }
