"""The charts of a report: the outer-step curve, profiles, and each case's inner loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lobench.analysis.courses import courses_of
from lobench.analysis.findings import Findings
from lobench.analysis.methods import hyperparameters, shows_methods
from lobench.analysis.profiles import ratio_profile, score_profile, time_ratios
from lobench.core.errors import StoreError
from lobench.report.heat_map import accuracy_section
from lobench.report.search_figure import search_section
from lobench.report.sections import Figure, Section
from lobench.report.svg import Chart, Series, inner_chart, is_wide, number
from lobench.report.task_panels import task_panels

__all__ = ["sections"]

_MAX_POINTS = 400


def sections(findings: Findings, figure: str | None = None) -> list[Section]:
    """Returns the charts of a store, section by section.

    Args:
      figure: What the ids of sections begin with, `search`, say; None: all of them.
    Raises:
      StoreError: there is nothing of the figure that is asked for.
    """
    found = [one for one in _all(findings) if figure in (None, one.id.partition("-")[0])]
    if figure and not found:
        next_step = "a search is a method with `Method.search`" if figure == "search" else ""
        raise StoreError(f"nothing to draw of {figure!r}", where=str(findings.reading.store), next_step=next_step)
    return found


def _all(findings: Findings) -> list[Section]:
    found = []
    if len(findings.reading.subjects) > 1:
        found.append(_outer(findings))
    found += [_profiles(findings), _cases(findings)]
    if (matrix := accuracy_section(findings)) is not None:
        found.append(matrix)
    drawn = [place for place, _, _ in _subjects(findings)]
    every = range(len(findings.reading.subjects))
    for_all = ("outer", "matrix")  # sections of every subject
    found = [replace(one, trained_with=_trained_with(findings, every if one.id in for_all else drawn)) for one in found]
    beside = every if shows_methods(findings.reading) else sorted(drawn)
    panels = task_panels(findings.reading, beside)
    found += [panels] if panels is not None else []
    labels = dict(zip(findings.reading.methods, findings.reading.labels, strict=False))
    searches = [search_section(course) for course in courses_of(findings.reading.trials, labels)]
    return found + [one for one in searches if one is not None]


def _trained_with(findings: Findings, places: Sequence[int]) -> str:
    reading = findings.reading
    found = [(reading.labels[place], hyperparameters(reading.subjects[place])) for place in sorted(places)]
    return "; ".join(f"{label}: {text}" for label, text in found if text)


def _outer(findings: Findings) -> Section:
    subjects = findings.reading.subjects
    places = _thinned(range(len(subjects)), _MAX_POINTS)
    by_step = len({subject.checkpoint.outer_step for subject in subjects}) == len(subjects)
    x = [float(subjects[place].checkpoint.outer_step if by_step else place) for place in places]
    figures = []
    for metric in findings.metrics:
        found = [findings.mean_score(place, metric) for place in places]
        series = Series(
            label=f"score on {findings.metric_label(metric)}",
            x=x,
            y=[one.interval.mean for one in found],
            lower=[one.interval.lower for one in found],
            upper=[one.interval.upper for one in found],
            style="s1" if metric == "primary" else "s2",
            dots=len(places) <= 60,
        )
        line = Series(label="1 on the scale", x=[x[0], x[-1]], y=[1.0, 1.0], style="s3 dashed")
        chart = Chart(
            title=f"Score on {findings.metric_label(metric)} by outer step",
            description=f"From {number(series.y[0])} to {number(series.y[-1])} over {len(subjects)} checkpoints.",
            x_label="outer step" if by_step else "checkpoint, in order",
            y_label="score",
            series=(series, line),
        )
        partial = sum(one.num_missing > 0 for one in found)
        note = f"{partial} of {len(found)} points are means over fewer than all cases." if partial else ""
        figures.append(Figure(chart=chart, note=note))
    note = f"Mean over cases and seeds, 95% interval (stratified t); {findings.scale_label}."
    if len(places) < len(subjects):
        note += f" {len(places)} of {len(subjects)} checkpoints are drawn, evenly spaced; the table has all."
    return Section(id="outer", title="Along the run", note=note, kind="wide", figures=tuple(figures))


def _thinned(places: range, limit: int) -> list[int]:
    if len(places) <= limit:
        return list(places)
    return sorted({int(place) for place in np.rint(np.linspace(0, len(places) - 1, limit))})


def _profiles(findings: Findings) -> Section:
    pairs = _subjects(findings)
    taus = np.linspace(-1, 2, 121)
    figures = []
    for metric in findings.metrics:
        series = [
            Series(label=label, x=taus.tolist(), y=score_profile(scores, taus).tolist(), style=style, steps=True)
            for place, label, style in pairs
            if (scores := [list(found.values()) for found in findings.mean_score(place, metric).scores.values()])
        ]
        if series:
            name = findings.metric_label(metric)
            figures.append(
                Figure(
                    title=f"Score profile, {name}",
                    chart=Chart(
                        title=f"Score profile on {name}",
                        description="Share of runs with a score above tau.",
                        x_label="tau (score)",
                        y_label="share of runs",
                        series=tuple(series),
                        y_range=(0.0, 1.0),
                    ),
                    note="Share of runs (seeds of all cases) with a score above tau; higher is better.",
                )
            )
    if findings.baseline_label:
        figures.append(_ratio_profile(findings, pairs))
    return Section(
        id="profiles",
        title="Profiles",
        note="Score profiles ask how often a score is reached, ratio profiles "
        "how many times longer than the fastest it took.",
        kind="wide",
        figures=tuple(figures),
    )


def _subjects(findings: Findings) -> list[tuple[int, str, str]]:
    """Returns place, label and style of the shown subject and of the first one, where there are two."""
    labels = findings.reading.labels
    found = [(findings.shown, labels[findings.shown], "s1")]
    if findings.first != findings.shown:
        found.append((findings.first, labels[findings.first], "s2"))
    return found


def _ratio_profile(findings: Findings, pairs: Sequence[tuple[int, str, str]]) -> Figure:
    times = findings.times_to_tuned([place for place, _, _ in pairs])
    taus = np.geomspace(1, 20, 100)
    rows = ratio_profile(time_ratios(times), taus)
    names = [*((label, style) for _, label, style in pairs), (findings.baseline_label, "s3 dashed")]
    never = int(np.isinf(times[0]).sum())
    return Figure(
        title="Ratio profile",
        chart=Chart(
            title="Ratio profile",
            description="Share of cases that reach the tuned baseline's loss within tau times the fastest's steps.",
            x_label="tau (times the fastest)",
            y_label="share of cases",
            series=tuple(
                Series(label=label, x=taus.tolist(), y=row.tolist(), style=style, steps=True)
                for (label, style), row in zip(names, rows, strict=True)
            ),
            log_x=True,
            y_range=(0.0, 1.0),
        ),
        note="Inner steps to the tuned baseline's final training loss. "
        f"{findings.reading.openings[findings.shown]} never reached it on {never} of {times.shape[1]} cases.",
    )


def _cases(findings: Findings) -> Section:
    reading = findings.reading
    figures = tuple(
        _case(findings, case) for case in range(len(reading.cases)) if reading.cell(findings.shown, case) is not None
    )
    drawn = " and ".join(label for _, label, _ in _subjects(findings))
    against = f", against {findings.baseline_label}" if findings.baseline_label else ""
    return Section(
        id="curves",
        title="Inner training",
        note=f"Seed means of {drawn}{against}; dashed: test. A cross marks where a seed diverged: a mean has no "
        "value from there on.",
        kind="small",
        figures=figures,
    )


def _case(findings: Findings, case: int) -> Figure:
    reading = findings.reading
    metric = reading.cases[case].primary_metric
    test = "test/loss" if metric.endswith("/loss") and metric != "test/loss" else ""
    series = []
    for place, label, style in _subjects(findings):
        cell = reading.cell(place, case)
        if cell is None or metric not in cell.final:
            continue
        for name, kind in ((metric, style), (test, f"{style} dashed")):
            if name in cell.final:
                split = name.partition("/")[0]
                y = cell.curve(name).tolist()
                series.append(Series(label=f"{label}, {split}", x=cell.steps.tolist(), y=y, style=kind))
    baseline = findings.baseline(case)
    if baseline is not None:
        own = baseline.curve_steps <= baseline.num_inner_steps
        for name, kind in ((metric, "s3"), (test, "s3 dashed")):
            if name in baseline.curves:
                label = f"{findings.baseline_label}, {name.partition('/')[0]}"
                x, y = baseline.curve_steps[own].tolist(), baseline.curves[name][own].tolist()
                series.append(Series(label=label, x=x, y=y, style=kind))
    log = is_wide(series)
    return Figure(
        title=reading.name(case),
        chart=inner_chart(reading.name(case), metric, series, log_y=log),
        note=f"{metric}{', log scale' if log else ''}.",
    )
