"""HTML fragments for a notebook cell, fully escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lobench.core.wording import one_line
from lobench.drawing.curves import spans_decades

__all__ = ["Cell", "Markup", "paragraph", "spark", "table", "text"]

_WIDTH, _HEIGHT = 90, 18


class Markup(str):
    """HTML that is already escaped."""

    __slots__ = ()


Cell = str | Markup


def text(value: Cell) -> Markup:
    """Returns text as HTML. Control characters become escapes, `\\x1b`."""
    return value if isinstance(value, Markup) else Markup(html.escape(one_line(value)))


def paragraph(line: str) -> Markup:
    return Markup(f"<p>{text(line)}</p>")


def table(header: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> Markup:
    """Returns a table. The first column has the names of the rows."""
    head = "".join(f"<th>{text(cell)}</th>" for cell in header)
    body = "".join(
        f'<tr><th style="text-align:left">{text(first)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in others)}</tr>'
        for first, *others in rows
    )
    return Markup(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def spark(values: ArrayLike) -> Markup:
    """Returns a small drawing of a curve, on a log scale if it spans decades. A NaN leaves a gap.

    Args:
      values: Values at evenly spaced steps, float[num_values].
    """
    curve = np.asarray(values, np.float64)
    if spans_decades(curve):
        curve = np.log(curve)
    known = curve[np.isfinite(curve)]
    if not len(known):
        return Markup("")
    low = float(known.min())
    span = float(np.ptp(known)) or 1.0
    across = (_WIDTH - 4) / max(len(curve) - 1, 1)
    path, is_open = "", False
    for place, value in enumerate(curve.tolist()):
        if math.isfinite(value):
            y = _HEIGHT - 2 - (value - low) / span * (_HEIGHT - 4)
            path += f"{'L' if is_open else 'M'}{2 + place * across:.1f} {y:.1f}"
        is_open = math.isfinite(value)
    return Markup(
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true">'
        f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
    )
