"""Notebook view of a store: the table of methods and cases, and each case's curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.tables.table import TableSpec
from lobench.analysis.tables.tabulate import tabulate
from lobench.core.errors import UsageError
from lobench.drawing.axes import new_axes, plot
from lobench.drawing.html import paragraph, table
from lobench.drawing.svg import Chart, all_line_styles, curve_of_seeds, inner_chart, needs_log_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["html_of_results", "plot_results"]

_MOST_DRAWN = 9
_MOST_ROWS = 40


def html_of_results(snapshot: Snapshot, heading: str) -> str:
    """Returns the numbers of a store as HTML.

    Args:
      snapshot: Content of the store.
      heading: Text above the table.
    """
    if not snapshot.rows:
        return paragraph(heading)
    summary = summary_of(snapshot.store, snapshot=snapshot)
    results = tabulate(summary, TableSpec(costs=True))
    elements: list[str] = [paragraph(heading)]
    for panel in results.panels:
        header, *rows = results.cell_texts(panel)
        elements.append(table([header[0] or "mean score", *header[1:]], rows[:_MOST_ROWS]))
        if len(panel.lines) > _MOST_ROWS:
            elements.append(paragraph(f"the first {_MOST_ROWS} of {len(panel.lines)} rows"))
    return "".join([*elements, *map(paragraph, [f"Scores: {summary.scale_label}.", *results.footnotes()])])


def plot_results(
    snapshot: Snapshot, metric: str | None, case: str | None, ax: Axes | None
) -> Axes | NDArray[np.object_]:
    """Implementation of `StoredResults.plot`."""
    cases = [index for index in range(len(snapshot.cases)) if case is None or snapshot.has_case_name(index, case)]
    if not cases:
        case_names_text = ", ".join(sorted(snapshot.case_names.values())) or "none: the store holds no evaluation yet"
        raise UsageError(f"no case {case!r}", where=str(snapshot.store), expected=f"one of {case_names_text}")
    if ax is not None and len(cases) > 1:
        raise UsageError("several cases do not fit into one pair of axes", got=f"{len(cases)} cases", expected="case=")
    subject_indices = snapshot.groups.chart_indices(snapshot.headline_index)[:_MOST_DRAWN]
    axes = [ax] if ax is not None else new_axes(len(cases))
    for axes_of_case, index in zip(axes, cases, strict=True):
        plot(axes_of_case, _chart(snapshot, subject_indices, index, metric or snapshot.cases[index].primary_metric))
    return axes[0] if len(axes) == 1 else np.asarray(axes)


def _chart(snapshot: Snapshot, subject_indices: Sequence[int], case_index: int, metric: str) -> Chart:
    series = []
    for subject, style in zip(subject_indices, all_line_styles(), strict=False):
        cell = snapshot.cell(subject, case_index)
        if cell is not None and metric in cell.final_values:
            series.append(curve_of_seeds(snapshot.labels[subject], cell.steps, cell.curves_of_seeds(metric), style))
    return replace(inner_chart("", metric, series, log_y=needs_log_axis(series)), title=snapshot.case_name(case_index))
