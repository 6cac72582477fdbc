"""Method table for a terminal, and as records."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias, TypedDict

from lobench.analysis.stats.intervals import IntervalMethod
from lobench.analysis.tables.table import Tabulated
from lobench.core.json_numbers import finite_or_none
from lobench.core.wording import one_line
from lobench.report.tables.text import text_table

__all__ = ["MethodRecord", "MethodRecords", "method_records", "method_text"]


class MethodRecord(TypedDict):
    """Cell of the table of methods and cases.

    Its fields are the keys of an entry in the JSON document.
    """

    metric: str
    machine: Annotated[str, "Class of machines of a time. Empty if the value does not depend on time."]
    unsteady: Annotated[bool, "Whether the value depends on a time that varied too much."]
    method: str
    bindings: Annotated[str, "Settings of the method. For a search, its best setting."]
    case: str
    mean: float
    lower: float
    upper: float
    interval: IntervalMethod
    seeds: Annotated[int, "Number of seeds with a value. For a mean score, over all cases."]
    diverged: Annotated[int, "Number of seeds without a finite value."]
    exploded: Annotated[int, "Number of other seeds that ended above twice their start. They are in `mean`."]
    missing: Annotated[
        int, "Number of planned seeds without a result, failed or not run. For a mean score, over all cases."
    ]
    bold: Annotated[bool, "Whether it is the best or not significantly worse."]
    searched: Annotated[
        float, "Value on the seeds that the search used. It is optimistic; report `mean` if `is_fresh`."
    ]
    against: Annotated[
        str,
        "Method that eliminated this one from a race. `lower` and `upper` then bound the difference of their scores.",
    ]
    is_fresh: Annotated[
        bool, "Whether `mean` is on fresh seeds. If false, its seeds chose the setting, and it is optimistic."
    ]
    edges: Annotated[list[str], "Searched parameters whose best value is the lowest or the highest in their range."]


MethodRecords: TypeAlias = Annotated[
    list[MethodRecord], "`lobench results --by method`: a record for each method, case and metric."
]


def method_text(table: Tabulated) -> str:
    """Returns the panels one below the other, the bindings of the methods, and notes."""
    panel_texts = [text_table(table.cell_texts(panel), left={0}) for panel in table.panels]
    return "\n\n".join([*panel_texts, "\n".join(map(one_line, table.footnotes()))]).rstrip()


def method_records(table: Tabulated) -> MethodRecords:
    """Returns a record for each cell with content. NaN becomes None."""
    legend = dict(table.legend)
    records = list[MethodRecord]()
    for panel in table.panels:
        for line in panel.lines:
            for column, entry in zip(table.columns, line.entries, strict=False):
                method_and_case = (line.heading, column) if table.row_kind == "method" else (column, line.heading)
                if entry is None:
                    continue
                records.append(
                    {
                        "metric": panel.title,
                        "machine": panel.machine,
                        "unsteady": entry.is_unsteady,
                        "method": method_and_case[0].label,
                        "bindings": legend.get(method_and_case[0].label, ""),
                        "case": method_and_case[1].label,
                        "mean": math.nan if entry.eliminated_by else entry.interval.mean,
                        "lower": entry.interval.lower,
                        "upper": entry.interval.upper,
                        "interval": entry.interval.method,
                        "seeds": entry.num_seeds,
                        "diverged": entry.num_lost,
                        "exploded": entry.num_exploded,
                        "missing": entry.num_missing,
                        "bold": entry.is_bold,
                        "searched": entry.interval.mean if entry.is_on_search_seeds else entry.search_mean,
                        "against": entry.eliminated_by,
                        "is_fresh": not entry.is_on_search_seeds,
                        "edges": list(table.edge_notes.get(method_and_case[0].label, ())),
                    }
                )
    return finite_or_none(records)
