"""The table of methods and cases, as values: panels of lines of entries."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lobench.analysis.intervals import Interval

__all__ = ["Entry", "Heading", "Line", "Panel", "Tabulated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A cell.

    Attributes:
      interval: Of the mean over seeds; NaN bounds where there are none, or none are asked for.
      num_lost: Seeds that diverged: there is no mean then.
      is_share: Whether the interval is one of a share, inside [0, 1], and not symmetric.
      searched: The mean on the seeds that a search chose the method by; NaN where none did.
      is_chosen: Whether the cell itself is of these seeds, for want of others.
      is_score: Whether it is a mean score, which has three decimals wherever it is told.
    """

    interval: Interval
    num_lost: int
    num_seeds: int
    is_bold: bool
    is_share: bool = False
    searched: float = math.nan
    is_chosen: bool = False
    is_score: bool = False

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
    """

    title: str
    digits: int | None
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabulated:
    """A table.

    Attributes:
      rows: "method" or "case".
      columns: Those beside the rows' names. Panels of methods may have more, the mean score and the mean rank.
      legend: What each method was trained with, where its name does not say it.
      notes: What a reader should know: undeclared directions, what is not shown.
    """

    rows: str
    columns: tuple[Heading, ...]
    panels: tuple[Panel, ...]
    legend: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
