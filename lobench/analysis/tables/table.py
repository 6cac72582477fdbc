"""Table value: panels of lines of entries, and the specification of a table.

`Table.*` bindings of a gin file define the content and form of a table. Nothing that the file names is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lobench.analysis.stats.intervals import Interval
from lobench.core.errors import ConfigError, suggestion
from lobench.core.number_checks import is_integer
from lobench.core.wording import counted, significant_text
from lobench.engine.config.syntax import Binding, parse_file

__all__ = [
    "BoldRule",
    "CellStyle",
    "Entry",
    "Heading",
    "Line",
    "Panel",
    "TableSpec",
    "Tabulated",
    "cell_text",
    "read_table",
]

BoldRule = Literal["best", "indistinct", "none"]

_EXPLODED_NOTE = "a/b exploded: a of b seeds ended above twice their start, which tests and scores take as diverged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A cell of a table.

    Attributes:
      interval: Mean over seeds with its interval. The bounds are NaN if unknown or not requested.
      num_lost: Number of diverged seeds. The mean of a case is omitted unless it is 0.
      num_seeds: Number of seeds with a value; for a mean score, over all of its cases.
      is_bold: Whether it is printed in bold.
      search_mean: Mean on the seeds on which a search chose the method. NaN without a search.
      is_on_search_seeds: Whether the cell's own value is of these seeds, because there are no others.
      is_score: Whether it is a mean score, which is printed with three decimals.
      eliminated_by: Method that eliminated this one from a race. The interval is then that of the difference from its
        score. "": the cell has its own value.
      is_unsteady: Whether the value is, or depends on, an unsteady time.
      num_missing: Number of planned seeds without a value, not included in `num_seeds`; for a mean score, over all of
        its cases.
      num_exploded: Number of exploded seeds. They are in the mean of a case, and the cell has a mark.
    """

    interval: Interval
    num_lost: int
    num_seeds: int
    is_bold: bool
    search_mean: float = math.nan
    is_on_search_seeds: bool = False
    is_score: bool = False
    eliminated_by: str = ""
    is_unsteady: bool = False
    num_missing: int = 0
    num_exploded: int = 0

    @property
    def is_diverged(self) -> bool:
        """Whether the cell has no mean because a seed diverged. False for mean scores, which count the seed as -1."""
        return self.num_lost > 0 and not self.is_score

    @property
    def exploded_text(self) -> str:
        """Mark of a cell with exploded seeds, "1/6 exploded"; "" without them, and for mean scores."""
        return f"{self.num_exploded}/{self.num_seeds} exploded" if self.num_exploded and not self.is_score else ""

    @property
    def missing_text(self) -> str:
        """Number of planned seeds with a value, "2 of 3 seeds", or missing from a mean score; "" if all have one."""
        if not self.num_missing:
            return ""
        if self.is_score:
            return f"{counted(self.num_missing, 'seed')} missing"
        return f"{self.num_seeds} of {counted(self.num_seeds + self.num_missing, 'seed')}"

    @property
    def has_search(self) -> bool:
        return self.is_on_search_seeds or not math.isnan(self.search_mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Heading of a column or a row. `group` is "" if it is in no group."""

    label: str
    group: str = ""

    @property
    def text(self) -> str:
        return f"{self.group}: {self.label}" if self.group else self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row. An entry is None if the method was not evaluated."""

    heading: Heading
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Rows under one title.

    Attributes:
      title: Title of the panel.
      digits: Significant digits of the means. None for scores, which have three decimals.
      lines: The rows.
      machine: Class of machines on which times were measured; "" without times.
      is_machine_in_heading: Whether the heading has the class of machines, because the table has several.
    """

    title: str
    digits: int | None
    lines: tuple[Line, ...]
    machine: str = ""
    is_machine_in_heading: bool = False

    @property
    def full_heading(self) -> str:
        """Title with the class of machines, for tables whose notes are not shown."""
        return f"{self.title} ({self.machine})" if self.machine else self.title

    @property
    def heading(self) -> str:
        return self.full_heading if self.is_machine_in_heading else self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabulated:
    """A table.

    Attributes:
      row_kind: "method" or "case".
      columns: Headings of the columns after the rows' names. Panels of methods may have two more: mean score and mean
        rank.
      panels: The panels.
      legend: Bindings of each method, if its name does not contain them.
      bold: Meaning of a bold cell; "" if no cell is bold.
      notes: Notes for readers, such as undeclared directions and content that is not shown.
      edge_notes: Lines of `edge_notes_of` for each method with a search. They are also in the notes.
      has_eliminated: Whether a method left a race. Its cells are None, except the mean score of primary metrics.
    """

    row_kind: str
    columns: tuple[Heading, ...]
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...]
    bold: str
    notes: tuple[str, ...]
    edge_notes: Mapping[str, Sequence[str]]
    has_eliminated: bool = False

    def cell_texts(self, panel: Panel) -> list[list[str]]:
        """Returns the cells of a panel as texts, row by row, the header first."""
        rows = [[panel.heading, *(column.text for column in self.columns)]]
        for line in panel.lines:
            row = [line.heading.text, *(cell_text(entry, panel.digits) for entry in line.entries)]
            rows.append(row + [""] * (len(rows[0]) - len(row)))
        return rows

    def footnotes(self) -> list[str]:
        """Returns the lines below the table: legend, meaning of `*` if a cell has it, and notes."""
        entries = [entry for panel in self.panels for line in panel.lines for entry in line.entries]
        bold = [f"*: {self.bold}"] if any(entry is not None and entry.is_bold for entry in entries) else []
        exploded = [_EXPLODED_NOTE] if any(entry is not None and entry.exploded_text for entry in entries) else []
        return [*(f"{label}: {text}" for label, text in self.legend), *bold, *exploded, *self.notes]


class CellStyle:
    """Notation of a cell in text: `0.5* [0.4, 0.6]`, for a search `0.5 [0.4, 0.6] 0.45 (s)`."""

    unknown = "-"  # cell of a method that was not evaluated

    def name(self, text: str) -> str:
        """Returns the name of a method in this notation."""
        return text

    def bounds(self, lower: str, upper: str) -> str:
        return f"[{lower}, {upper}]"

    def mean(self, entry: Entry, digits: int | None) -> str:
        """Returns the mean with its interval, if it has one."""
        interval = entry.interval
        text = "~" * entry.is_unsteady + _number(interval.mean, digits) + "*" * entry.is_bold
        if math.isnan(interval.upper):
            return text
        return f"{text} {self.bounds(_number(interval.lower, digits), _number(interval.upper, digits))}"

    def exploded_mark(self, entry: Entry) -> str:
        """Returns the mark of a cell with exploded seeds."""
        return f" ({entry.exploded_text})"

    def search_mark(self, entry: Entry, digits: int | None) -> str:
        """Returns the mean on the seeds on which a search chose the method, or the mark of a cell of these seeds."""
        return " (s)" if math.isnan(entry.search_mean) else f" {_number(entry.search_mean, digits)} (s)"


def cell_text(entry: Entry | None, digits: int | None, style: CellStyle | None = None) -> str:
    """Returns the content of a cell, for a method that was eliminated from a race `[-0.4, -0.1] against adam`.

    Args:
      entry: The cell. None: the method was not evaluated.
      digits: Significant digits, as in `Panel`.
      style: Notation. None: text.
    """
    style = style or CellStyle()
    if entry is None:
        return style.unknown
    digits = None if entry.is_score else digits
    if entry.eliminated_by:
        interval_ends = (entry.interval.lower, entry.interval.upper)
        lower_text, upper_text = (f"{end:+z.3f}" if math.isfinite(end) else "?" for end in interval_ends)
        return f"{style.bounds(lower_text, upper_text)} against {style.name(entry.eliminated_by)}"
    if entry.num_missing and not entry.num_seeds and not entry.is_score:
        text = "no result"
    elif entry.is_diverged:
        text = f"diverged ({entry.num_lost}/{entry.num_seeds})"
    elif math.isinf(entry.interval.mean):
        text = "never"
    else:
        text = style.mean(entry, digits)
    text += style.exploded_mark(entry) if entry.exploded_text else ""
    text += f" ({entry.missing_text})" if entry.num_missing else ""
    return text + (style.search_mark(entry, digits) if entry.has_search else "")


def _number(value: float, digits: int | None) -> str:
    return f"{value:z.3f}" if digits is None else significant_text(value, digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Specification of a table of methods and cases. The fields are bound by `Table.*` in a gin file.

    Attributes:
      rows: "method" or "case". "": cases, or methods if there are more than six.
      methods: Names of the methods, in this order. (): all.
      metrics: Names of the metrics. (): each case's primary metric, and the test loss.
      groups: Methods or cases of each group, by title.
      precision: Significant digits, by metric.
      interval: Whether the interval is shown, by metric. Default: shown.
      names: New names of methods, cases and metrics.
      costs: Whether it has panels of the cost of a step, and of the first metric at equal time.
      bold: Bold entries. "best": only the best; "indistinct": also those that no test distinguishes from it; "none".
    """

    rows: str = ""
    methods: Sequence[str] = ()
    metrics: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    precision: Mapping[str, int] = field(default_factory=dict)
    interval: Mapping[str, bool] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    costs: bool = False
    bold: BoldRule = "indistinct"


def _is_name_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _maps_to(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(isinstance(k, str) and is_valid(v) for k, v in value.items())


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "rows": ('"method" or "case"', lambda value: value in ("method", "case")),
    "methods": ('a list of names, `["adam", "celo"]`', _is_name_list),
    "metrics": ('a list of metrics, `["test/loss"]`', _is_name_list),
    "groups": ('lists of names by title, `{"learned": ["celo"]}`', _maps_to(_is_name_list)),
    "precision": (
        'digits by metric, 1 to 8, `{"test/accuracy": 2}`',
        _maps_to(lambda value: is_integer(value, at_most=8)),
    ),
    "interval": ('by metric, `{"train/loss": False}`', _maps_to(lambda value: isinstance(value, bool))),
    "names": ('names by name, `{"celo": "Celo"}`', _maps_to(lambda value: isinstance(value, str))),
    "costs": ("True or False", lambda value: isinstance(value, bool)),
    "bold": ('"best", "indistinct" or "none"', lambda value: value in ("best", "indistinct", "none")),
}


def read_table(path: Path) -> TableSpec:
    """Reads a file of `Table.*` bindings.

    Raises:
      ConfigError: The file does not exist or has a syntax error, binds anything but parameters of `Table`, or a value
        has the wrong type.
    """
    keys = [field.name for field in fields(TableSpec)]
    values: dict[str, Any] = {}
    for statement in parse_file(path):
        if not isinstance(statement, Binding):
            raise ConfigError("a table's file imports nothing", where=statement.where)
        name, key = statement.selector, statement.parameter
        if name != "Table" or statement.scope or key not in keys:
            next_step = suggestion(key, keys) if name == "Table" else ""
            raise ConfigError(
                f"nothing reads {name}.{key}" if key else f"nothing reads {name}",
                where=statement.where,
                expected=", ".join(f"Table.{key}" for key in keys),
                next_step=next_step,
            )
        expected, is_valid = _EXPECTED[key]
        if not is_valid(statement.value):
            raise ConfigError(f"Table.{key}", where=statement.where, got=repr(statement.value), expected=expected)
        values[key] = statement.value
    return TableSpec(**values)
