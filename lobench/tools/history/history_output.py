"""Text, record and page of a history, with its chart."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup, escape

from lobench.core.errors import StoreError
from lobench.core.json_numbers import finite_or_none, record_from
from lobench.core.wording import counted, one_line, one_line_of
from lobench.engine.whole_file import write_whole
from lobench.report.charts.svg import Chart, Series
from lobench.report.page.templates import plain_page
from lobench.report.tables.text import interval_cell, text_table
from lobench.tools.history.history import CaseHistory, CaseRun, HistoryRecord, RunRecord, ScoreChange, ScoreChangeRecord

__all__ = ["history_record", "history_text", "write_history_page"]


def history_record(found: CaseHistory) -> HistoryRecord:
    """Returns the record for `--format json`."""
    runs = [record_from(RunRecord, run, program=str(run.program), num_seeds=len(run.scores)) for run in found.runs]
    changes = [
        record_from(
            ScoreChangeRecord,
            one,
            run=one.place,
            git_revision=found.runs[one.place].git_revision,
            standard_deviation=one.error,
            probability_here=one.here,
        )
        for one in found.changes
    ]
    return finite_or_none(record_from(HistoryRecord, found, runs=runs, changes=changes))


def history_text(found: CaseHistory) -> str:
    """Returns the changes, then a line for each run, the latest last."""
    marks = {change.place: "rise" if change.is_rise else "fall" for change in found.changes}
    rows = [["date", "revision", "subject", "score [95%]", "change"]]
    lines: dict[int, str] = {}
    new_programs = {0, *found.new_programs}
    for place, run in enumerate(found.runs):
        if place in new_programs:
            lines[len(rows)] = f"-- {run.program}"
            rows.append(["", "", "", "", ""])
        date = datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d %H:%MZ")
        rows.append([date, run.git_revision or "-", run.subject, interval_cell(run.score), marks.get(place, "")])
    table = text_table(rows).splitlines()
    for number, text in lines.items():
        table[number] = one_line(text)
    over = f"{counted(len(found.runs), 'run')}, {counted(len(found.seeds), f'common {found.replicate}')}"
    name = f"{found.case} ({found.metric})"
    answer = [f"{name}: {_change_line(found, change)}" for change in found.changes]
    answer = answer or [f"{name}: no change of the score is shown in {over}"]
    notes = [*([over] if found.changes else []), found.scale, *filter(None, [found.other_code])]
    return "\n".join([*map(one_line, answer), "", *table, "", *map(one_line, notes)])


def _change_line(found: CaseHistory, change: ScoreChange) -> str:
    run = found.runs[change.place]
    what = "a rise" if change.is_rise else "a fall"
    before, all_before, after, all_after = change.lost
    lost = (
        f"; diverged or exploded: {before} of {all_before} {found.replicate}s before, {after} of {all_after} from it on"
    )
    lost = lost if before + after else ""
    also = ", and so is the program" if change.is_new_program else ""
    is_same = change.place > 0 and found.runs[change.place - 1].git_revision == run.git_revision != ""
    new = "code" if is_same else "revision"
    return (
        f"{what} of {abs(change.size):.3f} +- {change.error:.3f} in score at {_name(run)} ({change.probability:.2%} "
        f"that there is one, {change.here:.0%} that it is here): the {new} is new{also}{lost}"
    )


def _name(run: CaseRun) -> str:
    return run.git_revision or f"{run.store.name}"


def write_history_page(found: CaseHistory, output: Path) -> None:
    """Writes a page with the chart, atomically."""
    body = Markup("<p class='quiet'>{}</p><figure>{}</figure><pre class='scroll'>{}</pre>").format(
        found.scale, _chart(found).svg(), history_text(found)
    )
    with one_line_of(OSError, StoreError, "cannot write the page", where=output):
        write_whole(output, plain_page(f"History of {escape(found.case)}", body))


def _chart(found: CaseHistory) -> Chart:
    """Returns the chart: scores by run, levels between changes, and a line at each new program."""
    means = [run.score.mean for run in found.runs]
    lower = [_or(run.score.lower, run.score.mean) for run in found.runs]
    upper = [_or(run.score.upper, run.score.mean) for run in found.runs]
    places = [float(place) for place in range(len(found.runs))]
    series = [Series(label="score", x=places, y=means, lower=lower, upper=upper, style="s1", dots=True)]
    edges = [0, *(change.place for change in found.changes), len(means)]
    for start, stop in itertools.pairwise(edges):
        level = math.fsum(means[start:stop]) / (stop - start)
        ends = [float(start), float(stop - 1)]
        label = "" if start else "level"
        series.append(Series(label=label, x=ends, y=[level, level], style="s2 dashed"))
    low, high = min(lower), max(upper)
    for number, place in enumerate(found.new_programs):
        at = place - 0.5
        label = "" if number else "new program"
        series.append(Series(label=label, x=[at, at], y=[low, high], style="s4 dashed"))
    changes = ", ".join(_name(found.runs[change.place]) for change in found.changes) or "none"
    return Chart(
        title=f"{found.case}: score by run",
        description=f"Changes: {changes}.",
        x_label="run",
        y_label="score",
        series=tuple(series),
        width=900,
        x_names=tuple(_name(run)[:10] for run in found.runs),
    )


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value
