"""Charts of a report: the outer-step curve, profiles, and each case's inner loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.stats.bands import bands
from lobench.analysis.stats.profiles import ratio_profile, score_profile, time_ratios
from lobench.analysis.store.methods import hyperparameters_text
from lobench.analysis.store.search_history import search_histories_of, search_notes
from lobench.analysis.tables.accuracy_matrix import accuracy_matrix
from lobench.core.containment import convert_plugin_errors
from lobench.core.errors import LobenchError, PluginFailure, StoreError
from lobench.core.wording import counted, describe_value, headline
from lobench.drawing.heat_map import HeatMap, format_share
from lobench.drawing.svg import STYLES, Chart, Series, inner_chart, needs_log_axis
from lobench.plugins import Registered, load_plugins
from lobench.report.charts.runs_chart import methods_section, runs_section
from lobench.report.charts.search_figure import search_section
from lobench.report.charts.sections import Figure, Section, View
from lobench.report.charts.styles import method_styles
from lobench.report.charts.task_panels import task_panels

__all__ = ["sections"]

_MOST_DRAWN = 2 * len(STYLES)
_MOST_CURVES = len(STYLES)  # most curves of a case's small chart
_MOST_WITH_TEST = 3
_MOST_HEAT_MAPS = 60


def sections(summary: Summary, figure: str | None = None) -> list[Section]:
    """Returns the charts of a store, section by section.

    Args:
      summary: Summary of the store.
      figure: First part of the sections' ids, such as "search". None: all sections.
    Raises:
      StoreError: The store has no such section.
    """
    chosen = [section for section in _every_section(summary) if figure in (None, section.id.partition("-")[0])]
    if figure and not chosen:
        where = str(summary.snapshot.store)
        figure_names = dict.fromkeys(section.id.partition("-")[0] for section in _every_section(summary))
        next_step = "a search is a method with `Method.search`" if figure == "search" else ""
        raise StoreError(
            f"nothing to draw of {figure!r}", where=where, expected=", ".join(figure_names), next_step=next_step
        )
    return chosen


def _every_section(summary: Summary) -> list[Section]:
    groups = summary.snapshot.groups
    all_subjects = range(len(summary.snapshot.subjects))
    drawn_indices = [index for index, _, _ in _drawn_subjects(summary)]
    charts = [
        (runs_section(summary), [*(index for run in groups.runs for index in run), *groups.single_indices]),
        (methods_section(summary), groups.short_table_indices(summary.headline_index)),
        (_profiles_section(summary), drawn_indices),
        (_cases_section(summary), drawn_indices),
        (_accuracy_section(summary), all_subjects),
        (task_panels(summary, sorted(groups.chart_indices(summary.headline_index))), drawn_indices),
    ]
    sections = [
        replace(section, trained_with=_training_note(summary, indices))
        for section, indices in charts
        if section is not None
    ]
    labels = summary.snapshot.method_labels
    declarations = load_plugins().usable_declarations("lobench_report_sections")
    plugin_sections = [
        section
        for name, declaration in declarations.items()
        for section in _plugin_sections(name, declaration, summary)
    ]
    histories = search_histories_of(summary.snapshot.experiment.trials, labels)
    searches = [search_section(history, search_notes(summary.snapshot, history)) for history in histories]
    return [*sections, *(section for section in searches if section is not None), *plugin_sections]


def _plugin_sections(name: str, registration: Registered, summary: Summary) -> list[Section]:
    """Returns a plugin's sections. If the plugin raises, its section contains only the error."""
    try:
        plugin_sections = registration.make(summary, where="a report")
        if not isinstance(plugin_sections, list | tuple) or not all(
            isinstance(section, Section) for section in plugin_sections
        ):
            problem = "the section is not a list of lobench.extend.Section"
            raise PluginFailure(problem, where=name, got=describe_value(plugin_sections))
        for section in plugin_sections:
            _check_drawn(name, section)
        return list(plugin_sections)
    except LobenchError as error:
        note = f"The plugin {registration.plugin} drew nothing: {error}"
        return [Section(id=name, title=name, note=note, kind="small", figures=())]


def _check_drawn(name: str, section: Section) -> None:
    """Draws a plugin's section once.

    Raises:
      PluginFailure: The section cannot be drawn, or a part of it has the wrong type.
    """

    def failure(error: BaseException) -> PluginFailure:
        return PluginFailure("the section cannot be drawn", where=name, got=headline(error))

    with convert_plugin_errors(failure, LobenchError):
        for field_name in ("id", "title", "note", "kind", "trained_with", "view"):
            if not isinstance(value := getattr(section, field_name), str):
                raise PluginFailure(f"the section's {field_name} is not a text", where=name, got=describe_value(value))
        if section.view not in get_args(View):
            expected = ", ".join(get_args(View))
            raise PluginFailure("the section's view", where=name, got=repr(section.view), expected=expected)
        for figure in section.figures:
            if not isinstance(figure, Figure):
                raise PluginFailure("a figure is not a lobench.extend.Figure", where=name, got=describe_value(figure))
            str(figure.svg), figure.legend, str(figure.title), str(figure.note)
        if not all(isinstance(line, str) for line in section.lines):
            raise PluginFailure("a line of the section is not a text", where=name, got=describe_value(section.lines))


def _training_note(summary: Summary, indices: Sequence[int]) -> str:
    snapshot = summary.snapshot
    labelled = [(snapshot.labels[index], hyperparameters_text(snapshot, index)) for index in sorted(indices)]
    settings = [f"{label}: {text}" for label, text in labelled if text]
    if len(settings) > _MOST_DRAWN and not snapshot.groups.runs:
        return f"{len(settings)} methods; the list below the table of methods has their settings"
    return "; ".join(settings)


def _profiles_section(summary: Summary) -> Section:
    drawn_subjects = _drawn_subjects(summary)
    taus = np.linspace(-1, 2, 121)
    figures = []
    for metric in summary.metrics:
        series = [
            Series(label=label, x=taus.tolist(), y=score_profile(scores, taus).tolist(), style=style, steps=True)
            for index, label, style in drawn_subjects
            if (scores := [list(score.values()) for score in summary.mean_score(index, metric).scores.values()])
        ]
        if series:
            name = summary.metric_label(metric)
            cases_text = f"of {summary.common_cases_text(metric) or 'all cases'}"
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
                    note=f"Share of runs (seeds {cases_text}) with a score above tau; higher is better.",
                )
            )
    if summary.baseline_label:
        figures.append(_ratio_profile(summary, drawn_subjects))
    note = "Score profiles ask how often a score is reached, ratio profiles how many times longer than the fastest "
    note += "it took." + _left_out_note(summary, drawn_subjects)
    return Section(id="profiles", title="Profiles", note=note, kind="wide", figures=tuple(figures))


def _drawn_subjects(summary: Summary) -> list[tuple[int, str, str]]:
    """Returns index, label and style of the subjects in charts: the shown one, the first of its run, other methods."""
    labels = summary.snapshot.labels
    styles = method_styles(summary)
    indices = summary.snapshot.groups.chart_indices(summary.headline_index)[:_MOST_DRAWN]
    return [(index, labels[index], styles[index]) for index in indices]


def _left_out_note(summary: Summary, drawn_subjects: Sequence[tuple[int, str, str]]) -> str:
    count = len(summary.snapshot.groups.chart_indices(summary.headline_index))
    return f" The first {len(drawn_subjects)} of {count} methods are drawn." if len(drawn_subjects) < count else ""


def _ratio_profile(summary: Summary, drawn_subjects: Sequence[tuple[int, str, str]]) -> Figure:
    subjects = summary.snapshot.subjects
    # No line for subjects without curves: a line at 0 would mean that training failed everywhere.
    with_curves = [subject for subject in drawn_subjects if subjects[subject[0]].num_seeds]
    times = summary.times_to_tuned([index for index, _, _ in with_curves])
    taus = np.geomspace(1, 20, 100)
    rows = ratio_profile(time_ratios(times), taus)
    names = [*((label, style) for _, label, style in with_curves), (summary.baseline_label, "s3 dashed")]
    subject_label = summary.snapshot.capitalized_labels[summary.headline_index]
    never = f"{subject_label} never reached it on {int(np.isinf(times[0]).sum())} of {counted(times.shape[1], 'case')}."
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
        + (never if with_curves[:1] == drawn_subjects[:1] else f"{subject_label} gave no curve."),
    )


def _cases_section(summary: Summary) -> Section:
    snapshot = summary.snapshot
    drawn_subjects = _drawn_subjects(summary)[:_MOST_CURVES]
    figures = tuple(
        figure
        for case in range(len(snapshot.cases))
        if (figure := _case_figure(summary, case, drawn_subjects)) is not None
    )
    names = [label for _, label, _ in drawn_subjects]
    baseline_note = f", against {summary.baseline_label}" if summary.baseline_label else ""
    dashes = "; dashed: test" if _has_test(drawn_subjects) else ""
    return Section(
        id="curves",
        title="Inner training",
        note="Seed means of "
        f"{', '.join(names[:-1])}{' and ' * (len(names) > 1)}{names[-1]}{baseline_note}{dashes}. Bands "
        "are 95% intervals over seeds. A cross marks where a seed diverged: a mean has no value from there on."
        f"{_left_out_note(summary, drawn_subjects)}",
        kind="small",
        figures=figures,
        view="cases",
    )


def _has_test(drawn_subjects: Sequence[tuple[int, str, str]]) -> bool:
    """Returns whether the subjects are few enough for a second, dashed line per subject."""
    return len(drawn_subjects) <= _MOST_WITH_TEST


def _case_figure(summary: Summary, case_index: int, drawn_subjects: Sequence[tuple[int, str, str]]) -> Figure | None:
    """Returns the curves of a case; None if no drawn subject has any."""
    snapshot = summary.snapshot
    metric = snapshot.cases[case_index].primary_metric
    test = "test/loss" if metric.endswith("/loss") and metric != "test/loss" and _has_test(drawn_subjects) else ""
    series = []
    for index, label, style in drawn_subjects:
        cell = snapshot.cell(index, case_index)
        if cell is None or metric not in cell.final_values:
            continue
        for name, kind in ((metric, style), (test, f"{style} dashed")):
            if name in cell.final_values:
                split = name.partition("/")[0]
                x, (y, lower, upper) = cell.steps.tolist(), bands(cell.curves_of_seeds(name), name, None)[:3].tolist()
                series.append(Series(label=f"{label}, {split}", x=x, y=y, lower=lower, upper=upper, style=kind))
    if not series:
        return None
    baseline = summary.case_baseline(case_index)
    if baseline is not None:
        is_within = baseline.curves.steps <= baseline.training.num_inner_steps
        for name, kind in ((metric, "s3"), (test, "s3 dashed")):
            if name in baseline.curves.means:
                label = f"{summary.baseline_label}, {name.partition('/')[0]}"
                x = baseline.curves.steps[is_within].tolist()
                y = baseline.curves.means[name][is_within].tolist()
                series.append(Series(label=label, x=x, y=y, style=kind))
    is_log = needs_log_axis(series)
    return Figure(
        title=snapshot.case_name(case_index),
        chart=inner_chart(snapshot.case_name(case_index), metric, series, log_y=is_log),
        note=f"{metric}{', log scale' if is_log else ''}.",
    )


def _accuracy_section(summary: Summary) -> Section | None:
    """Returns the accuracies of each method on streams of tasks; None if no case is a stream."""
    snapshot = summary.snapshot
    figures = [
        figure
        for case in range(len(snapshot.cases))
        for index in range(len(snapshot.subjects))
        if (figure := _accuracy_figure(summary, index, case)) is not None
    ]
    note = (
        "Row i is after training on task i, column j the accuracy on task j; seed means. "
        "Tasks below the diagonal have been learned before; tasks above it have not been trained yet."
    )
    if len(figures) > _MOST_HEAT_MAPS:
        note += f" {len(figures) - _MOST_HEAT_MAPS} more are not drawn."
    drawn_figures = tuple(figures[:_MOST_HEAT_MAPS])
    if not drawn_figures:
        return None
    return Section(id="matrix", title="Accuracy by task", note=note, kind="small", figures=drawn_figures, view="cases")


def _accuracy_figure(summary: Summary, subject_index: int, case_index: int) -> Figure | None:
    snapshot = summary.snapshot
    cell = snapshot.cell(subject_index, case_index)
    matrix = accuracy_matrix(cell) if cell is not None and cell.curves_by_seed else None
    if matrix is None:
        return None
    split, values = matrix
    title = f"{snapshot.case_name(case_index)}, {snapshot.labels[subject_index]}"
    return Figure(
        title=title,
        chart=HeatMap(
            title=f"{title}: accuracy on each task after each",
            description=f"At the end: {', '.join(map(format_share, values[-1].tolist()))}.",
            x_label=f"{split} accuracy on task",
            y_label="after task",
            values=tuple(map(tuple, values.tolist())),
        ),
    )
