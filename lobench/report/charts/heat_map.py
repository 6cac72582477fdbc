"""Heat maps with their values, for example accuracies on streams of tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup, escape

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.tables.accuracy_matrix import accuracy_matrix
from lobench.report.charts.sections import Figure, Section

__all__ = ["HeatMap", "accuracy_section", "share"]

_LEFT, _TOP, _BOTTOM, _RIGHT = 34, 6, 36, 6
_MOST_OPAQUE = 0.6  # light enough for texts
_MOST_FIGURES = 60
_MOST_TEXTS = 12  # texts in a row, and names along an axis


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Matrix of numbers from 0 to 1.

    Attributes:
      title: Title of the map.
      description: Alternative text for screen readers.
      x_label, y_label: Labels of the axes.
      values: Rows from the top. NaN is left empty.
      width, height: Size in pixels.
      series: Always empty.
    """

    title: str
    description: str
    x_label: str
    y_label: str
    values: tuple[tuple[float, ...], ...]
    width: int = 330
    height: int = 230
    series: tuple[()] = ()

    @property
    def has_texts(self) -> bool:
        """Whether there is room for each value as text."""
        return len(self.values[0]) <= _MOST_TEXTS

    def named(self, count: int) -> range:
        """Returns the indices of rows or columns with room for their number."""
        return range(0, count, math.ceil(count / _MOST_TEXTS))

    def svg(self) -> Markup:
        """Returns the map as markup, with all external text escaped."""
        text = escape(f"{self.title}. {self.description}")
        body = Markup("").join([*self._squares(), *self._names()])
        return Markup(
            f'<svg class="heat" viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{text}">{body}</svg>'
        )

    def _square(self) -> tuple[float, float]:
        across = (self.width - _LEFT - _RIGHT) / len(self.values[0])
        return across, (self.height - _TOP - _BOTTOM) / len(self.values)

    def _squares(self) -> list[Markup]:
        across, down = self._square()
        parts = []
        for row, values in enumerate(self.values):
            for column, value in enumerate(values):
                if not math.isfinite(value):
                    continue
                x, y = _LEFT + column * across, _TOP + row * down
                opacity = _MOST_OPAQUE * min(max(value, 0.0), 1.0)
                parts.append(
                    Markup(
                        f'<rect class="square" x="{x:.1f}" y="{y:.1f}" width="{across - 1:.1f}" '
                        f'height="{down - 1:.1f}" fill-opacity="{opacity:.2f}"/>'
                    )
                )
                if self.has_texts:
                    text = f'<text class="mid value" x="{x + across / 2:.1f}" y="{y + down / 2 + 4:.1f}">'
                    parts.append(Markup(f"{text}{share(value)}</text>"))
        return parts

    def _names(self) -> list[Markup]:
        across, down = self._square()
        below, middle = self.height - _BOTTOM + 14, _TOP + (self.height - _TOP - _BOTTOM) / 2
        columns = (
            Markup(f'<text class="mid" x="{_LEFT + (column + 0.5) * across:.1f}" y="{below}">{column}</text>')
            for column in self.named(len(self.values[0]))
        )
        rows = (
            Markup(f'<text class="end" x="{_LEFT - 5}" y="{_TOP + (row + 0.5) * down + 4:.1f}">{row}</text>')
            for row in self.named(len(self.values))
        )
        x_middle = (self.width + _LEFT) / 2
        return [
            *columns,
            *rows,
            Markup(f'<text class="mid name" x="{x_middle:.0f}" y="{self.height - 5}">{escape(self.x_label)}</text>'),
            Markup(
                f'<text class="mid name" x="11" y="{middle:.0f}" transform="rotate(-90 11 {middle:.0f})">'
                f"{escape(self.y_label)}</text>"
            ),
        ]


def share(value: float) -> str:
    """Formats a number from 0 to 1 without its leading zero: .97."""
    return f"{value:.2f}".removeprefix("0")


def accuracy_section(summary: Summary) -> Section | None:
    """Returns the accuracies of each method on streams of tasks; None if no case is a stream."""
    snapshot = summary.snapshot
    figures = [
        figure
        for case in range(len(snapshot.cases))
        for place in range(len(snapshot.subjects))
        if (figure := _figure(summary, place, case)) is not None
    ]
    note = (
        "Row i is after training on task i, column j the accuracy on task j; seed means. "
        "Tasks below the diagonal have been learned before; tasks above it have not been trained yet."
    )
    if len(figures) > _MOST_FIGURES:
        note += f" {len(figures) - _MOST_FIGURES} more are not drawn."
    shown = tuple(figures[:_MOST_FIGURES])
    if not shown:
        return None
    return Section(id="matrix", title="Accuracy by task", note=note, kind="small", figures=shown, view="cases")


def _figure(summary: Summary, place: int, case: int) -> Figure | None:
    snapshot = summary.snapshot
    cell = snapshot.cell(place, case)
    found = accuracy_matrix(cell) if cell is not None and cell.sources else None
    if found is None:
        return None
    split, values = found
    title = f"{snapshot.name(case)}, {snapshot.labels[place]}"
    return Figure(
        title=title,
        chart=HeatMap(
            title=f"{title}: accuracy on each task after each",
            description=f"At the end: {', '.join(map(share, values[-1].tolist()))}.",
            x_label=f"{split} accuracy on task",
            y_label="after task",
            values=tuple(map(tuple, values.tolist())),
        ),
    )
