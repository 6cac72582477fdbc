"""LaTeX tables: `lobench report --format latex`, which needs booktabs, and siunitx on request."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.tables.table import Entry, Heading, Panel, TableSpec, Tabulated
from lobench.analysis.tables.tabulate import SEARCHED_NOTE, tabulate
from lobench.core.errors import StoreError, UsageError
from lobench.core.wording import one_line, one_line_of, significant

__all__ = ["Numbers", "engine_notes", "latex_table", "write_latex"]

Numbers = Literal["plain", "siunitx"]

_LENGTHS = {"\\linewidth": 229.0, "\\columnwidth": 229.0, "\\textwidth": 345.0}  # points, of a 10pt article
_POINTS = {"pt": 1.0, "in": 72.27, "cm": 28.45, "mm": 2.845}
_GAP = 6.0  # points, \tabcolsep
_SHARE_OF_NAMES = 0.4  # of the width for names, at most
_WIDE = ("\\text", "\\dagger", "\\times", "\\infty", "\\quad", "\\ensuremath")

# LaTeX names of Greek letters from alpha and Alpha on, in the order of Unicode.
_SMALL_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi o pi rho varsigma sigma tau upsilon phi "
    "chi psi omega"
)
_CAPITAL_GREEK = "A B Gamma Delta E Z H Theta I K Lambda M N Xi O Pi P - Sigma T Upsilon Phi X Psi Omega"
_SYMBOLS = {"→": "to", "≤": "leq", "≥": "geq", "≠": "neq", "≈": "approx", "∞": "infty", "∇": "nabla", "∂": "partial"}
_MATHEMATICS = {
    **{chr(ord("α") + place): name for place, name in enumerate(_SMALL_GREEK.split())},  # noqa: RUF001
    **{chr(0x391 + place): name for place, name in enumerate(_CAPITAL_GREEK.split()) if name != "-"},
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
    **{one: f"\\ensuremath{{{name if len(name) == 1 else chr(92) + name}}}" for one, name in _MATHEMATICS.items()},
}
# Besides the characters in the tables, pdflatex has Latin letters (up to Latin Extended-B) and this punctuation.
_LAST_LATIN = "\u024f"
_PUNCTUATION = "\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e\u2020\u2021\u2022\u2026\u2030\u2039\u203a\u20ac\u2122"


def write_latex(
    summary: Summary,
    output: Path,
    *,
    precision: int,
    spec: TableSpec | None = None,
    width: str = "",
    numbers: Numbers = "plain",
) -> None:
    """Writes the table to a file.

    Args:
      summary, precision, spec, width, numbers: As for `latex_table`.
      output: Path of the file.
    Raises:
      StoreError: There is nothing to show, or the file cannot be written.
    """
    text = latex_table(summary, spec, precision=precision, width=width, numbers=numbers)
    with one_line_of(OSError, StoreError, "cannot write the table", where=output):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")


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
      width: Width at which the table is split into several (see `points_of`). "": one table of any width.
      numbers: "siunitx" uses `\num`, so that the paper's own settings apply, except for bold means.
    Raises:
      StoreError: The store has no evaluations.
      UsageError: The width is invalid.
      ConfigError: The file names something that does not exist.
    """
    tabulated = tabulate(summary, spec, digits=precision)
    bold = f"bold: {tabulated.bold}" if tabulated.bold else "nothing is bold"
    packages = "booktabs,siunitx" if numbers == "siunitx" else "booktabs"
    lines = [
        *(f"% {one_line(note)}" for note in tabulated.notes),
        f"% lobench report; \\usepackage{{{packages}}}. Seed mean and its 95% interval; {bold}.",
        *_tables(tabulated, points_of(width) if width else math.inf, numbers),
    ]
    lines += [r"\par\smallskip", f"{{\\footnotesize\\noindent\\raggedright {_caption(tabulated)}\\par}}"]
    if tabulated.legend:
        mark_notes = "; ".join(f"\\emph{{{escape(label)}}}: {escape(text)}" for label, text in tabulated.legend)
        lines += [r"\par\smallskip", f"{{\\footnotesize\\noindent\\raggedright {mark_notes}.\\par}}"]
    return "\n".join([*engine_notes(lines), *lines, ""])


def points_of(width: str) -> float:
    r"""Returns the largest width of a table, in points.

    Only TeX knows `\linewidth`. It is taken for a column of a 10pt article in two columns, and `\textwidth` for the
    text of one in one column, so that the table fits there and in wider texts.

    Raises:
      UsageError: The width is neither a known length nor a number with a unit.
    """
    if width in _LENGTHS:
        return _LENGTHS[width]
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(pt|in|cm|mm)", width)
    if match is None or not (points := float(match[1]) * _POINTS[match[2]]) > 0:
        raise UsageError(
            "unknown width", where="--width", got=repr(width), expected=f"{', '.join(_LENGTHS)}, or a length as 3.3in"
        )
    return points


def _caption(tabulated: Tabulated) -> str:
    """Returns sentences on the marks in the table."""
    entries = [entry for panel in tabulated.panels for line in panel.lines for entry in line.entries]
    shown = [entry for entry in entries if entry is not None]
    mark_notes = ["Means over seeds"]
    if any(not math.isnan(entry.interval.upper) for entry in shown):
        mark_notes.append("brackets: 95% interval")
    if any(entry.is_bold for entry in shown):
        mark_notes.append(f"bold: {tabulated.bold}")
    if any(entry.is_diverged for entry in shown):
        mark_notes.append("diverged (a/b): a of b seeds diverged, so the mean is undefined")
    text = escape("; ".join(mark_notes))
    if any(entry.exploded_text for entry in shown):
        text += "; $^{\\dagger}$: with seeds that ended above twice their start, taken as diverged by tests and scores"
    text += "; --: not evaluated" * (None in entries)
    if SEARCHED_NOTE in tabulated.notes:
        text += f"; $^{{s}}$: {escape(SEARCHED_NOTE.partition(': ')[2])}"
    return f"{text}."


def _tables(tabulated: Tabulated, room: float, numbers: Numbers) -> list[str]:
    """Returns the table, split into several with the rows' names in each if it is too wide."""
    rows = [line for panel in tabulated.panels for line in panel.lines]
    indent = "\\quad " if any(panel.title for panel in tabulated.panels) else ""
    names = [indent + escape(line.heading.label) for line in rows]
    names_width = max(map(_points, names))
    names_column = "l"
    if names_width > room * _SHARE_OF_NAMES:
        names_width = room * _SHARE_OF_NAMES
        names_column = f"p{{{names_width:.0f}pt}}"
    widths = []
    for place, column in enumerate(tabulated.columns):
        cells = [
            _points(_cell(line.entries[place], panel.digits, numbers))
            for panel in tabulated.panels
            for line in panel.lines
            if place < len(line.entries)
        ]
        widths.append(max(_points(escape(column.label)), _points(escape(column.group)), *cells) + 2 * _GAP)
    parts: list[list[int]] = [[]]
    left = room - names_width - 2 * _GAP
    for place, width in enumerate(widths):
        if parts[-1] and sum(widths[one] for one in parts[-1]) + width > left:
            parts.append([])
        parts[-1].append(place)
    lines: list[str] = []
    for part in parts:
        shown = _of_columns(tabulated, part)
        count = 1 + len(part)
        lines += ["\\par\\medskip"] if lines else []
        lines += ["\\noindent"] if math.isfinite(room) else []
        lines += [
            f"\\begin{{tabular}}{{{names_column}{'r' * len(part)}}}",
            "\\toprule",
            *_column_groups(shown.columns),
            " & ".join(["", *(escape(column.label) for column in shown.columns)]) + r" \\",
            *(line for panel in shown.panels for line in _panel(panel, count, numbers)),
            "\\bottomrule",
            "\\end{tabular}",
        ]
    return lines


def _of_columns(tabulated: Tabulated, places: Sequence[int]) -> Tabulated:
    """Returns the part of a table with these columns. Rows and panels without an entry there are left out."""
    panels = []
    for panel in tabulated.panels:
        lines = [
            replace(line, entries=tuple(line.entries[one] for one in places if one < len(line.entries)))
            for line in panel.lines
        ]
        if any(line.entries for line in lines):
            panels.append(replace(panel, lines=tuple(lines)))
    return replace(tabulated, columns=tuple(tabulated.columns[one] for one in places), panels=tuple(panels))


def _points(text: str) -> float:
    """Returns the estimated width of LaTeX text at 10pt, rather too large than too small."""
    plain = re.sub(r"\\[A-Za-z]+ ?|\\(.)", lambda found: found[1] or ("xx" if found[0].startswith(_WIDE) else ""), text)
    return sum(_wide(letter) for letter in plain if letter not in "{}$^")


def _wide(letter: str) -> float:
    if letter in "iljtfr.,;:'!()[] ":
        return 4.0
    return 10.0 if letter in "mwMW" or ord(letter) > 127 else 8.0 if letter.isupper() or letter in "+=_%&" else 5.8


def _column_groups(columns: Sequence[Heading]) -> list[str]:
    """Returns a line above the header with the names of groups, and a rule below each."""
    if not any(column.group for column in columns):
        return []
    cells, rules, place = [""], [], 2
    for group, members in itertools.groupby(columns, lambda column: column.group):
        count = len(list(members))
        cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escape(group)}}}")
        rules += [f"\\cmidrule(lr){{{place}-{place + count - 1}}}"] if group else []
        place += count
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _panel(panel: Panel, width: int, numbers: Numbers) -> list[str]:
    """Returns the rows below a rule and the panel's title, with a rule between groups."""
    lines = ["\\midrule"]
    lines += [f"\\multicolumn{{{width}}}{{l}}{{\\emph{{{escape(panel.heading)}}}}} \\\\"] if panel.title else []
    group = ""
    for index, line in enumerate(panel.lines):
        if line.heading.group != group:
            group = line.heading.group
            lines += [f"\\cmidrule(l){{1-{width}}}"] if index else []
            lines += [f"\\multicolumn{{{width}}}{{l}}{{{escape(group)}}} \\\\"] if group else []
        cells = [_cell(entry, panel.digits, numbers) for entry in line.entries]
        cells += [""] * (width - 1 - len(cells))
        indent = "\\quad " if panel.title else ""
        lines.append(" & ".join([f"{indent}{escape(line.heading.label)}", *cells]) + r" \\")
    return lines


def _cell(entry: Entry | None, digits: int | None, numbers: Numbers) -> str:
    if entry is None:
        return "--"
    digits = None if entry.is_score else digits
    is_score = digits is None
    searched = ""
    if not math.isnan(entry.searched):
        own = f"{entry.searched:.3f}" if is_score else _number(entry.searched, digits or 1)
        searched = f" $({own})^{{s}}$"
    elif entry.is_chosen:
        searched = "$^{s}$"
    return f"{_own_cell(entry, digits, numbers)}{searched}"


def _own_cell(entry: Entry, digits: int | None, numbers: Numbers) -> str:
    if entry.num_missing:
        whole = replace(entry, num_missing=0)
        is_empty = not entry.num_seeds and not entry.is_score
        return f"{'no result' if is_empty else _own_cell(whole, digits, numbers)} ({entry.missing_text})"
    if entry.exploded_text:
        return f"{_own_cell(replace(entry, num_exploded=0), digits, numbers)}$^{{\\dagger}}$"
    if entry.is_diverged:
        return f"diverged ({entry.num_lost}/{entry.num_seeds})"
    interval, is_score = entry.interval, digits is None
    if entry.against:
        low, high = (f"{bound:+z.3f}" if math.isfinite(bound) else "?" for bound in (interval.lower, interval.upper))
        return f"$[{low}, {high}]$ against {escape(entry.against)}"
    if math.isinf(interval.mean):
        return "never"
    text = f"{interval.mean:z.3f}" if is_score else _number(interval.mean, digits or 1)
    text = f"\\mathbf{{{text}}}" if entry.is_bold else _set(interval.mean, text, numbers)
    text = "\\sim " * entry.is_unsteady + text
    if math.isnan(interval.upper):
        return f"${text}$"
    low, high = (
        _set(bound, f"{bound:z.3f}" if is_score else _number(bound, digits or 1), numbers)
        for bound in (interval.lower, interval.upper)
    )
    return f"${text}\\,[{low}, {high}]$"


def _set(value: float, text: str, numbers: Numbers) -> str:
    if numbers == "plain" or not math.isfinite(value):
        return text
    mantissa, _, power = text.partition(" \\times 10^")
    return f"\\num{{{mantissa}{f'e{power[1:-1]}' if power else ''}}}"


def _number(value: float, precision: int) -> str:
    if not math.isfinite(value):
        return "\\mathrm{nan}" if math.isnan(value) else "\\infty" if value > 0 else "-\\infty"
    mantissa, _, power = significant(value, precision).partition("e")
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
    found = sorted({one for one in text if one > _LAST_LATIN and one not in _PUNCTUATION})
    if not found:
        return []
    return [f"% pdflatex has no {' '.join(found)}: compile with lualatex or xelatex, and a font that has them."]
