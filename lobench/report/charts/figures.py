"""Figures of a report for a paper: `lobench report --format png|pdf`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lobench.analysis.comparisons.summary import Summary
from lobench.core.errors import LobenchError, StoreError
from lobench.core.wording import one_line_of
from lobench.drawing.axes import plain
from lobench.drawing.palette import LIGHT
from lobench.report.charts.charts import sections
from lobench.report.charts.heat_map import HeatMap, share
from lobench.report.charts.sections import Figure as SectionFigure
from lobench.report.charts.sections import Section
from lobench.report.charts.svg import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["write_figures"]

_COLOURS = {f"s{place}": colour for place, colour in enumerate(LIGHT, 1)}
_LINES = {"dashed": "--", "dotted": ":"}
_FONT_SIZE = 8  # points, of every text
_SIZED = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
_INCHES = 3.3  # a column of most papers
_INCHES_OF_A_LETTER, _INCHES_OF_A_LINE = 0.06, 0.13
_PER_PAGE = 12


def write_figures(summary: Summary, folder: Path, kind: str, figure: str | None = None) -> list[Path]:
    """Writes a file for each section of the page (several where there are many cases) and returns them.

    Args:
      kind: "png" or "pdf".
      figure: Which charts; None: all.
    Raises:
      StoreError: nothing to draw, or the folder cannot be written. LobenchError: matplotlib is not installed.
    """
    if not summary.snapshot.rows:
        raise StoreError("the store holds no evaluation yet", where=str(summary.snapshot.store))
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise LobenchError("figures need matplotlib", next_step="pip install 'lobench[figures]'") from error
    mpl.use("Agg")
    with one_line_of(OSError, StoreError, "cannot write the figures", where=folder):
        folder.mkdir(parents=True, exist_ok=True)
        # Type 3 fonts, matplotlib's default, are refused by many publishers.
        settings: dict[Any, Any] = {"pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False}
        with mpl.rc_context(settings | dict.fromkeys(_SIZED, _FONT_SIZE)):
            return [path for section in sections(summary, figure) for path in _write(section, folder, kind)]


def _write(section: Section, folder: Path, kind: str) -> list[Path]:
    from matplotlib.figure import Figure

    paths = []
    for start in range(0, len(section.figures), _PER_PAGE):
        shown = section.figures[start : start + _PER_PAGE]
        names = _names_width(shown)
        columns = 1 if names else min(3, len(shown))
        rows = math.ceil(len(shown) / columns)
        figure = Figure(figsize=(_INCHES * columns + names, 0.75 * _INCHES * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, one in zip(grid.flat, shown, strict=False):
            _draw(axes, one.chart)
            axes.set_title(plain(one.title or one.chart.title))
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        # Every chart of a section draws the same things: one legend, where it hides no curve.
        entries = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
        entries = {label: line for label, line in entries.items() if not str(label).startswith("_")}
        if entries:
            figure.legend(
                handles=list(entries.values()),
                labels=list(entries),
                loc="outside upper center",
                ncols=max(
                    1,
                    int(
                        figure.get_figwidth() / (_INCHES_OF_A_LETTER * max(len(str(label)) for label in entries) + 0.5)
                    ),
                ),
                frameon=False,
            )
        if section.trained_with:
            text = textwrap.fill(plain(section.trained_with), 50 * columns)
            figure.supxlabel(text, fontsize=_FONT_SIZE, x=0.01, ha="left")
            figure.set_figheight(figure.get_figheight() + _INCHES_OF_A_LINE * (text.count("\n") + 1))
        number = f"-{start // _PER_PAGE + 1}" if len(section.figures) > _PER_PAGE else ""
        paths.append(folder / f"{section.id}{number}.{kind}")
        figure.savefig(paths[-1], dpi=200)
    return paths


def _names_width(figures: Sequence[SectionFigure]) -> float:
    """Returns the inches that names beside the charts take; 0 where there are none."""
    letters = [len(name) for one in figures if isinstance(one.chart, Chart) for name in one.chart.y_names]
    return _INCHES_OF_A_LETTER * max(letters, default=0)


def _draw_map(axes: Axes, chart: HeatMap) -> None:
    axes.imshow(chart.values, cmap="Blues", vmin=0, vmax=1 / 0.6, aspect="auto")  # texts stay readable on it
    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            axes.text(column, row, share(value), ha="center", va="center")
    axes.set_xlabel(plain(chart.x_label))
    axes.set_ylabel(plain(chart.y_label))
    axes.set_xticks(range(len(chart.values[0])))
    axes.set_yticks(range(len(chart.values)))


def _draw(axes: Axes, chart: Chart | HeatMap) -> None:
    if isinstance(chart, HeatMap):
        _draw_map(axes, chart)
        return
    for one in chart.series:
        name, *kinds = one.style.split()
        style: dict[str, Any] = {
            "color": _COLOURS[name],
            "linestyle": next((_LINES[kind] for kind in kinds if kind in _LINES), "-") if one.line else "none",
            "label": plain(one.label) or "_nobody",
            "linewidth": 0.6 if "faint" in kinds else 1.2,
            "alpha": 0.5 if "faint" in kinds else 1.0,
        }
        if one.steps:
            axes.step(one.x, one.y, where="post", **style)
        else:
            axes.plot(one.x, one.y, marker="o" if one.dots else None, markersize=3, **style)
        if one.lower is not None and one.upper is not None:
            axes.fill_between(one.x, one.lower, one.upper, color=_COLOURS[name], alpha=0.18, linewidth=0)
        finite = np.isfinite(np.asarray(one.y, np.float64))
        if one.line and not one.steps and finite.any() and not finite[-1]:
            last = int(np.flatnonzero(finite)[-1])
            axes.plot(one.x[last], one.y[last], marker="x", color=_COLOURS[name])
    axes.set_xlabel(plain(chart.x_label))
    axes.set_ylabel(plain(chart.y_label))
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.x_names:
        axes.set_xticks(range(len(chart.x_names)), [plain(name) for name in chart.x_names])
        axes.set_xlim(-0.4, len(chart.x_names) - 0.6)
    if chart.y_names:
        axes.set_yticks(*(([], []) if chart.y_names == ("",) else (range(len(chart.y_names)), chart.y_names)))
    for place in chart.rules:
        axes.axvline(place, color="0.4", linewidth=0.8)
    for note in chart.notes:
        axes.text(note.x, note.y, plain(note.text), ha="center")
    if chart.y_range is not None:
        axes.set_ylim(chart.y_range[0], chart.y_range[1] * 1.02)
