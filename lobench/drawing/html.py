"""HTML fragments for a notebook cell, fully escaped."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from lobench.core.wording import one_line

__all__ = ["CellContent", "paragraph", "table", "text"]


CellContent = str | Markup


def text(value: CellContent) -> Markup:
    """Returns text as HTML. Control characters become escapes, `\\x1b`."""
    return value if isinstance(value, Markup) else escape(one_line(value))


def paragraph(line: str) -> Markup:
    return Markup(f"<p>{text(line)}</p>")


def table(header: Sequence[CellContent], rows: Sequence[Sequence[CellContent]]) -> Markup:
    """Returns a table. The first column has the names of the rows."""
    header_row = "".join(f"<th>{text(cell)}</th>" for cell in header)
    body = "".join(
        f'<tr><th style="text-align:left">{text(name)}</th>{"".join(f"<td>{text(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    return Markup(f"<table><thead><tr>{header_row}</tr></thead><tbody>{body}</tbody></table>")
