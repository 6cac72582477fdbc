"""Text output of `lobench score`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from lobench.analysis.scores.algoperf import AlgoPerfRules, AlgoPerfScores, SubmissionScore, WorkloadTime
from lobench.core.wording import counted, level_text, one_line
from lobench.report.tables.text import text_table
from lobench.tools.score.velo import VeloScore, VeloSummary

__all__ = ["AlgoPerfRecord", "VeloRecord", "scores_record", "scores_table", "velo_record", "velo_table"]

_MOST_NOTES = 5


class LogRecord(TypedDict):
    evaluations: int
    not_finite: int
    repeated: int
    past_budget: int
    ignored_workloads: dict[str, int]


class RulesRecord(TypedDict):
    version: str
    studies: int
    trials: int
    budgets: Annotated[dict[str, float], "Budget in seconds, by workload."]


class AlgoPerfRecord(TypedDict):
    """`lobench score --targets`: AlgoPerf's score."""

    rules: Annotated[RulesRecord | None, "null: without a version of the rules, and so without budgets."]
    scores: dict[str, float]
    submissions: dict[str, SubmissionScore]
    log: LogRecord


class VeloRecord(TypedDict):
    """`lobench score --normaliser`: VeLO's score."""

    summary: VeloSummary
    tasks: dict[str, VeloScore]


def scores_record(scores: AlgoPerfScores, rules: AlgoPerfRules | None) -> AlgoPerfRecord:
    """Returns `{"scores": {submission: score}, ...}`."""
    return {
        "rules": None
        if rules is None
        else {
            "version": rules.version,
            "studies": rules.num_studies,
            "trials": rules.num_trials,
            "budgets": dict(rules.budgets),
        },
        "scores": {name: submission.score for name, submission in scores.submissions.items()},
        "submissions": dict(scores.submissions),
        "log": {
            "evaluations": scores.num_evaluations,
            "not_finite": scores.num_not_finite,
            "repeated": scores.num_repeated,
            "past_budget": scores.num_past_budget,
            "ignored_workloads": dict(scores.ignored_workloads),
        },
    }


def scores_table(scores: AlgoPerfScores, rules: AlgoPerfRules | None) -> str:
    """Returns the best submission, the scores, workloads removed by rules, and numbers of ignored evaluations."""
    targets = scores.targets
    rows = [("submission", "score", "workloads left", "removed")]
    for name, submission in scores.submissions.items():
        base_entries = [(workload, submission.workloads[workload]) for workload in targets.base_workloads]
        removed_reasons = [
            _removal_text(workload, entry) for workload, entry in base_entries if entry.removed_by is not None
        ]
        first_reason, *other_reasons = removed_reasons or [""]
        rows.append(
            (
                name,
                f"{submission.score:.4f}",
                f"{len(base_entries) - len(removed_reasons)} of {len(base_entries)}",
                first_reason,
            )
        )
        rows += [("", "", "", reason) for reason in other_reasons]
    counts_text = (
        f"{counted(scores.num_evaluations, 'evaluation')}, {scores.num_not_finite} without a finite value, time or step"
        + (f", {scores.num_repeated} repeated" if scores.num_repeated else "")
        + (
            f", {scores.num_past_budget:,} past the budget (a trial's evaluations after its workload's budget of "
            "submission time reach no target)"
            if scores.num_past_budget
            else ""
        )
        + (f"; not scored: {', '.join(scores.ignored_workloads)}" if scores.ignored_workloads else "")
    )
    answer_lines = []
    if scores.submissions:
        name, best_submission = max(scores.submissions.items(), key=lambda item: item[1].score)
        count_text = counted(len(scores.submissions), "submission")
        others = ((label, submission.score) for label, submission in scores.submissions.items() if label != name)
        count_text += level_text(best_submission.score, others)
        answer_lines = [one_line(f"{name} has the highest score of {count_text}: {best_submission.score:.4f}"), ""]
    return "\n".join([*answer_lines, text_table(rows, left={0, 3}), counts_text, *_rules_lines(scores, rules)])


def _rules_lines(scores: AlgoPerfScores, rules: AlgoPerfRules | None) -> list[str]:
    """Returns a line on the rules of the scores, and on numbers of studies and trials that differ from them."""
    if rules is None:
        return []
    rules_used = (rules.num_studies, rules.num_trials)
    differing_counts = [
        f"{name}, {workload}: {entry.studies} x {entry.trials}"
        for name, submission in scores.submissions.items()
        for workload, entry in submission.workloads.items()
        if entry.studies and (entry.studies, entry.trials) != rules_used
    ]
    omission_note = [f"and {len(differing_counts) - _MOST_NOTES} more"] if len(differing_counts) > _MOST_NOTES else []
    differences_note = (
        "; not so: " + "; ".join([*differing_counts[:_MOST_NOTES], *omission_note]) if differing_counts else ""
    )
    return [one_line(f"AlgoPerf {rules.version}, studies x trials {rules_used[0]} x {rules_used[1]}{differences_note}")]


def _removal_text(workload: str, entry: WorkloadTime) -> str:
    detail = entry.cause
    if not detail and entry.studies:
        detail = f"{entry.studies_that_reached} of {entry.studies} studies reached it"
    return f"{workload}: {entry.removed_by}" + (f" ({detail})" if detail else "")


def velo_record(scores: Mapping[str, VeloScore]) -> VeloRecord:
    """Returns `{"summary": {mean, deviation, percentiles}, "tasks": {task: {last, highest, mean, ...}}}`."""
    return {"summary": VeloSummary.of(scores), "tasks": dict(scores)}


def velo_table(scores: Mapping[str, VeloScore]) -> str:
    """Returns the mean speed-up and the speed-up of each task, with `>=` if the baselines never reached the loss."""
    rows = [("task", "speed-up", "highest", "mean", "last step", "seeds")]
    for task, score in scores.items():
        last_text = f"{'>= ' if score.is_bound else ''}{score.last:.4g}"
        number_cells = (f"{score.highest:.4g}", f"{score.mean:.4g}", f"{score.last_step:g}", str(score.num_seeds))
        rows.append((task, last_text, *number_cells))
    summary = VeloSummary.of(scores)
    shares = ", ".join(f"{share}%: {value:.4g}" for share, value in summary.percentiles.items())
    line = f"mean {summary.mean:.4g}, standard deviation {summary.deviation:.4g}; {shares}"
    return f"speed-up over {counted(len(scores), 'task')}: {line}\n\n{text_table(rows, left={0})}"
