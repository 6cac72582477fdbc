"""Score charts of a store: lines along runs by outer step, and points for methods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lobench.analysis.comparisons.best_group import bold_means
from lobench.analysis.store.groups import run_names, steps_increase
from lobench.core.wording import counted, shortened_list
from lobench.drawing.curves import evenly_spaced_indices
from lobench.drawing.svg import STYLES, Chart, Series, format_number
from lobench.report.charts.sections import Figure, Section
from lobench.report.charts.styles import method_styles

if TYPE_CHECKING:
    from lobench.analysis.comparisons.summary import Summary

__all__ = ["methods_section", "runs_section"]

_MAX_POINTS = 400
_MOST_DOTS = 60
_MOST_ROWS = 40
_MOST_NAMED = 4
_MOST_COMPARED = 16  # methods compared with the best, each by a test on every case


def runs_section(summary: Summary) -> Section | None:
    """Returns the chart of scores by outer step; None if no run has two checkpoints."""
    runs = summary.snapshot.groups.runs
    if not runs:
        return None
    drawn_runs = [
        [run[position] for position in evenly_spaced_indices(len(run), max(_MAX_POINTS // len(runs), 2))]
        for run in runs
    ]
    note = f"Mean over cases and seeds, 95% interval (stratified t); {summary.scale_label}."
    if (num_drawn := sum(map(len, drawn_runs))) < (num_checkpoints := sum(map(len, runs))):
        note += f" {num_drawn} of {num_checkpoints} checkpoints are drawn, evenly spaced."
    figures = tuple(_runs_figure(summary, metric, drawn_runs) for metric in summary.metrics)
    return Section(id="outer", title="Along the run", note=note, kind="wide", figures=figures)


def _runs_figure(summary: Summary, metric: str, runs: Sequence[Sequence[int]]) -> Figure:
    subjects = summary.snapshot.subjects
    label = summary.metric_label(metric)
    is_by_step = steps_increase(subjects, runs)
    series = [
        _run_series(summary, metric, run, is_by_step, name, style, has_band=len(runs) <= len(STYLES))
        for run, (name, style) in zip(runs, _names_and_styles(summary, metric, runs), strict=True)
    ]
    if sum(map(len, runs)) > _MOST_DOTS:
        series = [replace(line, dots=False) for line in series]
    x_range = [min(line.x[0] for line in series), max(line.x[-1] for line in series)]
    means = [value for line in series for value in line.y if math.isfinite(value)]
    change_text = f"From {format_number(means[0])} to {format_number(means[-1])} over" if means else "No score of"
    levels = _level_series(summary, metric, x_range)
    x_label = "outer step" if is_by_step else "checkpoint, in order"
    chart = Chart(
        title=f"Score on {label} by outer step",
        description=f"{change_text} {counted(sum(map(len, runs)), 'checkpoint')}.",
        x_label=x_label,
        y_label="score",
        series=(*series, *levels, Series(label="1 on the scale", x=x_range, y=[1.0, 1.0], style="s3 dashed")),
    )
    return Figure(chart=chart, note=_lacking_note(summary, metric, [index for run in runs for index in run]))


def _names_and_styles(summary: Summary, metric: str, runs: Sequence[Sequence[int]]) -> list[tuple[str, str]]:
    """Returns label and style of each run's line. All lines are alike if there are very many runs."""
    styles = method_styles(summary)
    shown_runs = summary.headline_index
    run_styles = [styles[shown_runs if shown_runs in run else run[-1]] for run in runs]
    if len(runs) == 1:
        return [(f"score on {summary.metric_label(metric)}", run_styles[0])]
    if len(runs) > len(STYLES):
        return [("" if index else f"{counted(len(runs), 'run')}", "s1 faint") for index in range(len(runs))]
    return list(zip(run_names(summary.snapshot.subjects, runs), run_styles, strict=True))


def _run_series(
    summary: Summary, metric: str, run: Sequence[int], is_by_step: bool, name: str, style: str, *, has_band: bool
) -> Series:
    intervals = [summary.mean_score(index, metric).interval for index in run]
    lower = [interval.lower for interval in intervals] if has_band else None
    return Series(
        label=name,
        x=[
            float(summary.snapshot.subjects[index].subject.outer_step if is_by_step else position)
            for position, index in enumerate(run)
        ],
        y=[interval.mean for interval in intervals],
        lower=lower,
        upper=[interval.upper for interval in intervals] if has_band else None,
        style=style,
        dots=True,
    )


def _level_series(summary: Summary, metric: str, x_range: Sequence[float]) -> list[Series]:
    """Returns level lines for methods without outer steps, as many as there are styles."""
    snapshot = summary.snapshot
    styles = method_styles(summary)
    means = {index: summary.mean_score(index, metric).mean for index in snapshot.groups.single_indices}
    scored_indices = [index for index, mean in means.items() if not math.isnan(mean)]
    return [
        Series(
            label=snapshot.labels[index], x=x_range, y=[means[index]] * 2, style=f"{styles[index].split()[0]} dashed"
        )
        for index in scored_indices[: len(STYLES) - 1]
    ]


def _lacking_note(summary: Summary, metric: str, indices: Iterable[int]) -> str:
    """Returns a note on checkpoints that lack cases, or have no point."""
    scores = [summary.mean_score(index, metric) for index in indices]
    num_without = sum(math.isnan(score.mean) for score in scores)
    num_partial = sum(score.num_missing > 0 for score in scores) - num_without
    notes = [f"{num_partial} of {len(scores)} points are means over fewer than all cases."] if num_partial else []
    verb = "has" if num_without == 1 else "have"
    notes += (
        [f"{num_without} of {counted(len(scores), 'checkpoint')} {verb} no score, and no point."] if num_without else []
    )
    return " ".join(notes)


def methods_section(summary: Summary) -> Section | None:
    """Returns the chart of mean scores by method, the best one on top; None if there are fewer than two methods.

    If there are several suites, each has an additional figure. A run is represented by its first and last checkpoints.
    """
    snapshot = summary.snapshot
    if not snapshot.groups.has_several_methods:
        return None
    suites = sorted({case.suite for case in snapshot.cases})
    figures = [
        figure
        for suite in ("", *(suites if len(suites) > 1 else ()))
        for metric in summary.metrics
        if (figure := _ranking_figure(summary, metric, suite)) is not None
    ]
    note = f"Mean over cases and seeds, 95% interval (stratified t); {summary.scale_label}."
    if not figures:
        return None
    return Section(id="scores", title="Side by side", note=note, kind="wide", figures=tuple(figures))


def _ranking_figure(summary: Summary, metric: str, suite: str) -> Figure | None:
    snapshot = summary.snapshot
    label = summary.metric_label(metric) + (f", {suite}" if suite else "")
    indices = snapshot.groups.short_table_indices(summary.headline_index)
    means = {index: summary.mean_score(index, metric, suite).mean for index in indices}
    scored_indices = sorted(
        (index for index in indices if not math.isnan(means[index])), key=lambda index: means[index]
    )
    if not scored_indices:
        return None
    drawn_indices = scored_indices[-_MOST_ROWS:]
    intervals = [summary.mean_score(index, metric, suite).interval for index in drawn_indices]
    rows = [float(row) for row in range(len(drawn_indices))]
    names = tuple(snapshot.labels[index] for index in drawn_indices)
    styles = method_styles(summary)
    bars = [
        Series(label="", x=[interval.lower, interval.upper], y=[row, row], style=styles[index].split()[0])
        for index, row, interval in zip(drawn_indices, rows, intervals, strict=True)
    ]
    points = [
        Series(label="", x=[interval.mean], y=[row], style=styles[index].split()[0], dots=True, line=False)
        for index, row, interval in zip(drawn_indices, rows, intervals, strict=True)
    ]
    notes = [
        _best_sentence(summary, metric, suite, drawn_indices),
        "" if suite else _lacking_methods(summary, metric, indices),
    ]
    if len(drawn_indices) < len(scored_indices):
        notes.append(f"The best {len(drawn_indices)} of {len(scored_indices)} are drawn.")
    return Figure(
        title=f"Score on {label}",
        chart=Chart(
            title=f"Mean score on {label} by method",
            description=f"Best: {names[-1]}, {format_number(round(intervals[-1].mean, 3))}.",
            x_label="score",
            y_label="",
            series=(*bars, *points),
            y_names=names,
            height=70 + 22 * len(drawn_indices),
        ),
        note=" ".join(filter(None, notes)),
    )


def _best_sentence(summary: Summary, metric: str, suite: str, indices: Sequence[int]) -> str:
    """Returns a sentence on the evidence that the last method is the best; "" without a comparison.

    The best trial of a search is included only with scores on fresh seeds, because the seeds that chose it are biased.
    """
    labels = summary.snapshot.labels
    fair_indices = [
        index for index in indices if (search := summary.snapshot.search_of(index)) is None or search.has_fresh_seeds
    ]
    if not 2 <= len(fair_indices) <= _MOST_COMPARED:
        return ""
    group = {fair_indices[index] for index in bold_means(summary, fair_indices, metric, suite).indices}
    if indices[-1] not in group:
        return ""
    equal_labels = [labels[index] for index in reversed(fair_indices[:-1]) if index in group]
    undecided_text = f"is not significantly better than {shortened_list(equal_labels, _MOST_NAMED)}"
    worse_label = labels[fair_indices[0]] if len(fair_indices) == 2 else "each of the others"
    verdict = undecided_text if equal_labels else f"is better than {worse_label}"
    return f"{labels[indices[-1]]} {verdict} (level .05 for all together)."


def _lacking_methods(summary: Summary, metric: str, indices: Sequence[int]) -> str:
    labels = summary.snapshot.labels
    means = {index: summary.mean_score(index, metric) for index in indices}
    without_mean = [labels[index] for index in indices if math.isnan(means[index].mean)]
    partial_texts = [
        f"{labels[index]} ({score.num_cases} of {score.num_cases + score.num_missing})"
        for index, score in means.items()
        if score.num_missing and score.num_cases
    ]
    if cases_text := summary.common_cases_text(metric):
        notes = [f"Means are over {cases_text}."]
    else:
        notes = (
            [f"Over fewer than all cases: {', '.join(partial_texts)}."]
            if partial_texts and len(partial_texts) < len(indices)
            else []
        )
    return " ".join([*notes, *([f"Without a score: {', '.join(without_mean)}."] if without_mean else [])])
