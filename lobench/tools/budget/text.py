"""Output of `lobench budget`: text and a JSON record."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from lobench.core.json_numbers import finite_or_none
from lobench.core.wording import counted, one_line
from lobench.report.tables.text import interval_cell, text_table
from lobench.tools.budget.budget import Budgets, SearchBudget

__all__ = ["budget_record", "budget_text"]


def budget_text(found: Budgets) -> str:
    """Returns a row for each search, a column for 1, 2, 4, ... trials, and what follows."""
    longest = max(search.num_trials for search in found.searches)
    columns = [2**power for power in range(longest.bit_length()) if 2**power <= longest]
    header = ["method", "trials", *(f"best of {k}" for k in columns), "all", "fresh seeds"]
    rows = [_row(search, columns) for search in found.searches]
    return "\n".join([text_table([header, *rows], left={0}), "", *map(one_line, _lines(found))])


def budget_record(found: Budgets) -> dict[str, Any]:
    """Returns what `--format json` prints."""
    record = dataclasses.asdict(found)
    for search, one in zip(record["searches"], found.searches, strict=True):
        search |= {"num_trials": one.num_trials}
        search["expected_best"] = [_interval(interval) for interval in search["expected_best"]]
        search["fresh"] = _interval(search["fresh"])
    finite: dict[str, Any] = finite_or_none(record)
    return finite


def _interval(found: dict[str, Any]) -> dict[str, float]:
    return {name: found[name] for name in ("mean", "lower", "upper")}


def _row(search: SearchBudget, columns: list[int]) -> list[str]:
    cells = [interval_cell(search.expected_best[k - 1]) if k <= search.num_trials else "" for k in columns]
    failed = f" ({search.num_failed} failed)" if search.num_failed else ""
    best = search.expected_best[-1].mean
    return [search.method, f"{search.num_trials}{failed}", *cells, f"{best:.3f}", interval_cell(search.fresh)]


def _lines(found: Budgets) -> list[str]:
    lines = [
        "fitness, higher is better; the expected best of k trials is over all subsets of k, on the seeds that chose: "
        "they flatter"
    ]
    if len(found.searches) > 1:
        for lead in found.leads:
            until = "" if lead is found.leads[-1] else f" to {lead.last}"
            lines.append(f"{lead.method} leads from {counted(lead.first, 'trial')}{until}{' on' * (not until)}")
        if found.differ:
            said = ", ".join(
                f"{one.method} {counted(one.num_trials, 'trial')} of {counted(len(one.parameters), 'parameter')}"
                for one in found.searches
            )
            lines.append(f"spaces or budgets differ: {said}; compare columns, and not the last one")
    lines += [f"{search.method}: {edge}" for search in found.searches for edge in search.edges]
    if any(not math.isnan(search.fresh.mean) for search in found.searches):
        lines.append("fresh seeds: the mean score of the best trial, on the table's scale, on seeds that chose nothing")
    return lines
