"""The table of `lobench results --history`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from lobench.analysis.history import RunSummary
from lobench.analysis.intervals import Interval
from lobench.core.program import describe_programs
from lobench.report.lines import text_table

__all__ = ["history_table"]


def history_table(runs: Sequence[RunSummary]) -> str:
    """Returns a line for each run, the latest last, and what its numbers mean."""
    if not runs:
        return "the stores hold no evaluation yet"
    metrics = list(dict.fromkeys(name for run in runs for name in run.scores))
    header = [
        "date",
        "store",
        "revision",
        "checkpoints",
        "evaluations",
        "last checkpoint",
        *metrics,
        "diverged",
        "exploded",
    ]
    rows = [header, *(_cells(run, metrics) for run in runs)]
    unscored = sum(run.num_unscored for run in runs)
    legend = "of the last checkpoint, mean over its cases and 95% interval"
    note = [f"{unscored} cases have no scale, since nobody trained them"] if unscored else []
    if several := describe_programs({program for run in runs for program in run.programs}):
        note.append(several)
    return "\n".join([text_table(rows, left={0, 1, 2, 5}), "", legend, runs[0].scale, *note])


def _cells(run: RunSummary, metrics: Sequence[str]) -> list[str]:
    return [
        datetime.fromtimestamp(run.last).isoformat(" ", "minutes"),
        str(run.store),
        run.git_revision or "-",
        str(run.num_checkpoints),
        str(run.num_evaluations),
        run.last_checkpoint,
        *(_interval(run.scores.get(name)) for name in metrics),
        f"{run.num_diverged}/{run.num_seeds}",
        f"{run.num_exploded}/{run.num_seeds}",
    ]


def _interval(found: Interval | None) -> str:
    """Returns `0.52 [0.44, 0.60]`; without bounds where there are none."""
    if found is None or math.isnan(found.mean):
        return "-"
    if math.isnan(found.lower):
        return f"{found.mean:.3f}"
    return f"{found.mean:.3f} [{found.lower:.3f}, {found.upper:.3f}]"
