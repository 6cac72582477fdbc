"""Score charts of a store: lines along runs by outer step, and points for methods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lobench.analysis.comparisons.best_group import bold_means
from lobench.analysis.store.groups import are_by_step, run_names
from lobench.core.wording import counted, first_of
from lobench.drawing.curves import evenly
from lobench.drawing.svg import STYLES, Chart, Series, number
from lobench.report.charts.sections import Figure, Section
from lobench.report.charts.styles import method_styles

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Summary

__all__ = ["along_runs", "side_by_side"]

_MAX_POINTS = 400
_MOST_DOTS = 60
_MOST_ROWS = 40
_MOST_NAMED = 4
_MOST_COMPARED = 16  # methods compared with the best, each by a test on every case


def along_runs(summary: Summary) -> Section | None:
    """Returns the chart of scores by outer step; None if no run has two checkpoints."""
    runs = summary.snapshot.groups.runs
    if not runs:
        return None
    drawn = [[run[at] for at in evenly(len(run), max(_MAX_POINTS // len(runs), 2))] for run in runs]
    note = f"Mean over cases and seeds, 95% interval (stratified t); {summary.scale_label}."
    if (few := sum(map(len, drawn))) < (every := sum(map(len, runs))):
        note += f" {few} of {every} checkpoints are drawn, evenly spaced."
    figures = tuple(_along(summary, metric, drawn) for metric in summary.metrics)
    return Section(id="outer", title="Along the run", note=note, kind="wide", figures=figures)


def _along(summary: Summary, metric: str, runs: Sequence[Sequence[int]]) -> Figure:
    subjects = summary.snapshot.subjects
    label = summary.metric_label(metric)
    by_step = are_by_step(subjects, runs)
    series = [
        _curve(summary, metric, run, by_step, name, style, has_band=len(runs) <= len(STYLES))
        for run, (name, style) in zip(runs, _names_and_styles(summary, metric, runs), strict=True)
    ]
    if sum(map(len, runs)) > _MOST_DOTS:
        series = [replace(one, dots=False) for one in series]
    ends = [min(one.x[0] for one in series), max(one.x[-1] for one in series)]
    means = [value for one in series for value in one.y if math.isfinite(value)]
    change = f"From {number(means[0])} to {number(means[-1])} over" if means else "No score of"
    levels = _levels(summary, metric, ends)
    x_label = "outer step" if by_step else "checkpoint, in order"
    chart = Chart(
        title=f"Score on {label} by outer step",
        description=f"{change} {counted(sum(map(len, runs)), 'checkpoint')}.",
        x_label=x_label,
        y_label="score",
        series=(*series, *levels, Series(label="1 on the scale", x=ends, y=[1.0, 1.0], style="s3 dashed")),
    )
    return Figure(chart=chart, note=_lacking(summary, metric, [place for run in runs for place in run]))


def _names_and_styles(summary: Summary, metric: str, runs: Sequence[Sequence[int]]) -> list[tuple[str, str]]:
    """Returns label and style of each run's line. All lines are alike if there are very many runs."""
    styles = method_styles(summary)
    shown = summary.shown
    own_styles = [styles[shown if shown in run else run[-1]] for run in runs]
    if len(runs) == 1:
        return [(f"score on {summary.metric_label(metric)}", own_styles[0])]
    if len(runs) > len(STYLES):
        return [("" if index else f"{counted(len(runs), 'run')}", "s1 faint") for index in range(len(runs))]
    return list(zip(run_names(summary.snapshot.subjects, runs), own_styles, strict=True))


def _curve(
    summary: Summary, metric: str, run: Sequence[int], by_step: bool, name: str, style: str, *, has_band: bool
) -> Series:
    intervals = [summary.mean_score(place, metric).interval for place in run]
    lower = [interval.lower for interval in intervals] if has_band else None
    return Series(
        label=name,
        x=[float(summary.snapshot.subjects[place].who.outer_step if by_step else at) for at, place in enumerate(run)],
        y=[interval.mean for interval in intervals],
        lower=lower,
        upper=[interval.upper for interval in intervals] if has_band else None,
        style=style,
        dots=True,
    )


def _levels(summary: Summary, metric: str, ends: Sequence[float]) -> list[Series]:
    """Returns level lines for methods without outer steps, as many as there are styles."""
    snapshot = summary.snapshot
    styles = method_styles(summary)
    means = {place: summary.mean_score(place, metric).mean for place in snapshot.groups.alone}
    scored = [place for place, mean in means.items() if not math.isnan(mean)]
    return [
        Series(label=snapshot.labels[place], x=ends, y=[means[place]] * 2, style=f"{styles[place].split()[0]} dashed")
        for place in scored[: len(STYLES) - 1]
    ]


def _lacking(summary: Summary, metric: str, places: Iterable[int]) -> str:
    """Returns a note on checkpoints that lack cases, or have no point."""
    scores = [summary.mean_score(place, metric) for place in places]
    none = sum(math.isnan(score.mean) for score in scores)
    partial = sum(score.num_missing > 0 for score in scores) - none
    parts = [f"{partial} of {len(scores)} points are means over fewer than all cases."] if partial else []
    parts += [f"{none} of {counted(len(scores), 'checkpoint')} have no score, and no point."] if none else []
    return " ".join(parts)


def side_by_side(summary: Summary) -> Section | None:
    """Returns the chart of mean scores by method, the best one on top; None if there are fewer than two methods.

    If there are several suites, each has an additional figure. A run is represented by its first and last checkpoints.
    """
    snapshot = summary.snapshot
    if not snapshot.groups.shows_methods:
        return None
    suites = sorted({case.suite for case in snapshot.cases})
    figures = [
        figure
        for suite in ("", *(suites if len(suites) > 1 else ()))
        for metric in summary.metrics
        if (figure := _ranked(summary, metric, suite)) is not None
    ]
    note = f"Mean over cases and seeds, 95% interval (stratified t); {summary.scale_label}."
    if not figures:
        return None
    return Section(id="scores", title="Side by side", note=note, kind="wide", figures=tuple(figures))


def _ranked(summary: Summary, metric: str, suite: str) -> Figure | None:
    snapshot = summary.snapshot
    label = summary.metric_label(metric) + (f", {suite}" if suite else "")
    places = snapshot.groups.ends(summary.shown)
    means = {place: summary.mean_score(place, metric, suite).mean for place in places}
    every = sorted((place for place in places if not math.isnan(means[place])), key=lambda one: means[one])
    if not every:
        return None
    scored = every[-_MOST_ROWS:]
    intervals = [summary.mean_score(place, metric, suite).interval for place in scored]
    rows = [float(row) for row in range(len(scored))]
    names = tuple(snapshot.labels[place] for place in scored)
    styles = method_styles(summary)
    bars = [
        Series(label="", x=[interval.lower, interval.upper], y=[row, row], style=styles[place].split()[0])
        for place, row, interval in zip(scored, rows, intervals, strict=True)
    ]
    points = [
        Series(label="", x=[interval.mean], y=[row], style=styles[place].split()[0], dots=True, line=False)
        for place, row, interval in zip(scored, rows, intervals, strict=True)
    ]
    notes = [_best(summary, metric, suite, scored), "" if suite else _lacking_methods(summary, metric, places)]
    if len(scored) < len(every):
        notes.append(f"The best {len(scored)} of {len(every)} are drawn.")
    return Figure(
        title=f"Score on {label}",
        chart=Chart(
            title=f"Mean score on {label} by method",
            description=f"Best: {names[-1]}, {number(round(intervals[-1].mean, 3))}.",
            x_label="score",
            y_label="",
            series=(*bars, *points),
            y_names=names,
            height=70 + 22 * len(scored),
        ),
        note=" ".join(filter(None, notes)),
    )


def _best(summary: Summary, metric: str, suite: str, scored: Sequence[int]) -> str:
    """Returns a sentence on the evidence that the last method is the best; "" without a comparison.

    The best trial of a search is included only with scores on fresh seeds, because the seeds that chose it are biased.
    """
    labels = summary.snapshot.labels
    fair = [place for place in scored if (own := summary.snapshot.search(place)) is None or own.is_fresh]
    if not 2 <= len(fair) <= _MOST_COMPARED:
        return ""
    group = {fair[index] for index in bold_means(summary, fair, metric, suite).places}
    if scored[-1] not in group:
        return ""
    others = [labels[place] for place in reversed(fair[:-1]) if place in group]
    apart = f"is not significantly better than {first_of(others, _MOST_NAMED)}"
    rest = labels[fair[0]] if len(fair) == 2 else "each of the others"
    verdict = apart if others else f"is better than {rest}"
    return f"{labels[scored[-1]]} {verdict} (level .05 for all together)."


def _lacking_methods(summary: Summary, metric: str, places: Sequence[int]) -> str:
    labels = summary.snapshot.labels
    means = {place: summary.mean_score(place, metric) for place in places}
    none = [labels[place] for place in places if math.isnan(means[place].mean)]
    partial = [
        f"{labels[place]} ({one.num_cases} of {one.num_cases + one.num_missing})"
        for place, one in means.items()
        if one.num_missing and one.num_cases
    ]
    if which := summary.over_which_cases(metric):
        parts = [f"Means are over {which}."]
    else:
        parts = [f"Over fewer than all cases: {', '.join(partial)}."] if partial and len(partial) < len(places) else []
    return " ".join([*parts, *([f"Without a score: {', '.join(none)}."] if none else [])])
