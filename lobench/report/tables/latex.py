r"""LaTeX tables: `lobench report --format latex`, which needs booktabs alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.tables.table import Entry, Heading, Panel, TableSpec
from lobench.analysis.tables.tabulate import SEARCHED_NOTE, tabulate
from lobench.core.errors import StoreError
from lobench.core.wording import one_line, one_line_of

__all__ = ["latex_table", "write_latex"]

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def write_latex(summary: Summary, output: Path, *, precision: int, spec: TableSpec | None = None) -> None:
    """Writes the table.

    Raises:
      StoreError: nothing to show, or the file cannot be written.
    """
    text = latex_table(summary, spec, precision=precision)
    with one_line_of(OSError, StoreError, "cannot write the table", where=output):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")


def latex_table(summary: Summary, spec: TableSpec | None = None, *, precision: int = 3) -> str:
    """Returns a table of methods and cases, as `analysis.tabulate` lays it out, the tuned baseline beside the methods.

    A cell is the seed mean with its 95% interval, of which few are symmetric.
    What the methods were trained with, beyond their names, stands below.

    Args:
      spec: What a table's file says.
      precision: Significant digits of the means, where the file says none.
    Raises:
      StoreError: the store holds no evaluation. ConfigError: the file names what is not there.
    """
    found = tabulate(summary, spec, digits=precision)
    bold = f"bold: {found.bold}" if found.bold else "nothing is bold"
    width = 1 + len(found.columns)
    lines = [
        *(f"% {one_line(note)}" for note in found.notes),
        f"% lobench report; \\usepackage{{booktabs}}. Seed mean and its 95% interval; {bold}.",
        f"\\begin{{tabular}}{{l{'r' * len(found.columns)}}}",
        "\\toprule",
        *_column_groups(found.columns),
        " & ".join(["", *(escape(column.label) for column in found.columns)]) + r" \\",
        *(line for panel in found.panels for line in _panel(panel, width)),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    if SEARCHED_NOTE in found.notes:
        note = escape(SEARCHED_NOTE.partition(": ")[2])
        lines += [r"\par\smallskip", f"{{\\footnotesize\\raggedright $^{{s}}$ {note}.\\par}}"]
    if found.legend:
        told = "; ".join(f"\\emph{{{escape(label)}}}: {escape(text)}" for label, text in found.legend)
        lines += [r"\par\smallskip", f"{{\\footnotesize\\raggedright {told}.\\par}}"]
    return "\n".join([*lines, ""])


def _column_groups(columns: Sequence[Heading]) -> list[str]:
    """Returns a line over the header with the names of groups, and a rule below each."""
    if not any(column.group for column in columns):
        return []
    cells, rules, place = [""], [], 2
    for group, members in itertools.groupby(columns, lambda column: column.group):
        count = len(list(members))
        cells.append(f"\\multicolumn{{{count}}}{{c}}{{{escape(group)}}}")
        rules += [f"\\cmidrule(lr){{{place}-{place + count - 1}}}"] if group else []
        place += count
    return [" & ".join(cells) + r" \\", " ".join(rules)]


def _panel(panel: Panel, width: int) -> list[str]:
    """Returns the rows below a rule and the panel's title, and a rule between its groups."""
    lines = ["\\midrule"]
    lines += [f"\\multicolumn{{{width}}}{{l}}{{\\emph{{{escape(panel.title)}}}}} \\\\"] if panel.title else []
    group = ""
    for index, line in enumerate(panel.lines):
        if line.heading.group != group:
            group = line.heading.group
            lines += [f"\\cmidrule(l){{1-{width}}}"] if index else []
            lines += [f"\\multicolumn{{{width}}}{{l}}{{{escape(group)}}} \\\\"] if group else []
        cells = [_cell(entry, panel.digits) for entry in line.entries]
        cells += [""] * (width - 1 - len(cells))
        indent = "\\quad " if panel.title else ""
        lines.append(" & ".join([f"{indent}{escape(line.heading.label)}", *cells]) + r" \\")
    return lines


def _cell(entry: Entry | None, digits: int | None) -> str:
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
    return f"{_own_cell(entry, digits)}{searched}"


def _own_cell(entry: Entry, digits: int | None) -> str:
    if entry.num_lost:
        return f"diverged ({entry.num_lost}/{entry.num_seeds})"
    found, is_score = entry.interval, digits is None
    if entry.against:
        low, high = (f"{bound:+.3f}" if math.isfinite(bound) else "?" for bound in (found.lower, found.upper))
        return f"$[{low}, {high}]$ against {escape(entry.against)}"
    text = f"{found.mean:.3f}" if is_score else _number(found.mean, digits or 1)
    text = f"\\mathbf{{{text}}}" if entry.is_bold else text
    if math.isnan(found.upper):
        return f"${text}$"
    low, high = (f"{bound:.3f}" if is_score else _number(bound, digits or 1) for bound in (found.lower, found.upper))
    return f"${text}\\,[{low}, {high}]$"


def _number(value: float, precision: int) -> str:
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return "\\mathrm{nan}" if math.isnan(value) else "\\infty" if value > 0 else "-\\infty"
    exponent = math.floor(math.log10(abs(value)))
    if -4 <= exponent < 6:
        return f"{value:.{max(0, precision - 1 - exponent)}f}"
    mantissa, _, power = f"{value:.{precision - 1}e}".partition("e")
    return f"{mantissa} \\times 10^{{{int(power)}}}"


def escape(text: str) -> str:
    """Returns text as LaTeX shows it, on one line."""
    return "".join(_ESCAPES.get(character, character) for character in one_line(text))
