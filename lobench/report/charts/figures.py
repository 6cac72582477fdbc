"""Figures of a report for papers: `lobench report --format png|pdf`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lobench.analysis.comparisons.summary import Summary
from lobench.core.errors import LobenchError, StoreError
from lobench.core.wording import convert_errors
from lobench.drawing.axes import draw, matplotlib_text, wrapped_name
from lobench.drawing.heat_map import HeatMap
from lobench.drawing.svg import Chart
from lobench.engine.whole_file import replacing_file
from lobench.report.charts.charts import sections
from lobench.report.charts.sections import Figure as SectionFigure
from lobench.report.charts.sections import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_figures"]

_FONT_SIZE = 8  # points, of every text
_SIZED = ("font.size", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
_INCHES = 3.3  # width of a column in most papers
_INCHES_OF_A_LETTER, _INCHES_OF_A_LINE = 0.06, 0.13
_PER_PAGE = 12


def write_figures(summary: Summary, folder: Path, kind: str, figure: str | None = None) -> list[Path]:
    """Writes a file for each section of the page, several if it has many cases, and returns their paths.

    Args:
      summary: Summary of the store.
      folder: Folder of the files.
      kind: "png" or "pdf".
      figure: First part of the sections' ids. None: all sections.
    Raises:
      StoreError: There is nothing to draw, or the folder cannot be written.
      LobenchError: matplotlib is not installed.
    """
    summary.snapshot.require_rows()
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise LobenchError("figures need matplotlib", next_step="pip install 'lobench[figures]'") from error
    mpl.use("Agg")
    with convert_errors(OSError, StoreError, "cannot write the figures", where=folder):
        folder.mkdir(parents=True, exist_ok=True)
        # Type 3 fonts, matplotlib's default, are refused by many publishers.
        settings: dict[Any, Any] = {"pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False}
        # Keeps an axis label away from the chart on its left.
        settings["figure.constrained_layout.w_pad"] = 0.08
        with mpl.rc_context(settings | dict.fromkeys(_SIZED, _FONT_SIZE)):
            return [path for section in sections(summary, figure) for path in _write(section, folder, kind)]


def _write(section: Section, folder: Path, kind: str) -> list[Path]:
    paths = []
    for start in range(0, len(section.figures), _PER_PAGE):
        number = f"-{start // _PER_PAGE + 1}" if len(section.figures) > _PER_PAGE else ""
        paths.append(folder / f"{section.id}{number}.{kind}")
        page = _page(section.figures[start : start + _PER_PAGE], section.trained_with)
        with replacing_file(paths[-1]) as file:
            page.savefig(file, dpi=200)
    return paths


def _page(panels: Sequence[SectionFigure], trained_with: str) -> Figure:
    from matplotlib.figure import Figure

    names = [name for panel in panels if isinstance(panel.chart, Chart) for name in _y_names(panel.chart)]
    columns = 1 if any(names) else 2 if len(panels) == 4 else min(3, len(panels))
    letters = max((len(line) for name in names for line in name.split("\n")), default=0)
    width = _INCHES * columns + _INCHES_OF_A_LETTER * letters
    heights = [
        max(_height(panel.chart) for panel in panels[start : start + columns])
        for start in range(0, len(panels), columns)
    ]
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    for axes, panel in zip(grid.flat, panels, strict=False):
        draw(axes, panel.chart)
        axes.set_title(matplotlib_text(panel.title or panel.chart.title))
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    num_lines = _add_legend(figure) + _add_text(figure, trained_with)
    figure.set_figheight(sum(heights) + _INCHES_OF_A_LINE * num_lines)
    return figure


def _height(chart: Chart | HeatMap) -> float:
    """Returns the height of a chart in inches, which depends on the names on its y axis."""
    names = _y_names(chart) if isinstance(chart, Chart) else []
    lines = len(names) * max((name.count("\n") + 1 for name in names), default=0)
    return 0.7 + 1.4 * _INCHES_OF_A_LINE * lines if any(names) else 0.75 * _INCHES


def _y_names(chart: Chart) -> list[str]:
    return [wrapped_name(name) for name in chart.y_names]


def _add_legend(figure: Figure) -> int:
    """Adds one legend for all charts above them. Returns its number of lines."""
    entries = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
    labels = [str(label) for label in entries if not str(label).startswith("_")]
    if not labels:
        return 0
    letters = max(len(line) for label in labels for line in label.split("\n"))
    columns = max(1, int(figure.get_figwidth() / (_INCHES_OF_A_LETTER * letters + 0.5)))
    handles = [entries[label] for label in labels]
    figure.legend(handles=handles, labels=labels, loc="outside upper center", ncols=columns, frameon=False)
    rows = math.ceil(len(labels) / columns)
    return max(
        sum(label.count("\n") + 1 for label in labels[column * rows : (column + 1) * rows]) for column in range(columns)
    )


def _add_text(figure: Figure, text: str) -> int:
    """Adds text below the charts. Returns its number of lines."""
    if not text:
        return 0
    lines = textwrap.wrap(text, int(figure.get_figwidth() / _INCHES_OF_A_LETTER / 1.1))
    figure.supxlabel("\n".join(map(matplotlib_text, lines)), fontsize=_FONT_SIZE, x=0.01, ha="left")
    return len(lines)
