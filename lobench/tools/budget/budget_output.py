"""Output of `lobench budget`: text and a JSON record."""

from __future__ import annotations

import math
from typing import Annotated, TypedDict

from lobench.analysis.stats.intervals import Interval, IntervalRecord
from lobench.core.json_numbers import record_from
from lobench.core.wording import counted, one_line
from lobench.report.tables.text import interval_cell, interval_words, text_table
from lobench.tools.budget.budget import Budgets, Lead, SearchBudget

__all__ = ["BudgetRecord", "budget_record", "budget_text"]


class SearchRecord(TypedDict):
    method: str
    num_trials: int
    num_failed: int
    num_stopped: Annotated[int, "Number of trials that median stopping ended. They are censored, not failed."]
    parameters: list[str]
    expected_best: Annotated[list[IntervalRecord], "Expected best fitness after 1, 2, ... and all trials."]
    at_most: Annotated[
        list[float], "Upper bounds of `expected_best`, with the best possible end of each stopped trial."
    ]
    fresh: Annotated[IntervalRecord, "Mean score of the best trial on fresh seeds."]
    edges: Annotated[list[str], "Parameters whose best value is the lowest or the highest in their range."]


class BudgetRecord(TypedDict):
    """`lobench budget`: searches by number of trials."""

    searches: list[SearchRecord]
    leads: Annotated[
        list[Lead], "Method with the highest expected best, by number of trials, while all searches have trials."
    ]
    left_out: Annotated[dict[str, int], "Searches without a fitness, and their number of finished trials."]
    differing_domains: Annotated[
        dict[str, dict[str, str]], "Parameters that several searches have with different domains: domain by method."
    ]


def budget_text(budgets: Budgets) -> str:
    """Returns the leading search by number of trials, a row for each search, and notes."""
    longest = max(search.num_trials for search in budgets.searches)
    columns = [2**power for power in range(longest.bit_length()) if 2**power <= longest]
    header = ["method", "trials", *(f"best of {num_trials}" for num_trials in columns), "all", "fresh seeds"]
    rows = [_search_row(search, columns) for search in budgets.searches]
    table = text_table([header, *rows], left={0})
    return "\n".join([*map(one_line, _answer_lines(budgets)), "", table, "", *map(one_line, _note_lines(budgets))])


def budget_record(budgets: Budgets) -> BudgetRecord:
    """Returns the record for `--format json`."""
    searches = [
        record_from(
            SearchRecord,
            search,
            expected_best=[*map(_interval_record, search.expected_best)],
            fresh=_interval_record(search.fresh),
        )
        for search in budgets.searches
    ]
    return record_from(BudgetRecord, budgets, searches=searches, left_out=dict(budgets.left_out))


def _interval_record(interval: Interval) -> IntervalRecord:
    return record_from(IntervalRecord, interval)


def _search_row(search: SearchBudget, columns: list[int]) -> list[str]:
    cells = [
        _expected_best_cell(search, num_trials) if num_trials <= search.num_trials else "" for num_trials in columns
    ]
    counts = [(search.num_failed, "failed"), (search.num_stopped, "stopped")]
    exclusions_text = ", ".join(f"{count} {reason}" for count, reason in counts if count)
    trials = f"{search.num_trials}" + (f" ({exclusions_text})" if exclusions_text else "")
    return [search.method, trials, *cells, _expected_best_text(search, search.num_trials), interval_cell(search.fresh)]


def _expected_best_text(search: SearchBudget, num_trials: int) -> str:
    """Returns the expected best of k trials, or its two bounds if stopped trials make them differ."""
    low = f"{search.expected_best[num_trials - 1].mean:.3f}"
    high = f"{search.at_most[num_trials - 1]:.3f}"
    return low if low == high else f"{low} to {high}"


def _expected_best_cell(search: SearchBudget, num_trials: int) -> str:
    bounds = interval_cell(search.expected_best[num_trials - 1]).partition(" ")[2]
    return f"{_expected_best_text(search, num_trials)} {bounds}".rstrip()


def _answer_lines(budgets: Budgets) -> list[str]:
    """Returns the leading searches by number of trials, or the best trial of a single search."""
    if len(budgets.searches) == 1:
        (search,) = budgets.searches
        best = f"{search.method}: the best of {counted(search.num_trials, 'trial')} has a mean score of "
        best += f"{_expected_best_text(search, search.num_trials)} on the seeds that chose it (optimistic)"
        fresh_text = "" if math.isnan(search.fresh.mean) else f"; score {interval_words(search.fresh)} on fresh seeds"
        return [best + fresh_text]
    lines = ["; ".join(_lead_texts(budgets, is_shown=True)) or "no search is shown to lead"]
    if higher := _lead_texts(budgets, is_shown=False):
        lines.append(f"highest expected best, but not shown to be a lead: {'; '.join(higher)}")
    if budgets.has_differences:
        axes = ", ".join(
            f"{search.method} {counted(search.num_trials, 'trial')} of {counted(len(search.parameters), 'parameter')}"
            for search in budgets.searches
        )
        lines.append(f"spaces or budgets differ: {axes}; compare columns, and not the last one")
    return lines


def _lead_texts(budgets: Budgets, *, is_shown: bool) -> list[str]:
    """Returns texts such as "adam leads from 3 trials to 8".

    Args:
      is_shown: Whether to return the leads that are statistically shown, or those that are not.
    """
    spans = []
    for lead in budgets.leads:
        end_text = "on" if lead is budgets.leads[-1] else f"to {lead.last}"
        verb = " leads" if is_shown else ""
        spans += [f"{lead.method}{verb} from {counted(lead.first, 'trial')} {end_text}"] * (lead.is_shown is is_shown)
    return spans


def _note_lines(budgets: Budgets) -> list[str]:
    lines = [
        "score of a trial: mean over the cases, not clipped; compares trials of one search",
        "best of k: expected best score of k trials, over all subsets of k: optimistic, on the seeds of the search",
    ]
    if len(budgets.searches) > 1:
        lines.append(
            "a lead is shown if the difference of two searches is above 0 with 95%, for all numbers of trials and "
            "searches together; that takes an interval"
        )
    if any(search.num_stopped for search in budgets.searches):
        lines.append(
            "stopped trials are censored: a range is from their score at the stop to the median that they fell "
            "behind, or the worst trial that finished, which their final score is taken not to pass"
        )
    for name, domains in budgets.differing_domains.items():
        texts_of_domains = "; ".join(f"{domain} ({method})" for method, domain in domains.items())
        lines.append(f"spaces differ: {name} is {texts_of_domains}")
    for method, count in budgets.left_out:
        lines.append(f"left out: {method}, where none of {counted(count, 'ended trial')} has a score")
    lines += [f"{search.method}: {edge}" for search in budgets.searches for edge in search.edges]
    if any(not math.isnan(search.fresh.mean) for search in budgets.searches):
        lines.append(
            "fresh seeds: the score of the best trial that `lobench results` shows, on seeds that chose nothing"
        )
    return [*lines, *filter(None, [budgets.other_code])]
