"""Text, record and page of a history, with its chart."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup, escape

from lobench.core.errors import StoreError
from lobench.core.json_numbers import record_from
from lobench.core.number_checks import unless_nan
from lobench.core.wording import convert_errors, counted, one_line
from lobench.drawing.svg import Chart, Series
from lobench.engine.whole_file import write_whole
from lobench.report.page.templates import plain_page
from lobench.report.tables.text import interval_cell, text_table
from lobench.tools.history.history import CaseHistory, CaseRun, HistoryRecord, RunRecord, ScoreChange, ScoreChangeRecord

__all__ = ["history_record", "history_text", "write_history_page"]


def history_record(case_history: CaseHistory) -> HistoryRecord:
    """Returns the record for `--format json`."""
    runs = [
        record_from(RunRecord, run, program=str(run.program), num_seeds=len(run.scores)) for run in case_history.runs
    ]
    changes = [
        record_from(
            ScoreChangeRecord,
            change,
            run=change.run_index,
            git_revision=case_history.runs[change.run_index].git_revision,
        )
        for change in case_history.changes
    ]
    return record_from(HistoryRecord, case_history, runs=runs, changes=changes)


def history_text(case_history: CaseHistory) -> str:
    """Returns the changes, then a line for each run, the latest last."""
    change_names = {change.run_index: "rise" if change.is_rise else "fall" for change in case_history.changes}
    rows = [["date", "revision", "subject", "score [95%]", "change"]]
    lines: dict[int, str] = {}
    new_programs = {0, *case_history.new_programs}
    for index, run in enumerate(case_history.runs):
        if index in new_programs:
            lines[len(rows)] = f"-- {run.program}"
            rows.append(["", "", "", "", ""])
        date = datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d %H:%MZ")
        rows.append([date, run.git_revision or "-", run.subject, interval_cell(run.score), change_names.get(index, "")])
    table_lines = text_table(rows).splitlines()
    for number, text in lines.items():
        table_lines[number] = one_line(text)
    seeds_text = counted(len(case_history.seeds), f"common {case_history.replicate}")
    extent_text = f"{counted(len(case_history.runs), 'run')}, {seeds_text}"
    name = f"{case_history.case} ({case_history.metric})"
    answer_lines = [f"{name}: {_change_line(case_history, change)}" for change in case_history.changes]
    answer_lines = answer_lines or [f"{name}: no change of the score is shown in {extent_text}"]
    notes = [
        *([extent_text] if case_history.changes else []),
        case_history.scale,
        *filter(None, [case_history.other_code]),
    ]
    return "\n".join([*map(one_line, answer_lines), "", *table_lines, "", *map(one_line, notes)])


def _change_line(case_history: CaseHistory, change: ScoreChange) -> str:
    run = case_history.runs[change.run_index]
    direction = "a rise" if change.is_rise else "a fall"
    lost_before, num_before, lost_after, num_after = change.lost
    replicates = f"{case_history.replicate}s"
    lost_note = (
        f"; diverged or exploded: {lost_before} of {num_before} {replicates} before, "
        f"{lost_after} of {num_after} from it on"
    )
    lost_note = lost_note if lost_before + lost_after else ""
    program_note = ", and so is the program" if change.is_new_program else ""
    is_same = change.run_index > 0 and case_history.runs[change.run_index - 1].git_revision == run.git_revision != ""
    cause = "code" if is_same else "revision"
    return (
        f"{direction} of {abs(change.size):.3f} +- {change.standard_deviation:.3f} in score at {_run_name(run)} "
        f"({change.probability:.2%} that there is one, {change.probability_here:.0%} that it is here): "
        f"the {cause} is new{program_note}{lost_note}"
    )


def _run_name(run: CaseRun) -> str:
    return run.git_revision or f"{run.store.name}"


def write_history_page(case_history: CaseHistory, output: Path) -> None:
    """Writes a page with the chart, atomically."""
    body = Markup("<p class='quiet'>{}</p><figure>{}</figure><pre class='scroll'>{}</pre>").format(
        case_history.scale, _history_chart(case_history).svg(), history_text(case_history)
    )
    with convert_errors(OSError, StoreError, "cannot write the page", where=output):
        write_whole(output, plain_page(f"History of {escape(case_history.case)}", body))


def _history_chart(case_history: CaseHistory) -> Chart:
    """Returns the chart: scores by run, levels between changes, and a line at each new program."""
    means = [run.score.mean for run in case_history.runs]
    lower = [unless_nan(run.score.lower, run.score.mean) for run in case_history.runs]
    upper = [unless_nan(run.score.upper, run.score.mean) for run in case_history.runs]
    indices = [float(index) for index in range(len(case_history.runs))]
    series = [Series(label="score", x=indices, y=means, lower=lower, upper=upper, style="s1", dots=True)]
    edges = [0, *(change.run_index for change in case_history.changes), len(means)]
    for start, stop in itertools.pairwise(edges):
        level = math.fsum(means[start:stop]) / (stop - start)
        x_range = [float(start), float(stop - 1)]
        label = "" if start else "level"
        series.append(Series(label=label, x=x_range, y=[level, level], style="s2 dashed"))
    low = min(lower)
    high = max(upper)
    for number, run_index in enumerate(case_history.new_programs):
        boundary = run_index - 0.5
        label = "" if number else "new program"
        series.append(Series(label=label, x=[boundary, boundary], y=[low, high], style="s4 dashed"))
    changes = ", ".join(_run_name(case_history.runs[change.run_index]) for change in case_history.changes) or "none"
    return Chart(
        title=f"{case_history.case}: score by run",
        description=f"Changes: {changes}.",
        x_label="run",
        y_label="score",
        series=tuple(series),
        width=900,
        x_names=tuple(_run_name(run)[:10] for run in case_history.runs),
    )
