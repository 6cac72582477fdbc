"""Panels of tasks with several losses: each loss, and its weight in the optimizer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.store.snapshot import Snapshot
from lobench.drawing.svg import Series, inner_chart, needs_log_axis
from lobench.report.charts.sections import Figure, Section
from lobench.report.charts.styles import method_styles

__all__ = ["task_panels"]

_PANEL = re.compile(r"(loss|weight)_task_(\d+)")
_MAX_METHODS = 16  # methods


def task_panels(summary: Summary, indices: Sequence[int]) -> Section | None:
    """Returns the panels of all cases whose tasks have several losses; None without such cases.

    Args:
      summary: Summary of the store.
      indices: Indices of the subjects to draw, as far as there is room.
    """
    snapshot = summary.snapshot
    styles = method_styles(summary)
    figures = []
    num_requested = len(indices)
    indices = indices[:_MAX_METHODS]
    for case, info in enumerate(snapshot.cases):
        split = info.primary_metric.partition("/")[0]
        names = {name for index in indices if (cell := snapshot.cell(index, case)) for name in cell.final_values}
        panel_names = {(kind == "weight", int(index)): f"{kind}_task_{index}" for kind, index in _panels(names)}
        for (is_weight, _), name in sorted(panel_names.items()):
            metric = f"train/{name}" if is_weight else f"{split}/{name}"
            if metric in names:
                figures.append(_panel(snapshot, {index: styles[index] for index in indices}, case, metric))
    if not figures:
        return None
    note = "Seed means; a task's loss is the mean of its losses. Where an optimizer weighs them, its weights follow."
    if len(indices) < num_requested:
        note += f" The first {len(indices)} of {num_requested} methods are drawn."
    return Section(
        id="tasks",
        title="Loss by loss",
        note=note,
        kind="small",
        figures=tuple(figures),
        has_one_legend=True,
        view="cases",
    )


def _panels(names: set[str]) -> list[tuple[str, str]]:
    matches = (_PANEL.fullmatch(name.partition("/")[2]) for name in names)
    return [(match[1], match[2]) for match in matches if match is not None]


def _panel(snapshot: Snapshot, styles: Mapping[int, str], case_index: int, metric: str) -> Figure:
    series = []
    for index, style in styles.items():
        cell = snapshot.cell(index, case_index)
        if cell is None or metric not in cell.final_values:
            continue
        x = cell.steps.tolist()
        y = cell.mean_curve(metric).tolist()
        series.append(Series(label=snapshot.labels[index], x=x, y=y, style=style))
    is_log = needs_log_axis(series) and "/loss_" in metric  # weights share one linear scale
    name = snapshot.case_name(case_index)
    note = "Log scale." if is_log else ""
    return Figure(
        title=f"{name}: {metric}",
        chart=inner_chart(name, metric, series, log_y=is_log),
        note=note,
    )
