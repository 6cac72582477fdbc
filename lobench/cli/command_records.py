"""JSON records of commands that evaluate: plans, summaries, verdicts. NaN becomes null when they are printed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from lobench.analysis.stats.comparison import Effect
from lobench.analysis.stats.intervals import Interval
from lobench.core.json_numbers import Finite, record_from
from lobench.core.result import Outcome
from lobench.core.subject import Subject, SubjectKind
from lobench.report.tables.method_table import MethodRecord

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Summary
    from lobench.api.dry_run import Costs
    from lobench.api.engine_run import WatchOutcome
    from lobench.engine.chief.interfaces import WatchSummary

__all__ = ["CostsRecord", "EndingRecord", "ReportRecord", "SubjectRecord", "WatchRecord"]
__all__ += ["costs_record", "ending_record", "verdict_record", "watch_record"]


class EndingRecord(TypedDict):
    """Summary of a watch or a run."""

    interrupted: Annotated[bool, "Whether it was interrupted (exit code 130). Run the same command to continue."]
    over_budget: bool
    outcomes: Annotated[dict[Outcome, int], "Number of evaluations of this call, by outcome."]
    recorded: Annotated[
        dict[Outcome, int],
        "Planned evaluations by outcome, including those of earlier calls. Determines the exit code.",
    ]
    num_left: Annotated[int, "Number of evaluations that did not start or did not finish."]
    core_seconds: Finite
    sinks_behind: Annotated[
        dict[str, int], "Number of deliveries that each sink still lacks. It receives them at the next start."
    ]
    unread: Annotated[
        dict[str, str], "Reason by path, for the newest checkpoint of a run, or its config.gin, that could not be read."
    ]


class SubjectRecord(TypedDict):
    """Subject: a checkpoint, an optimizer without theta, or imported curves."""

    kind: SubjectKind
    label: str
    uri: str
    outer_step: int | None
    generation: int | None
    sha256: str


class WatchRecord(EndingRecord):
    """`lobench watch`: summary of the watch."""

    store: Path
    left_out: Annotated[
        dict[str, str], "Reason by path, for files that may become checkpoints and are not complete yet."
    ]
    utilisation: str
    subjects: Annotated[list[SubjectRecord], "Subjects whose evaluations are complete."]


class CaseCostRecord(TypedDict):
    suite: str
    case: str
    num_evaluations: int
    seconds: Annotated[Finite, "Seconds of one evaluation."]
    num_cpus: int
    num_gpus: Finite
    is_recorded: Annotated[bool, "Whether the seconds were measured. If false, they are estimated from other cases."]


class CostsRecord(TypedDict):
    """`lobench watch --dry-run`: expected cost of one checkpoint."""

    cases: list[CaseCostRecord]
    num_evaluations: int
    core_seconds: Finite
    device_seconds: Finite
    max_cores: int
    wall_seconds: Annotated[Finite, "Lower bound, with all programs already compiled."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord(Interval):
    """Mean score over cases."""

    num_cases: int
    num_missing: int


class ScoredSubject(SubjectRecord):
    scores: dict[str, ScoreRecord]
    num_seeds: int
    num_diverged: int
    num_exploded: int


class ChangeRecord(TypedDict):
    """Difference of the mean score from that of an earlier subject."""

    against: str
    effect: Effect
    difference: Interval
    p_value: float
    cases: dict[str, Effect]


class ReportRecord(TypedDict):
    """`lobench report --format json`: the verdict."""

    store: Path
    score_version: int
    scale: str
    shown: Annotated[str, "Label of the subject of the verdict."]
    subjects: list[ScoredSubject]
    change: ChangeRecord | None
    gates: Annotated[list[dict[str, Any]], "Decisions of gates, oldest first."]
    verdict: list[str]
    notes: list[str]
    methods: list[MethodRecord]


def watch_record(outcome: WatchOutcome) -> WatchRecord:
    """Returns the JSON output of `lobench watch`."""
    return {
        "store": outcome.store,
        **ending_record(outcome.ending),
        "left_out": {str(path): str(reason) for path, reason in outcome.left_out.items()},
        "utilisation": outcome.utilisation,
        "subjects": [_subject_record(subject) for subject in outcome.ending.plan.subjects],
    }


def ending_record(ending: WatchSummary) -> EndingRecord:
    """Returns the fields that the records of a watch and a run share."""
    return record_from(
        EndingRecord,
        ending,
        outcomes=dict(sorted(ending.outcomes.items())),
        recorded=dict(sorted(ending.recorded.items())),
        sinks_behind=dict(ending.behind),
        unread={**ending.unread, **ending.unbound},
    )


def _subject_record(subject: Subject) -> SubjectRecord:
    generation = subject.generation if subject.has_theta else None
    return record_from(SubjectRecord, subject, outer_step=subject.known_outer_step, generation=generation)


def costs_record(costs: Costs) -> CostsRecord:
    """Returns the record of the expected cost of one checkpoint."""
    cases = [
        record_from(CaseCostRecord, cost, suite=cost.case.suite, case=cost.case.name, is_recorded=cost.recorded)
        for cost in costs.cases
    ]
    return record_from(CostsRecord, costs, cases=cases)


def verdict_record(summary: Summary, methods: list[MethodRecord]) -> ReportRecord:
    """Returns the record of a report's verdict: scores of all subjects, the change, the verdict in words."""
    from lobench.analysis.scores.score_scale import SCORE_VERSION
    from lobench.report.tables.verdict import report_warnings, verdict_lines

    snapshot = summary.snapshot
    comparison = summary.headline_comparison()
    cases = summary.shown_cases(comparison)
    return {
        "store": snapshot.store,
        "score_version": SCORE_VERSION,
        "scale": summary.scale_label,
        "shown": snapshot.labels[summary.headline_index],
        "subjects": [_scored_subject_record(summary, index) for index in range(len(snapshot.subjects))],
        "change": None
        if comparison is None
        else {
            "against": snapshot.labels[summary.reference_index],
            "effect": comparison.verdict,
            "difference": comparison.overall,
            "p_value": comparison.p_value,
            "cases": {snapshot.case_names[effect.case]: effect.verdict for effect in comparison.cases},
        },
        "gates": [dict(detail) for kind, detail in snapshot.events if kind == "gate"],
        "verdict": verdict_lines(summary, comparison, cases),
        "notes": report_warnings(summary, cases),
        "methods": methods,
    }


def _scored_subject_record(summary: Summary, index: int) -> ScoredSubject:
    subject, scores = summary.snapshot.subjects[index], {}
    for metric in summary.metrics:
        score = summary.mean_score(index, metric)
        scores[summary.metric_label(metric)] = ScoreRecord(
            **dataclasses.asdict(score.interval), num_cases=score.num_cases, num_missing=score.num_missing
        )
    return {
        **_subject_record(subject.subject),
        "label": summary.snapshot.labels[index],
        "scores": scores,
        "num_seeds": subject.num_seeds,
        "num_diverged": subject.num_diverged,
        "num_exploded": subject.num_exploded,
    }
