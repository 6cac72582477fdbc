"""Tables of `lobench results --history`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

from lobench.analysis.comparisons.run_history import ExperimentSummary, RunSummary
from lobench.core.program import describe_programs
from lobench.core.wording import one_line, shortened_list
from lobench.report.tables.text import interval_cell, text_table

__all__ = ["HistoryRecords", "experiments_table", "history_table"]

HistoryRecords: TypeAlias = Annotated[
    list[ExperimentSummary | RunSummary], "`lobench results --history`: experiments and runs by date."
]

_MAX_NAMED_METHODS = 4  # methods


def experiments_table(experiments: Sequence[ExperimentSummary]) -> str:
    """Returns a table with a line for each version of an experiment, the latest last, and notes on its numbers."""
    header = ["date", "store", "experiment", "id", "revision", "patch", "methods", "evaluations", "best", "score"]
    rows = [header]
    for row in experiments:
        omission_note = (
            [f"and {len(row.methods) - _MAX_NAMED_METHODS} more"] if len(row.methods) > _MAX_NAMED_METHODS else []
        )
        rows.append(
            [
                _date_text(row.last),
                str(row.store),
                one_line(row.name),
                str(row.id),
                row.git_revision or "-",
                f"{row.patch_bytes:,} B" if row.patch_bytes else "-",
                ", ".join([*map(one_line, row.methods[:_MAX_NAMED_METHODS]), *omission_note]) or "-",
                str(row.num_evaluations),
                shortened_list([*map(one_line, (row.best, *row.level_with))], _MAX_NAMED_METHODS) or "-",
                interval_cell(row.score),
            ]
        )
    metrics = ", ".join(dict.fromkeys(row.metric for row in experiments if row.metric))
    notes: dict[tuple[str, str, Path], list[str]] = {}
    for row in experiments:
        for note in filter(None, (row.note, row.over and f"best is over {row.over}")):
            notes.setdefault((note, row.name, row.store), []).append(str(row.id))
    legend = f"best: highest mean score over the cases that all methods have ({metrics}), with its 95% interval"
    legend = legend if metrics else ""
    patches = "revision+: tracked files differed; `--patch ID` prints what `git apply` makes them of"
    is_dirty = any(row.git_revision.endswith("+") for row in experiments)
    lines = [legend, experiments[-1].scale if metrics else "", patches if is_dirty else ""]
    lines += [f"{one_line(name)}, id {', '.join(ids)}: {one_line(note)}" for (note, name, _), ids in notes.items()]
    return "\n".join([text_table(rows, left={0, 1, 2, 4, 6, 8}), "", *filter(None, lines)])


def _date_text(timestamp: float) -> str:
    """Formats a time in UTC, marked by Z."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%MZ")


def history_table(runs: Sequence[RunSummary]) -> str:
    """Returns a table with a line for each run, the latest last, and notes on its numbers."""
    if not runs:
        return "the stores hold no evaluation yet"
    metrics = list(dict.fromkeys(name for run in runs for name in run.scores))
    header = ["date", "store", "revision", "subjects", "evaluations", "last subject"]
    rows = [[*header, *metrics, "diverged", "exploded"], *(_run_row(run, metrics) for run in runs)]
    unscored = sum(run.num_unscored for run in runs)
    legend = "of the last subject, mean over its cases and 95% interval"
    note = [f"{unscored} cases have no scale, since they were not trained here"] if unscored else []
    if several := describe_programs({program for run in runs for program in run.programs}):
        note.append(several)
    return "\n".join([text_table(rows, left={0, 1, 2, 5}), "", legend, runs[0].scale, *note])


def _run_row(run: RunSummary, metrics: Sequence[str]) -> list[str]:
    return [
        _date_text(run.last),
        str(run.store),
        run.git_revision or "-",
        str(run.num_checkpoints),
        str(run.num_evaluations),
        run.last_checkpoint,
        *(interval_cell(run.scores.get(name)) for name in metrics),
        f"{run.num_diverged}/{run.num_seeds}",
        f"{run.num_exploded}/{run.num_seeds}",
    ]
