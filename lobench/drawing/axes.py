"""Curves and intervals on matplotlib axes; matplotlib is an extra, imported when something is drawn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lobench.core.errors import LobenchError
from lobench.core.wording import one_line
from lobench.drawing.curves import spans_decades

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Bundle", "draw_bundles", "draw_intervals", "new_axes", "plain"]

_COLUMNS = 3
_INCHES = 3.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Curves of several seeds.

    Attributes:
      values: float[num_seeds, num_evals]; NaN from where a seed diverged.
    """

    label: str
    steps: NDArray[Any]
    values: NDArray[Any]


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
    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    size = (_INCHES * 1.2 * width * columns, _INCHES * height * rows)
    _, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    every: list[Axes] = list(grid.flat)
    for unused in every[count:]:
        unused.remove()
    return every[:count]


def plain(name: str) -> str:
    """Returns a text with escaped dollar signs, which matplotlib would read as a formula."""
    return one_line(name).replace("$", r"\$")


def draw_bundles(axes: Axes, bundles: Sequence[Bundle], *, title: str, x_label: str, y_label: str) -> None:
    """Draws a line for the mean over the seeds of each bundle, and a band from the lowest of them to the highest.

    A cross marks where a seed diverged: a mean has no value from there on.
    """
    for bundle in bundles:
        values = np.asarray(bundle.values, np.float64)
        mean = values.mean(axis=0)
        label = plain(bundle.label)
        (line,) = axes.plot(bundle.steps, mean, label=label if not label.startswith("_") else f" {label}")
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # all seeds diverged
            low = np.nanmin(values, axis=0)
            high = np.nanmax(values, axis=0)
        axes.fill_between(bundle.steps, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
        known = np.flatnonzero(np.isfinite(mean))
        if len(known) and known[-1] + 1 < len(mean):
            axes.plot(bundle.steps[known[-1]], mean[known[-1]], marker="x", color=line.get_color())
    if bundles and spans_decades(np.concatenate([np.ravel(bundle.values) for bundle in bundles])):
        axes.set_yscale("log")
    axes.set_title(plain(title))
    axes.set_xlabel(x_label)
    axes.set_ylabel(plain(y_label))
    if bundles and any(bundle.label for bundle in bundles):
        axes.legend(fontsize="small", frameon=False)


def draw_intervals(
    axes: Axes,
    names: Sequence[str],
    intervals: Sequence[tuple[float, float, float]],
    *,
    label: str,
    offset: float = 0.0,
) -> None:
    """Draws a dot with an error bar for each name, the first one on top.

    Args:
      axes: Axes to draw on.
      names: Labels of the rows.
      intervals: (mean, lower, upper) per name; NaN if unknown.
      label: Label in the legend.
      offset: Vertical shift in rows, for a second call on the same axes.
    """
    rows = np.arange(len(names), 0, -1) - offset
    means, lows, highs = (np.asarray(column, np.float64) for column in zip(*intervals, strict=True))
    known = np.isfinite(lows) & np.isfinite(highs)
    bars = np.where(known, [means - lows, highs - means], 0.0)
    axes.errorbar(means, rows, xerr=np.maximum(np.nan_to_num(bars), 0.0), fmt="o", capsize=2, label=plain(label))
    axes.set_yticks(np.arange(len(names), 0, -1), [plain(name) for name in names])
    axes.set_ylim(0.4, len(names) + 0.6)
