"""How `lobench score` shows AlgoPerf scores: a table, or JSON with every removed workload and its rule."""

from __future__ import annotations

import json
from typing import Any

from lobench.analysis.algoperf import AlgoPerfScores, Targets, WorkloadTime
from lobench.core.finite import finite_or_none
from lobench.report.lines import text_table

__all__ = ["scores_json", "scores_table"]


def scores_json(found: AlgoPerfScores, targets: Targets) -> str:
    """Returns `{"scores": {submission: score}, ...}`; infinities are null."""
    record = {
        "scores": {name: submission.score for name, submission in found.submissions.items()},
        "submissions": {
            name: {
                "score": submission.score,
                "workloads": {
                    workload: {"held_out": workload in targets.base_of, **_workload(entry)}
                    for workload, entry in submission.workloads.items()
                },
            }
            for name, submission in found.submissions.items()
        },
        "log": {
            "evaluations": found.num_evaluations,
            "not_finite": found.num_not_finite,
            "repeated": found.num_repeated,
            "ignored_workloads": dict(found.ignored_workloads),
        },
    }
    return json.dumps(finite_or_none(record), indent=1, allow_nan=False)


def _workload(entry: WorkloadTime) -> dict[str, Any]:
    return {
        "seconds": entry.seconds,
        "ratio": entry.ratio,
        "studies": entry.num_studies,
        "studies_that_reached": entry.num_reached,
        "removed_by": str(entry.removed) if entry.removed is not None else None,
        "cause": entry.cause,
    }


def scores_table(found: AlgoPerfScores, targets: Targets) -> str:
    """Returns the scores, for each submission which rule removed which workload, and what was not scored."""
    rows = [("submission", "score", "workloads left", "removed")]
    for name, submission in found.submissions.items():
        base = [(workload, submission.workloads[workload]) for workload in targets.base]
        lost = [_why(workload, entry) for workload, entry in base if entry.removed is not None]
        first, *others = lost or [""]
        rows.append((name, f"{submission.score:.4f}", f"{len(base) - len(lost)} of {len(base)}", first))
        rows += [("", "", "", why) for why in others]
    counts = (
        f"{found.num_evaluations} evaluations, {found.num_not_finite} without a finite value, time or step"
        + (f", {found.num_repeated} repeated" if found.num_repeated else "")
        + (f"; not scored: {', '.join(found.ignored_workloads)}" if found.ignored_workloads else "")
    )
    return f"{text_table(rows, left={0, 3})}\n{counts}"


def _why(workload: str, entry: WorkloadTime) -> str:
    detail = entry.cause
    if not detail and entry.num_studies:
        detail = f"{entry.num_reached} of {entry.num_studies} studies reached it"
    return f"{workload}: {entry.removed}" + (f" ({detail})" if detail else "")
