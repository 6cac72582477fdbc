"""Table value: panels of lines of entries, and the request for one.

`Table.*` bindings of a gin file say what a table shows, and how. Nothing that the file names is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lobench.analysis.stats.intervals import Interval
from lobench.core.errors import ConfigError, suggestion
from lobench.core.wording import counted, significant
from lobench.engine.config.syntax import Binding, parse_file

__all__ = ["Bold", "Entry", "Heading", "Line", "Panel", "TableSpec", "Tabulated", "cell_text", "read_table"]

Bold = Literal["best", "indistinct", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A cell.

    Attributes:
      interval: Of the mean over seeds; NaN bounds where there are none, or none are asked for.
      num_lost: Seeds that diverged: there is no mean then.
      num_missing: Planned seeds without a value, beside `num_seeds`; of a mean score, over all of its cases.
      searched: The mean on the seeds that a search chose the method by; NaN where none did.
      is_chosen: Whether the cell itself is of these seeds, for want of others.
      is_score: Whether it is a mean score, which has three decimals wherever it is told.
      against: Who threw it out of a race: the interval is of the difference from that one's score; "": its own value.
      is_unsteady: Whether it is a time, or hangs on one, that is unsteady.
    """

    interval: Interval
    num_lost: int
    num_seeds: int
    is_bold: bool
    searched: float = math.nan
    is_chosen: bool = False
    is_score: bool = False
    against: str = ""
    is_unsteady: bool = False
    num_missing: int = 0

    @property
    def missing_text(self) -> str:
        """How many of the planned seeds have a value: "2 of 3 seeds", of a mean score "1 seed missing"; "" if all."""
        if not self.num_missing:
            return ""
        if self.is_score:
            return f"{counted(self.num_missing, 'seed')} missing"
        return f"{self.num_seeds} of {counted(self.num_seeds + self.num_missing, 'seed')}"

    @property
    def is_searched(self) -> bool:
        return self.is_chosen or not math.isnan(self.searched)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Of a column or a row; `group` is "" where it is in none."""

    label: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row; None where a method was not evaluated."""

    heading: Heading
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Rows under one title.

    Attributes:
      digits: Significant digits of the means; None: they are scores, with three decimals.
      machine: The class of machines that times are of; "" of what hangs on no time.
    """

    title: str
    digits: int | None
    lines: tuple[Line, ...]
    machine: str = ""

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.machine})" if self.machine else self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabulated:
    """A table.

    Attributes:
      rows: "method" or "case".
      columns: Those beside the rows' names. Panels of methods may have more, the mean score and the mean rank.
      legend: What each method was trained with, where its name does not say it.
      bold: What a bold cell is; "" where none is asked for.
      notes: What a reader should know: undeclared directions, what is not shown.
      edges: Of searches, by method, what `edges_of` says; the notes say it too.
    """

    rows: str
    columns: tuple[Heading, ...]
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...]
    bold: str
    notes: tuple[str, ...]
    edges: Mapping[str, Sequence[str]]

    def footnotes(self) -> list[str]:
        """Returns what stands below the table, a line each; what `*` marks, where something has it."""
        entries = [entry for panel in self.panels for line in panel.lines for entry in line.entries]
        bold = [f"*: {self.bold}"] if any(entry is not None and entry.is_bold for entry in entries) else []
        return [*(f"{label}: {text}" for label, text in self.legend), *bold, *self.notes]


def cell_text(entry: Entry | None, digits: int | None) -> str:
    """Returns a cell as text: `0.5* [0.4, 0.6]`, of a search `0.5 [0.4, 0.6] 0.45 (s)`.

    Of a method that left a race `[-0.4, -0.1] against adam`.

    Args:
      digits: Of its panel.
    """
    if entry is None:
        return "-"
    digits = None if entry.is_score else digits
    if entry.against:
        below, above = (
            f"{end:+z.3f}" if math.isfinite(end) else "?" for end in (entry.interval.lower, entry.interval.upper)
        )
        return f"[{below}, {above}] against {entry.against}"
    searched = "" if math.isnan(entry.searched) else f" {_number(entry.searched, digits)}"
    mark = f"{searched} (s)" * entry.is_searched
    mark = f" ({entry.missing_text}){mark}" if entry.num_missing else mark
    if entry.num_missing and not entry.num_seeds and not entry.is_score:
        return f"no result{mark}"
    if entry.num_lost:
        return f"diverged ({entry.num_lost}/{entry.num_seeds}){mark}"
    found = entry.interval
    text = "~" * entry.is_unsteady + _number(found.mean, digits) + "*" * entry.is_bold
    if not math.isnan(found.upper):
        text += f" [{_number(found.lower, digits)}, {_number(found.upper, digits)}]"
    return text + mark


def _number(value: float, digits: int | None) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:z.3f}" if digits is None else significant(value, digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table of methods and cases; without a file each field is as it stands here.

    Attributes:
      rows: "method" or "case"; "": cases, and methods where those are more than six.
      methods: Which ones, in this order; (): all.
      metrics: Which ones; (): each case's primary one, and the test loss.
      groups: By title the methods, or the cases, below it.
      precision: Significant digits, by metric.
      interval: Whether the interval is shown, by metric; shown where nothing is said.
      names: What to call a method, a case or a metric.
      costs: Whether it has panels of what a step costs, and of the first metric at equal time.
      bold: "best": the best alone; "indistinct": what no test tells apart from it, too; "none".
    """

    rows: str = ""
    methods: Sequence[str] = ()
    metrics: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    precision: Mapping[str, int] = field(default_factory=dict)
    interval: Mapping[str, bool] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    costs: bool = False
    bold: Bold = "indistinct"


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)


def _maps_to(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(isinstance(k, str) and is_right(v) for k, v in value.items())


_EXPECTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "rows": ('"method" or "case"', lambda value: value in ("method", "case")),
    "methods": ('a list of names, `["adam", "celo"]`', _is_names),
    "metrics": ('a list of metrics, `["test/loss"]`', _is_names),
    "groups": ('lists of names by title, `{"learned": ["celo"]}`', _maps_to(_is_names)),
    "precision": (
        'digits by metric, 1 to 8, `{"test/accuracy": 2}`',
        _maps_to(lambda value: type(value) is int and 1 <= value <= 8),
    ),
    "interval": ('by metric, `{"train/loss": False}`', _maps_to(lambda value: isinstance(value, bool))),
    "names": ('names by name, `{"celo": "Celo"}`', _maps_to(lambda value: isinstance(value, str))),
    "costs": ("True or False", lambda value: isinstance(value, bool)),
    "bold": ('"best", "indistinct" or "none"', lambda value: value in ("best", "indistinct", "none")),
}


def read_table(path: Path) -> TableSpec:
    """Reads a file of `Table.*` bindings.

    Raises:
      ConfigError: no such file, a syntax error, a binding that is none of a table's, a value of another kind.
    """
    known = [one.name for one in fields(TableSpec)]
    values: dict[str, Any] = {}
    for statement in parse_file(path):
        if not isinstance(statement, Binding):
            raise ConfigError("a table's file imports nothing", where=statement.where)
        name, key = statement.selector, statement.parameter
        if name != "Table" or statement.scope or key not in known:
            raise ConfigError(
                f"nothing reads {name}.{key}" if key else f"nothing reads {name}",
                where=statement.where,
                expected=", ".join(f"Table.{key}" for key in known),
                next_step=suggestion(key, known) if name == "Table" else "",
            )
        expected, is_right = _EXPECTED[key]
        if not is_right(statement.value):
            raise ConfigError(f"Table.{key}", where=statement.where, got=repr(statement.value), expected=expected)
        values[key] = statement.value
    return TableSpec(**values)
