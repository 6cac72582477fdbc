"""Text lines and tables, safe for names with any characters."""

from __future__ import annotations

import itertools
import math
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from lobench.core.wording import counted, one_line
from lobench.engine.store.run_names import is_of_session
from lobench.engine.store.series import has_step_in_name

if TYPE_CHECKING:
    from lobench.analysis.stats.comparison import MeanDifference
    from lobench.analysis.stats.intervals import Interval
    from lobench.core.step_cost import Overhead, StepSeconds
    from lobench.core.subject import Subject

__all__ = [
    "NO_INTERVAL",
    "code_block",
    "description_list",
    "escape_controls",
    "factor_mark",
    "factor_text",
    "final_mean_text",
    "has_outer_step",
    "interval_cell",
    "interval_words",
    "markdown_line",
    "markdown_table",
    "number_form",
    "overhead_cell",
    "p_cell",
    "p_words",
    "ratio_cell",
    "step_cell",
    "subject_name",
    "subjects_in_words",
    "terminal_width",
    "text_table",
    "wrap_lines",
]

_Cells: TypeAlias = Sequence[Sequence[str]]
NO_INTERVAL = "no interval: too few values"
_GAP = "  "  # between columns
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"  # end of shortened names; one column wide
_LEAST_WIDTH = 40
_MOST_TIMES = 10_000  # larger factors are given as "more than"
_LEAST_MEAN = 0.0005  # smaller means round to 0.000
_LEAST_NAME_WIDTH = 20  # names are not made shorter than this
_WORD_START = re.compile(r"\W*[^\W\d_]")  # begins with a letter
_WRAPPED_WORD = re.compile(r"\S*`[^`]*`\S*|\S+")  # words; a command in backquotes is one word
_INNER_GAP = re.compile(r"(?<=\S) {2,}(?=\S)")  # blanks that align a line
_COMMAND = re.compile(r"\s*(again: |\$ |(lobench|pytest) )")
_KEPT_BLANK = "\x00"
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def escape_controls(page: str) -> str:
    """Returns a page with all control characters except line breaks escaped."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], page)


def subjects_in_words(subjects: Iterable[Subject]) -> str:
    """Returns the numbers of checkpoints, optimizers and imported methods."""
    names = {"checkpoint": "checkpoint", "optimizer": "optimizer", "imported": "imported method"}
    counts = Counter(names[subject.kind] for subject in subjects)
    return " and ".join(counted(counts[name], name) for name in names.values() if counts[name]) or "no subjects"


def interval_cell(interval: Interval | MeanDifference | None, form: str = "z.3f", *, mark: str = "") -> str:
    """Formats an interval as `0.52 [0.44, 0.60]`; only the mean without bounds, `-` without a mean.

    A mean that would be printed as 0.000, although its bounds exclude 0, has two significant digits.

    Args:
      interval: The interval.
      form: Format of the numbers. Includes `z` if values may be rounded to 0, so that 0 has no sign.
      mark: Text before the mean, such as `x` for a ratio.
    """
    if interval is None or math.isnan(interval.mean):
        return "-"
    form = number_form(interval, form)
    bounds = "" if math.isnan(interval.lower) else f" [{interval.lower:{form}}, {interval.upper:{form}}]"
    return f"{mark}{interval.mean:{form}}{bounds}"


def interval_words(interval: Interval) -> str:
    """Formats a 95% interval for a sentence: `0.52 [0.44, 0.60] (95%)`; `-` without a mean."""
    if math.isnan(interval.mean):
        return interval_cell(interval)
    return f"{interval_cell(interval)} ({NO_INTERVAL if math.isnan(interval.lower) else '95%'})"


def final_mean_text(value: float | None) -> str:
    """Formats the mean final value of a case: "diverged" for NaN, "no result" for None."""
    if value is None:
        return "no result"
    return "diverged" if math.isnan(value) else f"{value:.4g}"


def p_cell(value: float) -> str:
    """Formats a p-value with four decimals; `<0.0001` below that, `-` for NaN."""
    return "-" if math.isnan(value) else f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def number_form(interval: Interval | MeanDifference, form: str) -> str:
    """Returns the format of an interval: two significant digits if it excludes 0 and would be printed as 0."""
    is_hidden = (interval.lower > 0 or interval.upper < 0) and abs(interval.mean) < _LEAST_MEAN
    return form.replace("z.3f", "#.2g") if is_hidden else form


def p_words(value: float) -> str:
    """Formats a p-value for a sentence: `p < 0.0001` or `p = 0.0123`; "no p" for NaN."""
    text = p_cell(value)
    return "no p" if math.isnan(value) else f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


def ratio_cell(interval: Interval | None) -> str:
    """Formats a ratio with its bounds, `1.11 [1.09, 1.13]`; `-` if unknown.

    A ratio that would be printed as 1, although its bounds exclude 1, has more digits: `1.0040 [1.0030, 1.0050]`.
    """
    if interval is None or math.isnan(interval.mean):
        return "-"
    if math.isnan(interval.lower):
        return factor_text(interval.mean)
    if interval.lower > _MOST_TIMES or interval.upper < 1 / _MOST_TIMES:
        return f"{factor_text(interval.mean)} times"
    if (interval.lower > 1 or interval.upper < 1) and factor_text(interval.mean) in ("1.00", "1.000"):
        decimals = 1 - math.floor(math.log10(abs(interval.mean - 1)))
        return f"{interval.mean:.{decimals}f} [{interval.lower:.{decimals}f}, {interval.upper:.{decimals}f}]"
    return f"{factor_text(interval.mean)} [{factor_text(interval.lower)}, {factor_text(interval.upper)}]"


def factor_text(value: float) -> str:
    """Formats a positive factor with three digits and no exponent: `0.37`, `33`, `> 10,000`, `< 0.0001`."""
    if value > _MOST_TIMES:
        return f"> {_MOST_TIMES:,}"
    if value < 1 / _MOST_TIMES:
        return f"< {1 / _MOST_TIMES:g}"
    decimals = max(0, 2 - math.floor(math.log10(value)))
    return f"{float(f'{value:.3g}'):,.{decimals}f}"


def factor_mark(value: float) -> str:
    """Formats a positive factor as `x1.25`, or `> 10,000 times` if it is larger."""
    if not 1 / _MOST_TIMES <= value <= _MOST_TIMES:
        return f"{factor_text(value)} times"
    return f"x{float(f'{value:.3g}'):,g}"


def step_cell(seconds: StepSeconds) -> str:
    """Formats the seconds of a step, with `~` if they are unsteady; `-` if they are unknown."""
    unsteady_mark = "~" if seconds.is_unsteady else ""
    return "-" if math.isnan(seconds.median) else f"{unsteady_mark}{seconds.median:.3g}"


def markdown_line(text: str) -> str:
    """Escapes text for one line of Markdown. Mentions and links to issues are disabled."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", one_line(text)).replace("@", "&#64;")


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Returns rows as a Markdown table, the first one as its header. Cells in `**` stay bold."""

    def escape_cell(text: str) -> str:
        is_bold = text.startswith("**")
        return f"**{markdown_line(text.strip('*'))}**" if is_bold else markdown_line(text)

    header, *body = [[escape_cell(text) for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, ["---"] * len(header), *body])


def code_block(text: str, language: str = "text") -> str:
    """Returns text as a code block of Markdown, with a fence longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def overhead_cell(overhead: Overhead) -> str:
    """Formats an overhead as `x1.25`, with `~` if it is unsteady; `-` if no gradient was timed."""
    unsteady_mark = "~" if overhead.is_unsteady else ""
    return "-" if math.isnan(overhead.ratio) else f"{unsteady_mark}{factor_mark(overhead.ratio)}"


def terminal_width() -> int:
    """Returns the width of printed lines in columns: COLUMNS or that of the terminal; 100 elsewhere."""
    return max(shutil.get_terminal_size((100, 24)).columns, _LEAST_WIDTH)


def text_table(
    rows: Sequence[Sequence[str]], *, left: Collection[int] | None = None, keys: int = 1, width: int | None = None
) -> str:
    """Returns rows as lines, each column as wide as its widest cell. Each cell is on one line (`one_line`).

    A table that is wider than the terminal loses its empty columns, and its long names are shortened in the middle. If
    that is not enough, it is split into panels, one below the other, which all begin with the columns that name a row.

    Written without a terminal library, which takes many seconds for ten thousand rows.

    Args:
      rows: Rows of cells. The first one is the header.
      left: Indices of left-aligned columns. Others, such as numbers, are right-aligned. None: all are left-aligned.
      keys: Number of columns, from the first one on, that name a row.
      width: Largest width of a line in columns. None: that of the terminal. 0: unlimited.

    >>> print(text_table([["method", "loss"], ["adam", "0.1"]]))
    method  loss
    adam    0.1
    """
    cells: _Cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(_display_width, column)) for column in zip(*cells, strict=True)]
    max_width = terminal_width() if width is None else width
    if max_width and _line_width(widths) > max_width:
        rows_below = cells[1:] or cells
        columns = range(len(widths))
        kept_columns = [column for column in columns if column < keys or any(row[column] for row in rows_below)]
        cells = [[row[column] for column in kept_columns] for row in cells]
        widths = [widths[column] for column in kept_columns]
        left = None if left is None else [index for index, column in enumerate(kept_columns) if column in left]
        shortened_table = _shorten_names(cells, widths, max_width)
        # With panels, keys get a part of the line, and any other column may use all of the rest.
        if _line_width(shortened_table[1]) > max_width:
            shortened_table = cells, widths
            for column in range(len(widths)):
                remaining_width = max_width - _line_width(shortened_table[1][:keys]) - len(_GAP)
                shortened_table = _shorten_column(
                    *shortened_table, column, max_width // (2 + keys) if column < keys else remaining_width
                )
        cells, widths = shortened_table
    is_left = [left is None or column in left for column in range(len(widths))]
    panels = _panels(widths, max_width, keys) if max_width else [range(len(widths))]
    return "\n\n".join(
        _table_lines(
            [[row[column] for column in panel] for row in cells],
            [widths[column] for column in panel],
            [is_left[column] for column in panel],
        )
        for panel in panels
    )


def description_list(rows: Iterable[tuple[str, str]], width: int | None = None) -> str:
    """Returns a list of names with wrapped descriptions next to them.

    Args:
      rows: Pairs of a name and its description.
      width: Largest width of a line in columns. None: that of the terminal.
    """
    pairs = [(one_line(name), one_line(text)) for name, text in rows]
    max_width = terminal_width() if width is None else width
    name_widths = [_display_width(name) for name, _ in pairs]
    indent = min(max(name_widths, default=0), max_width // 2) + len(_GAP)
    lines = list[str]()
    for name, text in pairs:
        first_line, *other_lines = wrap_lines(text, max_width - indent).split("\n")
        is_wide = _display_width(name) + len(_GAP) > indent
        lines += (
            [name, " " * indent + first_line]
            if is_wide
            else [name + " " * (indent - _display_width(name)) + first_line]
        )
        lines += [" " * indent + line.lstrip() for line in other_lines]
    return "\n".join(line.rstrip() for line in lines)


def _display_width(text: str) -> int:
    """Returns the width of a text in a terminal, in columns."""
    if text.replace(_ELLIPSIS, ".").isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _table_lines(cells: Sequence[Sequence[str]], widths: Sequence[int], is_left: Sequence[bool]) -> str:
    if all(cell.isascii() or _display_width(cell) == len(cell) for cell in itertools.chain.from_iterable(cells)):
        line_format = _GAP.join(
            f"{{:{'<' if aligned_left else '>'}{width}}}" for aligned_left, width in zip(is_left, widths, strict=True)
        )
        return "\n".join(line_format.format(*row).rstrip() for row in cells)

    def pad(cell: str, width: int, is_left_aligned: bool) -> str:
        blanks = " " * (width - _display_width(cell))
        return cell + blanks if is_left_aligned else blanks + cell

    return "\n".join(_GAP.join(map(pad, row, widths, is_left)).rstrip() for row in cells)


def _shorten_names(cells: _Cells, widths: Sequence[int], max_width: int) -> tuple[_Cells, list[int]]:
    """Shortens the longest names of a table until it fits, as far as possible. Returns its cells and widths."""
    new_widths = list(widths)
    names = [
        index for index in range(len(new_widths)) if new_widths[index] > _LEAST_NAME_WIDTH and _are_names(cells, index)
    ]
    while names and _line_width(new_widths) > max_width:
        column = max(names, key=lambda candidate: new_widths[candidate])
        new_widths[column] = max(
            _LEAST_NAME_WIDTH, new_widths[column] - max(1, (_line_width(new_widths) - max_width) // len(names))
        )
        if new_widths[column] <= _LEAST_NAME_WIDTH:
            names.remove(column)
    shortened_table: tuple[_Cells, list[int]] = cells, list(widths)
    for column, width in enumerate(new_widths):
        shortened_table = _shorten_column(*shortened_table, column, width)
    return shortened_table


def _shorten_column(cells: _Cells, widths: Sequence[int], column: int, width: int) -> tuple[_Cells, list[int]]:
    """Shortens a column of names to a width, or as far as names stay distinct. Returns cells and widths."""
    if widths[column] <= width:
        return cells, list(widths)
    if not _are_names(cells, column):
        body_width = max((_display_width(row[column]) for row in cells[1:]), default=widths[column])
        if widths[column] <= body_width or not _WORD_START.match(cells[0][column]):
            return cells, list(widths)
        new_width = max(width, body_width, _LEAST_NAME_WIDTH)  # only the header may be shortened
        header = [*cells[0][:column], _cut_middle(cells[0][column], new_width, 0.5), *cells[0][column + 1 :]]
        return [header, *cells[1:]], [*widths[:column], new_width, *widths[column + 1 :]]
    names = {row[column] for row in cells}
    for new_width in range(max(width, _LEAST_NAME_WIDTH), widths[column]):
        for start_share in (0.5, 0.25, 0.75):
            shortened_names = {name: _cut_middle(name, new_width, start_share) for name in names}
            if len(set(shortened_names.values())) == len(names):
                shortened_cells = [[*row[:column], shortened_names[row[column]], *row[column + 1 :]] for row in cells]
                return shortened_cells, [*widths[:column], new_width, *widths[column + 1 :]]
    return cells, list(widths)


def _are_names(cells: _Cells, column: int) -> bool:
    """Returns whether the long cells of a column are words. Numbers and their intervals must not be shortened."""
    return all(_WORD_START.match(row[column]) is not None for row in cells if len(row[column]) > _LEAST_NAME_WIDTH)


def _cut_middle(cell: str, width: int, start_share: float) -> str:
    """Removes the middle of a name. A fraction `start_share` of the remaining letters is before the gap."""
    if _display_width(cell) <= width:
        return cell
    count = int((width - 1) * start_share)
    beginning = cell[:count]
    ending = cell[len(cell) - (width - 1 - count) :]
    while _display_width(beginning) + _display_width(ending) >= width:  # wide characters
        beginning, ending = (beginning[:-1], ending) if len(beginning) >= len(ending) else (beginning, ending[1:])
    return f"{beginning}{_ELLIPSIS}{ending}"


def _panels(widths: Sequence[int], max_width: int, keys: int) -> list[Sequence[int]]:
    """Returns the columns of each panel."""
    if _line_width(widths) <= max_width or len(widths) <= keys + 1:
        return [range(len(widths))]
    panels = [[*range(keys)]]
    for index in range(keys, len(widths)):
        if (
            len(panels[-1]) > keys
            and _line_width([*(widths[column] for column in panels[-1]), widths[index]]) > max_width
        ):
            panels.append([*range(keys)])
        panels[-1].append(index)
    return list(panels)


def wrap_lines(text: str, width: int | None = None) -> str:
    """Breaks long lines of a text at blanks. Commands and texts in backquotes stay whole.

    Args:
      text: The text.
      width: Largest width of a line in columns. None: that of the terminal.
    """
    max_width = terminal_width() if width is None else width
    lines = list[str]()
    for line in text.split("\n"):
        if (len(line) <= max_width and (line.isascii() or _display_width(line) <= max_width)) or _COMMAND.match(line):
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        marked_line = _INNER_GAP.sub(lambda gap: _KEPT_BLANK * len(gap[0]), line.strip())
        words = [word.replace(" ", _KEPT_BLANK) for word in _WRAPPED_WORD.findall(marked_line)]
        folded_lines = _join_words(words, max_width, indent)
        lines += [line.replace(_KEPT_BLANK, " ") for line in folded_lines]
    return "\n".join(lines)


def _join_words(words: Sequence[str], max_width: int, indent: str) -> list[str]:
    """Joins words to lines of at most `max_width` columns, unlike `textwrap`, which counts characters."""
    lines = list[str]()
    current_line = indent + words[0]
    current_width = _display_width(indent + words[0])
    for word in words[1:]:
        width = _display_width(word)
        if current_width + 1 + width > max_width:
            lines.append(current_line)
            current_line = f"{indent}  {word}"
            current_width = len(indent) + 2 + width
        else:
            current_line, current_width = f"{current_line} {word}", current_width + 1 + width
    return [*lines, current_line]


def has_outer_step(subject: Subject) -> bool:
    """Returns whether the outer step of a checkpoint is known, from the name of its file or from its contents."""
    return has_step_in_name(subject.uri) or bool(subject.known_outer_step)


def subject_name(subject: Subject) -> str:
    """Returns the name of a subject in a line. It includes bindings that distinguish it from others at its outer step.

    A file without a number in its name (`last.pt`) is called by its name, because it may have no outer step: its
    contents are then numbered from 0 on as they arrive. A method of an experiment is called by its label.
    """
    if not subject.has_theta or subject.variant.bindings:
        return subject.label
    if subject.has_given_label:
        return f"{subject.label}, outer step {subject.outer_step}" if is_of_session(subject) else subject.label
    lineage = f"generation {subject.generation}, " if subject.generation else f"{subject.run}, " if subject.run else ""
    if has_step_in_name(subject.uri):
        return f"{lineage}outer step {subject.outer_step}"
    step = f", outer step {subject.outer_step}" if has_outer_step(subject) else ""
    return f"{lineage}{subject.label}{step}"
