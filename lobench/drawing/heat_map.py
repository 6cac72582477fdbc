"""Heat maps with their values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup, escape

__all__ = ["HeatMap", "format_share"]

_LEFT, _TOP, _BOTTOM, _RIGHT = 34, 6, 36, 6
_MOST_OPAQUE = 0.6  # light enough for texts
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

    def labelled_indices(self, count: int) -> range:
        """Returns the indices of the rows or columns whose number is printed, depending on the space."""
        return range(0, count, math.ceil(count / _MOST_TEXTS))

    def svg(self) -> Markup:
        """Returns the map as markup, with all external text escaped."""
        text = escape(f"{self.title}. {self.description}")
        body = Markup("").join([*self._square_shapes(), *self._label_shapes()])
        return Markup(
            f'<svg class="heat" viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{text}">{body}</svg>'
        )

    def _square_size(self) -> tuple[float, float]:
        across = (self.width - _LEFT - _RIGHT) / len(self.values[0])
        return across, (self.height - _TOP - _BOTTOM) / len(self.values)

    def _square_shapes(self) -> list[Markup]:
        square_width, square_height = self._square_size()
        shapes = []
        for row, values in enumerate(self.values):
            for column, value in enumerate(values):
                if not math.isfinite(value):
                    continue
                x, y = _LEFT + column * square_width, _TOP + row * square_height
                opacity = _MOST_OPAQUE * min(max(value, 0.0), 1.0)
                shapes.append(
                    Markup(
                        f'<rect class="square" x="{x:.1f}" y="{y:.1f}" width="{square_width - 1:.1f}" '
                        f'height="{square_height - 1:.1f}" fill-opacity="{opacity:.2f}"/>'
                    )
                )
                if self.has_texts:
                    text = (
                        f'<text class="mid value" x="{x + square_width / 2:.1f}" y="{y + square_height / 2 + 4:.1f}">'
                    )
                    shapes.append(Markup(f"{text}{format_share(value)}</text>"))
        return shapes

    def _label_shapes(self) -> list[Markup]:
        square_width, square_height = self._square_size()
        y_below = self.height - _BOTTOM + 14
        y_middle = _TOP + (self.height - _TOP - _BOTTOM) / 2
        columns = (
            Markup(f'<text class="mid" x="{_LEFT + (column + 0.5) * square_width:.1f}" y="{y_below}">{column}</text>')
            for column in self.labelled_indices(len(self.values[0]))
        )
        rows = (
            Markup(f'<text class="end" x="{_LEFT - 5}" y="{_TOP + (row + 0.5) * square_height + 4:.1f}">{row}</text>')
            for row in self.labelled_indices(len(self.values))
        )
        x_middle = (self.width + _LEFT) / 2
        return [
            *columns,
            *rows,
            Markup(f'<text class="mid name" x="{x_middle:.0f}" y="{self.height - 5}">{escape(self.x_label)}</text>'),
            Markup(
                f'<text class="mid name" x="11" y="{y_middle:.0f}" transform="rotate(-90 11 {y_middle:.0f})">'
                f"{escape(self.y_label)}</text>"
            ),
        ]


def format_share(value: float) -> str:
    """Formats a number from 0 to 1 without its leading zero: .97."""
    return f"{value:.2f}".removeprefix("0")
