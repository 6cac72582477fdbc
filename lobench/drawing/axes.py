"""Charts on matplotlib axes; matplotlib is an extra, imported when something is drawn."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from lobench.core.errors import LobenchError
from lobench.core.wording import one_line
from lobench.drawing.heat_map import HeatMap, format_share
from lobench.drawing.palette import LIGHT_COLOURS
from lobench.drawing.svg import Chart, Series, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "matplotlib_text", "new_axes", "plot", "wrapped_name"]

_MAX_COLUMNS = 3
_AXES_INCHES = 3.6
_COLOURS = {f"s{index}": colour for index, colour in enumerate(LIGHT_COLOURS, 1)}
_LINE_STYLES = {"dashed": "--", "dotted": ":"}
_MAX_LINE_LETTERS = 48  # letters in a line of a name


def new_axes(count: int, *, width: float = 1.0, height: float = 0.75) -> list[Axes]:
    """Returns axes of a new figure, three in a row. A notebook shows the figure at the end of its cell.

    Args:
      count: Number of axes.
      width, height: Size of each, in multiples of the default width.
    Raises:
      LobenchError: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise LobenchError("plots need matplotlib", next_step="pip install 'lobench[figures]'") from error
    columns = min(count, _MAX_COLUMNS)
    rows = math.ceil(count / columns)
    size = (_AXES_INCHES * 1.2 * width * columns, _AXES_INCHES * height * rows)
    _, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    all_axes: list[Axes] = list(grid.flat)
    for unused in all_axes[count:]:
        unused.remove()
    return all_axes[:count]


def matplotlib_text(name: str) -> str:
    """Returns a text with escaped dollar signs, which matplotlib would read as a formula."""
    return one_line(name).replace("$", r"\$")


def wrapped_name(name: str) -> str:
    """Shortens and wraps a name that stands next to a chart."""
    return "\n".join(map(matplotlib_text, textwrap.wrap(shortened(name, 2 * _MAX_LINE_LETTERS), _MAX_LINE_LETTERS)))


def plot(axes: Axes, chart: Chart) -> None:
    """Draws a chart with its title and a legend, for a notebook."""
    draw(axes, chart)
    axes.set_title(matplotlib_text(chart.title))
    if any(series.label for series in chart.series):
        axes.legend(fontsize="small", frameon=False)


def draw(axes: Axes, chart: Chart | HeatMap) -> None:
    """Draws a chart without its title and legend."""
    axes.set_xlabel(matplotlib_text(chart.x_label))
    axes.set_ylabel(matplotlib_text(chart.y_label))
    if isinstance(chart, HeatMap):
        _draw_heat_map(axes, chart)
        return
    for series in chart.series:
        _draw_series(axes, series)
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.x_names:
        axes.set_xticks(range(len(chart.x_names)), [matplotlib_text(name) for name in chart.x_names])
        axes.set_xlim(-0.4, len(chart.x_names) - 0.6)
    if chart.y_names == ("",):
        axes.set_yticks([])
    elif chart.y_names:
        axes.set_yticks(range(len(chart.y_names)), [wrapped_name(name) for name in chart.y_names])
        axes.set_ylim(-0.6, len(chart.y_names) - 0.4)
    if not (chart.log_x or chart.x_names) and all(float(x).is_integer() for series in chart.series for x in series.x):
        axes.locator_params(axis="x", integer=True)
    if chart.rules:
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(length=0)
    for x in chart.rules:
        axes.axvline(x, color="0.4", linewidth=0.8)
    for note in chart.notes:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0}
        axes.text(note.x, note.y, matplotlib_text(note.text), ha="center", bbox=box)
    if chart.y_range is not None:
        axes.set_ylim(chart.y_range[0], chart.y_range[1] * 1.02)


def _draw_series(axes: Axes, series: Series) -> None:
    name, *kinds = series.style.split()
    colour = _COLOURS[name]
    label = wrapped_name(series.label)
    line_style = next((_LINE_STYLES[kind] for kind in kinds if kind in _LINE_STYLES), "-")
    style: dict[str, Any] = {
        "color": colour,
        "linestyle": line_style if series.line else "none",
        "label": f" {label}" if label.startswith("_") else label or "_nobody",  # matplotlib hides `_` in legends
        "linewidth": 0.6 if "faint" in kinds else 1.2,
        "alpha": 0.5 if "faint" in kinds else 1.0,
    }
    if series.steps:
        axes.step(series.x, series.y, where="post", **style)
    else:
        marker = "o" if series.dots else None
        axes.plot(series.x, series.y, marker=marker, markersize=3, **style)
    if series.lower is not None and series.upper is not None:
        axes.fill_between(series.x, series.lower, series.upper, color=colour, alpha=0.18, linewidth=0)
    is_finite = np.isfinite(np.asarray(series.y, np.float64))
    if series.line and not series.steps and is_finite.any() and not is_finite[-1]:
        last_index = int(np.flatnonzero(is_finite)[-1])
        axes.plot(series.x[last_index], series.y[last_index], marker="x", color=colour)


def _draw_heat_map(axes: Axes, chart: HeatMap) -> None:
    axes.imshow(chart.values, cmap="Blues", vmin=0, vmax=1 / 0.6, aspect="auto")  # light enough for texts
    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            if chart.has_texts and math.isfinite(value):
                axes.text(column, row, format_share(value), ha="center", va="center")
    axes.set_xticks(chart.labelled_indices(len(chart.values[0])))
    axes.set_yticks(chart.labelled_indices(len(chart.values)))
