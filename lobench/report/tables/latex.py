"""LaTeX tables: `lobench report --format latex`, which needs booktabs, and siunitx on request."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.tables.table import CellStyle, Entry, Heading, Panel, TableSpec, Tabulated, cell_text
from lobench.analysis.tables.tabulate import SEARCHED_NOTE, tabulate
from lobench.core.errors import UsageError
from lobench.core.wording import one_line, significant_text

__all__ = ["Numbers", "engine_notes", "latex_table"]

Numbers = Literal["plain", "siunitx"]

_LENGTHS = {"\\linewidth": 229.0, "\\columnwidth": 229.0, "\\textwidth": 345.0}  # points, of a 10pt article
_POINTS_BY_UNIT = {"pt": 1.0, "in": 72.27, "cm": 28.45, "mm": 2.845}
_COLUMN_GAP = 6.0  # points, \tabcolsep
_SHARE_OF_NAMES = 0.4  # largest share of the width that names get
_WIDE_COMMANDS = ("\\text", "\\dagger", "\\times", "\\infty", "\\quad", "\\ensuremath")

# LaTeX names of Greek letters from alpha and Alpha on, in the order of Unicode.
_SMALL_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon phi "
    "chi psi omega"
)
_CAPITAL_GREEK = "A B Gamma Delta E Z H Theta I K Lambda M N Xi O Pi P - Sigma T Upsilon Phi X Psi Omega"
_SYMBOLS = {"→": "to", "≤": "leq", "≥": "geq", "≠": "neq", "≈": "approx", "∞": "infty", "∇": "nabla", "∂": "partial"}
_MATHEMATICS = {
    **{chr(ord("α") + index): name for index, name in enumerate(_SMALL_GREEK.split())},  # noqa: RUF001
    **{chr(0x391 + index): name for index, name in enumerate(_CAPITAL_GREEK.split()) if name != "-"},
    **_SYMBOLS,
}
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{
        letter: f"\\ensuremath{{{name if len(name) == 1 else chr(92) + name}}}" for letter, name in _MATHEMATICS.items()
    },
}
# Besides the characters in the tables, pdflatex has Latin letters (up to Latin Extended-B) and this punctuation.
_LAST_LATIN = "\u024f"
_PUNCTUATION = "\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e\u2020\u2021\u2022\u2026\u2030\u2039\u203a\u20ac\u2122"


def latex_table(
    summary: Summary, spec: TableSpec | None = None, *, precision: int = 3, width: str = "", numbers: Numbers = "plain"
) -> str:
    r"""Returns a table of methods and cases, as laid out by `analysis.tabulate`, with the tuned baseline.

    A cell is the seed mean with its 95% interval, which is rarely symmetric. The bindings of the methods, beyond their
    names, are listed below.

    Args:
      summary: Summary of the store.
      spec: Content of a table's file. None: the default layout.
      precision: Significant digits of the means, unless the file sets them.
      width: Width at which the table is split into several (see `points_of_width`). "": one table of any width.
      numbers: "siunitx" uses `\num`, so that the paper's own settings apply, except for bold means.
    Raises:
      StoreError: The store has no evaluations.
      UsageError: The width is invalid.
      ConfigError: The file names something that does not exist.
    """
    table = tabulate(summary, spec, digits=precision)
    bold = f"bold: {table.bold}" if table.bold else "nothing is bold"
    packages = "booktabs,siunitx" if numbers == "siunitx" else "booktabs"
    lines = [
        *(f"% {one_line(note)}" for note in table.notes),
        f"% lobench report; \\usepackage{{{packages}}}. Seed mean and its 95% interval; {bold}.",
        *_tabular_lines(table, points_of_width(width) if width else math.inf, _LatexStyle(numbers)),
    ]
    lines += [r"\par\smallskip", f"{{\\footnotesize\\noindent\\raggedright {_caption(table)}\\par}}"]
    if table.legend:
        mark_notes = "; ".join(f"\\emph{{{escape(label)}}}: {escape(text)}" for label, text in table.legend)
        lines += [r"\par\smallskip", f"{{\\footnotesize\\noindent\\raggedright {mark_notes}.\\par}}"]
    return "\n".join([*engine_notes(lines), *lines, ""])


def points_of_width(width: str) -> float:
    r"""Returns the largest width of a table, in points.

    Only TeX knows the value of `\linewidth`. It is assumed to be a column of a two-column 10pt article, and
    `\textwidth` the text of a one-column one, so that the table fits there and in wider texts.

    Raises:
      UsageError: The width is neither a known length nor a number with a unit.
    """
    if width in _LENGTHS:
        return _LENGTHS[width]
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(pt|in|cm|mm)", width)
    if match is None or not (points := float(match[1]) * _POINTS_BY_UNIT[match[2]]) > 0:
        raise UsageError(
            "unknown width", where="--width", got=repr(width), expected=f"{', '.join(_LENGTHS)}, or a length as 3.3in"
        )
    return points


def _caption(table: Tabulated) -> str:
    """Returns sentences on the marks in the table."""
    entries = [entry for panel in table.panels for line in panel.lines for entry in line.entries]
    filled_entries = [entry for entry in entries if entry is not None]
    mark_notes = ["Means over seeds"]
    if any(not math.isnan(entry.interval.upper) for entry in filled_entries):
        mark_notes.append("brackets: 95% interval")
    if any(entry.is_bold for entry in filled_entries):
        mark_notes.append(f"bold: {table.bold}")
    if any(entry.is_diverged for entry in filled_entries):
        mark_notes.append("diverged (a/b): a of b seeds diverged, so the mean is undefined")
    text = escape("; ".join(mark_notes))
    if any(entry.exploded_text for entry in filled_entries):
        text += "; $^{\\dagger}$: with seeds that ended above twice their start, taken as diverged by tests and scores"
    if None in entries:
        text += "; --: not evaluated" + ", or left the race" * table.has_eliminated
    if search_note := next((note for note in table.notes if note.startswith(SEARCHED_NOTE)), ""):
        text += f"; $^{{s}}$: {escape(search_note.partition(': ')[2])}"
    return f"{text}."


def _tabular_lines(table: Tabulated, max_width: float, style: CellStyle) -> list[str]:
    """Returns the table, split into several with the rows' names in each if it is too wide."""
    rows = [line for panel in table.panels for line in panel.lines]
    indent = "\\quad " if any(panel.title for panel in table.panels) else ""
    names = [indent + escape(line.heading.label) for line in rows]
    names_width = max(map(_text_points, names))
    names_column = "l"
    if names_width > max_width * _SHARE_OF_NAMES:
        names_width = max_width * _SHARE_OF_NAMES
        names_column = f"p{{{names_width:.0f}pt}}"
    widths = []
    for index, column in enumerate(table.columns):
        cells = [
            _text_points(cell_text(line.entries[index], panel.digits, style))
            for panel in table.panels
            for line in panel.lines
            if index < len(line.entries)
        ]
        widths.append(
            max(_text_points(escape(column.label)), _text_points(escape(column.group)), *cells) + 2 * _COLUMN_GAP
        )
    column_groups: list[list[int]] = [[]]
    room_left = max_width - names_width - 2 * _COLUMN_GAP
    for index, width in enumerate(widths):
        if column_groups[-1] and sum(widths[column_index] for column_index in column_groups[-1]) + width > room_left:
            column_groups.append([])
        column_groups[-1].append(index)
    lines: list[str] = []
    for column_group in column_groups:
        partial_table = _with_columns(table, column_group)
        num_columns = 1 + len(column_group)
        lines += ["\\par\\medskip"] if lines else []
        lines += ["\\noindent"] if math.isfinite(max_width) else []
        lines += [
            f"\\begin{{tabular}}{{{names_column}{'r' * len(column_group)}}}",
            "\\toprule",
            *_group_lines(partial_table.columns),
            " & ".join(["", *(escape(column.label) for column in partial_table.columns)]) + r" \\",
            *(line for panel in partial_table.panels for line in _panel_lines(panel, num_columns, style)),
            "\\bottomrule",
            "\\end{tabular}",
        ]
    return lines


def _with_columns(table: Tabulated, column_indices: Sequence[int]) -> Tabulated:
    """Returns the part of a table with these columns. Rows and panels without entries in them are left out."""
    panels = []
    for panel in table.panels:
        lines = [
            replace(line, entries=tuple(line.entries[index] for index in column_indices if index < len(line.entries)))
            for line in panel.lines
        ]
        if any(line.entries for line in lines):
            panels.append(replace(panel, lines=tuple(lines)))
    return replace(table, columns=tuple(table.columns[index] for index in column_indices), panels=tuple(panels))


def _text_points(text: str) -> float:
    """Returns the estimated width of LaTeX text at 10pt, rather too large than too small."""
    plain = re.sub(
        r"\\[A-Za-z]+ ?|\\(.)", lambda match: match[1] or ("xx" if match[0].startswith(_WIDE_COMMANDS) else ""), text
    )
    return sum(_letter_points(letter) for letter in plain if letter not in "{}$^")


def _letter_points(letter: str) -> float:
    if letter in "iljtfr.,;:'!()[] ":
        return 4.0
    return 10.0 if letter in "mwMW" or ord(letter) > 127 else 8.0 if letter.isupper() or letter in "+=_%&" else 5.8


def _group_lines(columns: Sequence[Heading]) -> list[str]:
    """Returns a line above the header with the names of groups, and a rule below each."""
    if not any(column.group for column in columns):
        return []
    cells, rules, column_number = [""], [], 2
    for group, members in itertools.groupby(columns, lambda column: column.group):
        count = len(list(members))
        cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escape(group)}}}")
        rules += [f"\\cmidrule(lr){{{column_number}-{column_number + count - 1}}}"] if group else []
        column_number += count
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _panel_lines(panel: Panel, num_columns: int, style: CellStyle) -> list[str]:
    """Returns the rows below a rule and the panel's title, with a rule between groups."""
    lines = ["\\midrule"]
    title = escape(panel.full_heading)
    lines += [f"\\multicolumn{{{num_columns}}}{{l}}{{\\emph{{{title}}}}} \\\\"] if title else []
    group = ""
    for index, line in enumerate(panel.lines):
        if line.heading.group != group:
            group = line.heading.group
            lines += [f"\\cmidrule(l){{1-{num_columns}}}"] if index else []
            lines += [f"\\multicolumn{{{num_columns}}}{{l}}{{{escape(group)}}} \\\\"] if group else []
        cells = [cell_text(entry, panel.digits, style) for entry in line.entries]
        cells += [""] * (num_columns - 1 - len(cells))
        indent = "\\quad " if panel.title else ""
        lines.append(" & ".join([f"{indent}{escape(line.heading.label)}", *cells]) + r" \\")
    return lines


class _LatexStyle(CellStyle):
    """Notation of a cell in LaTeX.

    Args:
      numbers: As for `latex_table`.
    """

    unknown = "--"

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def name(self, text: str) -> str:
        return escape(text)

    def bounds(self, lower: str, upper: str) -> str:
        return f"$[{lower}, {upper}]$"

    def mean(self, entry: Entry, digits: int | None) -> str:
        mean, lower, upper = entry.interval.mean, entry.interval.lower, entry.interval.upper
        text = f"\\mathbf{{{_latex_number(mean, digits)}}}" if entry.is_bold else self._number_text(mean, digits)
        text = "\\sim " * entry.is_unsteady + text
        return (
            f"${text}$"
            if math.isnan(upper)
            else f"${text}\\,[{self._number_text(lower, digits)}, {self._number_text(upper, digits)}]$"
        )

    def exploded_mark(self, entry: Entry) -> str:
        return "$^{\\dagger}$"

    def search_mark(self, entry: Entry, digits: int | None) -> str:
        return "$^{s}$" if math.isnan(entry.search_mean) else f" $({_latex_number(entry.search_mean, digits)})^{{s}}$"

    def _number_text(self, value: float, digits: int | None) -> str:
        text = _latex_number(value, digits)
        if self._numbers == "plain" or not math.isfinite(value):
            return text
        mantissa, _, power = text.partition(" \\times 10^")
        return f"\\num{{{mantissa}{f'e{power[1:-1]}' if power else ''}}}"


def _latex_number(value: float, digits: int | None) -> str:
    """Returns a number in LaTeX. `digits` as in `Panel`."""
    if not math.isfinite(value):
        return "\\mathrm{nan}" if math.isnan(value) else "\\infty" if value > 0 else "-\\infty"
    if digits is None:
        return f"{value:z.3f}"
    mantissa, _, power = significant_text(value, digits).partition("e")
    return f"{mantissa} \\times 10^{{{int(power)}}}" if power else mantissa


def escape(text: str) -> str:
    r"""Escapes text for LaTeX, on one line.

    >>> print(escape("50% \u03b2_1"))
    50\% \ensuremath{\beta}\_1
    """
    return "".join(_ESCAPES.get(character, character) for character in one_line(text))


def engine_notes(lines: Iterable[str]) -> list[str]:
    """Returns a comment on the required engine if the lines have characters that pdflatex lacks; [] otherwise."""
    text = "".join(line for line in lines if not line.startswith("%"))
    missing_letters = sorted({letter for letter in text if letter > _LAST_LATIN and letter not in _PUNCTUATION})
    if not missing_letters:
        return []
    return [
        f"% pdflatex has no {' '.join(missing_letters)}: compile with lualatex or xelatex, and a font that has them."
    ]
