"""Tabulation of methods and cases: cell contents, bold entries, order and groups.

`lobench.report` renders the result in LaTeX, in a terminal and in the page.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from lobench.analysis.comparisons.best_group import bold_cells, bold_means
from lobench.analysis.comparisons.step_costs import SideCost, class_costs
from lobench.analysis.comparisons.summary import Summary, summary_of_methods
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.stats.intervals import Interval, metric_means
from lobench.analysis.stats.location import LocationTest
from lobench.analysis.stats.mean_ranks import mean_ranks
from lobench.analysis.store.case_groups import case_groups
from lobench.analysis.store.methods import (
    check_table_name,
    hyperparameters_text,
    index_of_case,
    index_of_method,
    pick_methods,
    unknown_name_error,
)
from lobench.analysis.store.search_history import edge_notes_by_label
from lobench.analysis.store.snapshot import BestTrial, Snapshot
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, StoredSubject
from lobench.analysis.tables.table import Entry, Heading, Line, Panel, TableSpec, Tabulated
from lobench.core.metric import how_to_declare
from lobench.core.result import mean_of
from lobench.core.step_cost import UNSTEADY_NOTE, Overhead
from lobench.core.wording import counted

__all__ = ["COSTS_NOTE", "SEARCHED_NOTE", "race_notes", "summary_for_table", "tabulate", "tabulate_store"]

# Meaning of marked numbers.
SEARCHED_NOTE = "(s): optimistic, on the seeds of the search that chose the setting"
_FRESH_NOTE = "other numbers of a search are of fresh seeds"
_OTHER_STARTS_NOTE = "which may start elsewhere than others: scores and tests are relative to each seed's start"
COSTS_NOTE = (
    "seconds are of training one seed, without compilation and evaluations; at equal time: values at the end "
    "of the fastest method on the same machine"
)
_TEST_NAMES: dict[LocationTest, str] = {
    "paired": "a paired t test",
    "mcnemar": "McNemar's exact test",
    "welch": "Welch's t test",
    "permutation": "a permutation test",
}
_MOST_COLUMNS = 6  # if there are more methods, they are rows


def tabulate_store(store: Path, experiment: str | None = None) -> Tabulated:
    """Returns the table of a store's methods and cases.

    Args:
      store: Folder of the store.
      experiment: Name of the experiment. None: the one that was run last.

    Raises:
      StoreError: The folder is not a store, or the store is empty.
      UsageError: The store lacks the experiment.
    """
    return tabulate(summary_of_methods(store, experiment), TableSpec(rows="method"))


def tabulate(summary: Summary, spec: TableSpec | None = None, *, digits: int = 3) -> Tabulated:
    """Returns a table of the final values of all methods and cases of a store.

    It contains every method that was evaluated. If there are more than six subjects, only the first and the last
    checkpoint of a run are shown, unless `Table.methods` names others.

    Args:
      summary: Summary of the store.
      spec: Specification of the table. None: the defaults.
      digits: Significant digits of metrics without a precision in the specification.

    Raises:
      StoreError: The store contains no evaluation.
      ConfigError: The specification names a method, case or metric that does not exist.
    """
    summary.snapshot.require_rows()
    return _TableMaker(summary, spec or TableSpec(), digits).table()


def summary_for_table(summary: Summary, spec: TableSpec) -> Summary:
    """Returns the part of a summary with the methods of a table, under the names that the table gives them.

    Raises:
      ConfigError: The specification names a method or case that does not exist.
    """
    return summary.for_part(pick_methods(summary.snapshot, spec.methods, spec.names))


class _TableMaker:
    """Lays out one table. Methods are given by their index; -1 is the tuned baseline, which comes last."""

    def __init__(self, summary: Summary, spec: TableSpec, digits: int) -> None:
        baseline = summary.baseline_label
        self._has_baseline = bool(baseline) and (not spec.methods or baseline in spec.methods)
        spec = dataclasses.replace(spec, methods=[name for name in spec.methods if name != baseline])
        self._spec, self._digits = spec, digits
        self._ranked_metrics = dict[tuple[int, int], list[str]]()  # metrics by their numbers of methods and cases
        self._notes = [
            f"no bold of {name}: {how_to_declare(name)}" for name in summary.scales.metrics_without_direction()
        ]
        self._notes += [*summary.scales.baselines.moved_notes, *filter(None, [summary.snapshot.edited_code_line()])]
        method_groups, case_groups = _method_and_case_groups(summary, spec)
        self._summary = summary_for_table(summary, spec)
        snapshot = self._summary.snapshot
        indices = list(range(len(snapshot.subjects)))
        groups = summary.snapshot.groups
        if not spec.methods and groups.runs and len(indices) > _MOST_COLUMNS:
            indices = groups.short_table_indices(summary.headline_index)
            self._notes += _left_out_notes(snapshot, indices)
        self._full_snapshot = summary.snapshot
        titles = [snapshot.labels[index] for index in indices]
        titles += [spec.names.get(baseline, baseline)] if self._has_baseline else []
        self._method_headings = _order_by_group(
            [*indices, *([-1] if self._has_baseline else [])], titles, method_groups
        )
        self._case_headings = _order_by_group(
            list(range(len(snapshot.cases))),
            [self._case_title(case) for case in range(len(snapshot.cases))],
            case_groups or self._cases_by_suite(),
        )
        self._metrics, self._tests_used = self._metric_names(), set[LocationTest]()
        self._eliminated_methods = _eliminated_entries(summary, snapshot)
        self._notes += [*race_notes(summary, has_bounds=True), *filter(None, [snapshot.num_seeds_line()])]
        searches = [snapshot.search_of(index) if index >= 0 else None for index, _ in self._method_headings]
        self._notes += _search_notes(searches)
        self._edge_notes = edge_notes_by_label(snapshot)
        self._notes += [f"{label}: {line}" for label, lines in self._edge_notes.items() for line in lines]

    def _metric_names(self) -> list[str]:
        stored_metrics = {name for subject in self._summary.snapshot.subjects for name in subject.metrics()}
        for key in ("metrics", "precision", "interval"):
            for name in getattr(self._spec, key):
                if name != "primary" and name not in stored_metrics:
                    raise unknown_name_error(key, name, sorted(stored_metrics))
        for name in self._spec.names:
            if name not in stored_metrics | {"primary", "primary metric", self._summary.baseline_label}:
                check_table_name(self._full_snapshot, name)
        return list(self._spec.metrics) or list(self._summary.metrics)

    def _cases_by_suite(self) -> dict[str, list[int]]:
        """Returns the cases by suite; {} if there is a single suite."""
        cases_by_suite: dict[str, list[int]] = {}
        for index, case in enumerate(self._summary.snapshot.cases):
            cases_by_suite.setdefault(case.suite, []).append(index)
        return cases_by_suite if len(cases_by_suite) > 1 else {}

    def _case_title(self, case_index: int) -> str:
        snapshot = self._summary.snapshot
        return snapshot.case_name(case_index).removeprefix(f"{snapshot.cases[case_index].suite}/")

    def _metric_title(self, metric: str) -> str:
        label = self._summary.metric_label(metric)
        return self._spec.names.get(label, label)

    def table(self) -> Tabulated:
        snapshot = self._summary.snapshot
        rows = self._spec.rows or ("case" if len(self._method_headings) <= _MOST_COLUMNS else "method")
        columns = [heading for _, heading in (self._method_headings if rows == "case" else self._case_headings)]
        panels = self._panels_of_cases() if rows == "case" else self._panels_of_methods()
        panels += self._panels_of_costs(rows) if self._spec.costs else []
        max_entries = max((len(line.entries) for panel in panels for line in panel.lines), default=0)
        mean_headings = [Heading(label=label) for label in ("mean score", "mean rank")] if rows == "method" else []
        method_indices = sorted(index for index, _ in self._method_headings if index >= 0)
        legend = [(snapshot.labels[index], hyperparameters_text(snapshot, index)) for index in method_indices]
        return Tabulated(
            row_kind=rows,
            columns=(*columns, *mean_headings[: max_entries - len(columns)]),
            panels=tuple(panels),
            legend=tuple((label, text) for label, text in legend if text),
            bold=self._bold_legend(),
            notes=tuple(self._notes),
            edge_notes=self._edge_notes,
            has_eliminated=bool(self._eliminated_methods.keys() & set(method_indices)),
        )

    def _bold_legend(self) -> str:
        """Returns the meaning of bold entries, which depends on the tests that were used."""
        if self._spec.bold == "none":
            return ""
        if self._spec.bold == "best" or not self._tests_used:
            return "the best"
        tests = " or ".join(_TEST_NAMES[test] for test in _TEST_NAMES if test in self._tests_used)
        return f"the best, or not significantly worse by {tests} (level .05 for all methods together)"

    def _panels_of_cases(self) -> list[Panel]:
        """Returns a panel for each suite and metric, and a panel of mean scores."""
        snapshot, panels = self._summary.snapshot, []
        for suite in sorted({case.suite for case in snapshot.cases}):
            for metric in self._metrics:
                lines = []
                for case, heading in self._case_headings:
                    entries = self._entries(case, metric) if snapshot.cases[case].suite == suite else ()
                    if any(entry is not None for entry in entries):
                        group = "" if heading.group == suite else heading.group
                        lines.append(Line(heading=Heading(label=heading.label, group=group), entries=tuple(entries)))
                if lines:
                    title = f"{suite}, {self._metric_title(metric)}"
                    panels.append(Panel(title=title, digits=self._digits_of(metric), lines=tuple(lines)))
        means = [
            Line(heading=Heading(label=f"{name}, {self._metric_title(metric)}"), entries=tuple(entries))
            for metric in self._metrics
            for name, entries in zip(("mean score", "mean rank"), self._mean_columns(metric), strict=False)
        ]
        return [*panels, Panel(title="", digits=None, lines=tuple(means))] if means else panels

    def _panels_of_methods(self) -> list[Panel]:
        """Returns a panel for each metric, whose last columns are the mean score and the mean rank."""
        panels = []
        for metric in self._metrics:
            columns = [self._entries(case, metric) for case, _ in self._case_headings]
            columns += self._mean_columns(metric)
            lines = []
            for index, (_, heading) in enumerate(self._method_headings):
                entries = [column[index] for column in columns]
                lines.append(Line(heading=heading, entries=tuple(entries)))
            panels.append(Panel(title=self._metric_title(metric), digits=self._digits_of(metric), lines=tuple(lines)))
        return panels

    def _panels_of_costs(self, rows: str) -> list[Panel]:
        """Returns four panels for each class of machines with times. Numbers of different classes are never mixed."""
        entries_by_panel: dict[str, dict[str, dict[int, list[Entry | None]]]] = {}
        steps_to_tuned = self._steps_to_tuned()
        for case, _ in self._case_headings:
            name = self._summary.metric_of(case, self._metrics[0])
            cells = [self._cell(method, case, name) if method >= 0 else None for method, _ in self._method_headings]
            for class_cost in class_costs(cells, name):
                entries_of_class = entries_by_panel.setdefault(str(class_cost.machine), {})
                for title, entries in self._cost_entries(name, class_cost.sides, steps_to_tuned.get(case, {})).items():
                    entries_of_class.setdefault(title, {})[case] = entries
        if not entries_by_panel:
            return []
        has_several_machines = len(entries_by_panel) > 1
        machine_text = f"measured on {next(iter(entries_by_panel))} (x: threads, or devices)"
        self._notes += [COSTS_NOTE if has_several_machines else f"{COSTS_NOTE}; {machine_text}"]
        panels = []
        for machine, titles in entries_by_panel.items():
            for title, entries_by_case in titles.items():
                columns = [
                    entries_by_case.get(case, [None] * len(self._method_headings)) for case, _ in self._case_headings
                ]
                if rows == "case":
                    lines = [
                        Line(heading=heading, entries=tuple(entries))
                        for (_, heading), entries in zip(self._case_headings, columns, strict=True)
                        if any(entries)
                    ]
                else:
                    lines = [
                        Line(heading=heading, entries=tuple(column[index] for column in columns))
                        for index, (_, heading) in enumerate(self._method_headings)
                        if any(column[index] for column in columns)
                    ]
                panel = Panel(
                    title=title,
                    digits=self._digits,
                    lines=tuple(lines),
                    machine=machine,
                    is_machine_in_heading=has_several_machines,
                )
                panels.append(panel)
        entries = [entry for panel in panels for line in panel.lines for entry in line.entries]
        self._notes += [UNSTEADY_NOTE] if any(entry is not None and entry.is_unsteady for entry in entries) else []
        return panels

    def _cost_entries(
        self, metric: str, side_costs: Sequence[SideCost | None], steps_to_tuned: Mapping[int, float]
    ) -> dict[str, list[Entry | None]]:
        """Returns the entries of each panel of costs on a case, by method. Empty panels are left out."""
        entries_by_panel: dict[str, list[Entry | None]] = {
            "seconds of a step": [_time_entry(cost.seconds.median, cost) if cost else None for cost in side_costs],
            "times a gradient step": [
                _time_entry(cost.overhead.ratio, cost.overhead) if cost is not None else None for cost in side_costs
            ],
            f"{metric} at equal time": [self._at_equal_time(cost, metric) if cost else None for cost in side_costs],
            "seconds to tuned train/loss": [
                _time_entry(steps_to_tuned.get(method, math.nan) * cost.seconds.median, cost)
                if cost is not None
                else None
                for (method, _), cost in zip(self._method_headings, side_costs, strict=True)
            ],
        }
        return {title: entries for title, entries in entries_by_panel.items() if any(entries)}

    def _at_equal_time(self, cost: SideCost, metric: str) -> Entry | None:
        (entry,) = self._entries_of_columns([cost.at_equal_time], metric)
        return entry and dataclasses.replace(entry, is_unsteady=cost.is_unsteady)

    def _steps_to_tuned(self) -> dict[int, dict[int, float]]:
        """Returns inner steps to the baseline's loss by case index and method index, for cases with a baseline."""
        method_indices = [method for method, _ in self._method_headings if method >= 0]
        cases = [
            case for case in range(len(self._summary.snapshot.cases)) if self._summary.case_baseline(case) is not None
        ]
        columns = self._summary.times_to_tuned(method_indices)[:-1].T.tolist() if cases else []
        return {
            case: dict(zip(method_indices, column, strict=True)) for case, column in zip(cases, columns, strict=True)
        }

    def _digits_of(self, metric: str) -> int:
        names = {self._summary.metric_of(case, metric) for case, _ in self._case_headings}
        return max((self._spec.precision.get(name, self._digits) for name in names), default=self._digits)

    def _entries(self, case_index: int, metric: str) -> list[Entry | None]:
        """Returns the cells of one case, by method."""
        name = self._summary.metric_of(case_index, metric)
        cells = [self._cell(method, case_index, name) for method, _ in self._method_headings]
        columns = [cell.finals(name) if cell is not None else {} for cell in cells]
        bold = self._bold_columns(name, cells)
        entries = self._entries_of_columns(columns, name, bold)
        entries = [_with_counts(entry, cell) for entry, cell in zip(entries, cells, strict=True)]
        return [
            self._with_search(entry, method, lambda subject: self._case_mean(subject, case_index, name))
            for entry, (method, _) in zip(entries, self._method_headings, strict=True)
        ]

    def _with_search(
        self, entry: Entry | None, method_index: int, mean: Callable[[StoredSubject], float]
    ) -> Entry | None:
        """Returns a cell with the search's result on the seeds on which it chose the method."""
        search = self._summary.snapshot.search_of(method_index) if method_index >= 0 else None
        if entry is None or search is None:
            return entry
        if not search.has_fresh_seeds:
            has_value = entry.is_score or entry.num_seeds > 0  # without a value, no seed chose the setting
            return dataclasses.replace(entry, is_on_search_seeds=has_value, is_bold=False)
        return dataclasses.replace(entry, search_mean=mean(search.subject))

    def _case_mean(self, subject: StoredSubject, case_index: int, metric: str) -> float:
        cell = subject.cells.get(self._summary.snapshot.cases[case_index].identity)
        column = cell.finals(metric) if cell is not None else {}
        return mean_of(list(column.values())) if column else math.nan

    def _cell(self, method_index: int, case_index: int, metric: str) -> Cell | None:
        if method_index in self._eliminated_methods:
            return None  # its few seeds are those that eliminated it
        if method_index < 0:
            return self._summary.tuned_cell(self._summary.snapshot.cases[case_index], metric)
        return self._summary.snapshot.cell(method_index, case_index)

    def _entries_of_columns(
        self, columns: Sequence[Mapping[int, float]], metric: str, bold: Collection[int] = ()
    ) -> list[Entry | None]:
        """Returns an entry for each column of seeds; None if the column is empty."""
        entries: list[Entry | None] = [None] * len(columns)
        filled_indices = [index for index, column in enumerate(columns) if column]
        rows = [list(columns[index].values()) for index in filled_indices]
        for index, values, interval in zip(filled_indices, rows, metric_means(metric, rows), strict=True):
            if not self._spec.interval.get(metric, True):
                interval = Interval(mean=interval.mean, degrees=interval.degrees)
            num_lost = sum(map(math.isnan, values))
            entries[index] = Entry(interval=interval, num_lost=num_lost, num_seeds=len(values), is_bold=index in bold)
        return entries

    def _bold_columns(self, metric: str, cells: Sequence[Cell | None]) -> frozenset[int]:
        """Returns the columns to print in bold.

        They are the best mean and, unless `bold` is "best", all columns that are not significantly worse.
        """
        if self._spec.bold == "none":
            return frozenset()
        bold = bold_cells(cells, metric, self._summary.scales, only_best=self._spec.bold == "best")
        self._tests_used |= bold.tests
        return bold.indices

    def _mean_columns(self, metric: str) -> list[list[Entry | None]]:
        """Returns the mean scores and, for three or more methods, the mean ranks; [] if no case has a scale."""
        means = self._mean_score_entries(metric)
        ranks = self._mean_rank_entries(metric) if means and len(self._method_headings) > 2 else []
        return [entries for entries in (means, ranks) if entries]

    def _mean_rank_entries(self, metric: str) -> list[Entry | None]:
        """Returns each method's mean rank over the common cases, including the tuned baseline; [] below two cases.

        Methods without a score are left out, and so are trials on the seeds that chose them.
        """
        scores_by_method = {method: self._scores(method, metric) for method, _ in self._method_headings}
        scores_by_method = {method: scores for method, scores in scores_by_method.items() if scores}
        subjects = self._summary.snapshot.subjects
        cells = [subjects[method].cells for method in scores_by_method if method >= 0]
        case_group_lists = case_groups(
            cells,
            list(dict.fromkeys(case for scores_of_method in scores_by_method.values() for case in scores_of_method)),
        )
        ranks, num_cases = (
            mean_ranks(list(scores_by_method.values()), case_group_lists) if len(scores_by_method) > 2 else ([], 0)
        )
        if num_cases < 2:
            return []
        self._note_ranks(self._summary.metric_label(metric), len(scores_by_method), num_cases)
        ranks_by_method = dict(zip(scores_by_method, ranks, strict=True))
        return [
            Entry(interval=ranks_by_method[method], num_lost=0, num_seeds=0, is_bold=False, is_score=True)
            if method in ranks_by_method
            else None
            for method, _ in self._method_headings
        ]

    def _note_ranks(self, label: str, num_sides: int, num_cases: int) -> None:
        """Adds a metric to the note on mean ranks with the same numbers of methods and cases."""
        counts = num_sides, num_cases
        labels = self._ranked_metrics.pop(counts, [])
        old_note = _ranks_note(labels, *counts)
        self._ranked_metrics[counts] = [*labels, label]
        new_note = _ranks_note(self._ranked_metrics[counts], *counts)
        if old_note in self._notes:
            self._notes[self._notes.index(old_note)] = new_note
        else:
            self._notes.append(new_note)

    def _scores(self, method_index: int, metric: str) -> Mapping[str, Mapping[int, float]]:
        """Returns the scores of a method, or of the tuned baseline's own seeds, by case and seed."""
        if method_index < 0:
            return self._summary.tuned_scores(metric)
        search = self._summary.snapshot.search_of(method_index)
        if method_index in self._eliminated_methods:
            return {}
        return {} if search and not search.has_fresh_seeds else self._summary.mean_score(method_index, metric).scores

    def _mean_score_entries(self, metric: str) -> list[Entry | None]:
        """Returns each method's mean score, where the tuned baseline scores 1; [] if no case has a scale."""
        method_indices = [
            method for method, _ in self._method_headings if method >= 0 and method not in self._eliminated_methods
        ]
        means = {method: self._summary.mean_score(method, metric).interval for method in method_indices}
        self._note_omitted_cases(metric)
        if all(math.isnan(interval.mean) for interval in means.values()):
            return []
        full_snapshot = self._full_snapshot
        are_all_shown = {subject.subject.key for subject in full_snapshot.all_stored_subjects} <= {
            subject.subject.key for subject in full_snapshot.subjects
        }
        best_text = "the best mean of all methods here" if are_all_shown else "the best mean that is stored"
        note = f"mean score: 0 is {self._summary.scales.zero_text}, 1 {best_text}, on each case (no baseline found)"
        if not are_all_shown:
            note = "; ".join((note, *self._summary.scales.best_subject_lines()))
        if not self._summary.scales.baselines.baseline_by_case and note not in self._notes:
            self._notes.append(note)
        snapshot = self._summary.snapshot
        cases = snapshot.cases
        is_primary = all(
            self._summary.metric_of(case_index, metric) == case.primary_metric for case_index, case in enumerate(cases)
        )
        bold_indices: set[int] = set()
        if self._spec.bold != "none":
            bold_methods = bold_means(self._summary, method_indices, metric, only_best=self._spec.bold == "best")
            self._tests_used |= bold_methods.tests
            bold_indices = {method_indices[index] for index in bold_methods.indices}
            # The tuned baseline scores 1 by definition.
            references = {method for method, _ in self._method_headings if method < 0}
            if references and not any(interval.mean >= 1 for interval in means.values()):
                bold_indices = references
        baseline_interval = Interval(mean=1.0)
        entries = [
            (self._eliminated_methods[method] if is_primary else None)
            if method in self._eliminated_methods
            else None
            if method >= 0 and math.isnan(means[method].mean)
            else Entry(
                interval=means.get(method, baseline_interval),
                num_lost=snapshot.subjects[method].num_diverged if method >= 0 else 0,
                num_seeds=snapshot.subjects[method].num_seeds if method >= 0 else 0,
                is_bold=method in bold_indices,
                is_score=True,
                num_missing=snapshot.subjects[method].num_missing if method >= 0 else 0,
                num_exploded=snapshot.subjects[method].num_exploded if method >= 0 else 0,
            )
            for method, _ in self._method_headings
        ]
        return [
            self._with_search(entry, method, lambda searched: self._mean_of_search(searched, metric))
            for entry, (method, _) in zip(entries, self._method_headings, strict=True)
        ]

    def _mean_of_search(self, subject: StoredSubject, metric: str) -> float:
        score = mean_score(subject, None if metric == "primary" else metric, self._summary.scales)
        return score.over_cases(self._summary.common_cases(metric)).mean

    def _note_omitted_cases(self, metric: str) -> None:
        """Adds notes on groups of cases, and on cases that mean scores exclude because a method lacks them."""
        if (groups := self._summary.groups_note(metric)) and groups not in self._notes:
            self._notes.append(groups)
        if cases_text := self._summary.common_cases_text(metric):
            note = f"mean scores are over {cases_text}"
            self._notes += [note] if note not in self._notes else []
            return
        labels = self._summary.snapshot.labels
        num_cases_by_method = {
            method: self._summary.mean_score(method, metric).num_cases
            for method, _ in self._method_headings
            if method >= 0
        }
        incomplete_methods = [
            f"{labels[method]} {num_scored}"
            for method, num_scored in num_cases_by_method.items()
            if 0 < num_scored < max(num_cases_by_method.values())
        ]
        note = (
            f"mean scores over fewer than {max(num_cases_by_method.values())} cases, never bold: "
            f"{', '.join(incomplete_methods)}"
        )
        self._notes += [note] if incomplete_methods and note not in self._notes else []


def _search_notes(searches: Sequence[BestTrial | None]) -> list[str]:
    """Returns the note on the mark `(s)`, and on numbers of fresh seeds, as a list of at most one text.

    Args:
      searches: Search of each method; None for a method without a search.
    """
    if not any(search is not None and not search.num_infeasible for search in searches):
        return []
    fresh_searches = [search for search in searches if search is not None and search.has_fresh_seeds]
    if not fresh_searches:
        return [SEARCHED_NOTE]
    note = f"{SEARCHED_NOTE}; {_FRESH_NOTE}"
    fresh_cells = [cell for search in fresh_searches for cell in search.subject.cells.values()]
    if len(fresh_searches) < len(searches) and any(cell.draws == LOBENCH_SEEDS for cell in fresh_cells):
        note += f", {_OTHER_STARTS_NOTE}"
    return [note]


def _with_counts(entry: Entry | None, cell: Cell | None) -> Entry | None:
    """Adds the numbers of exploded and of missing planned seeds. A cell without a value may have missing seeds."""
    if cell is None or not (cell.missing_seeds or (entry and cell.exploded_seeds)):
        return entry
    entry = entry or Entry(interval=Interval(), num_lost=0, num_seeds=0, is_bold=False)
    return dataclasses.replace(entry, num_missing=len(cell.missing_seeds), num_exploded=len(cell.exploded_seeds))


def _time_entry(value: float, measurement: SideCost | Overhead) -> Entry | None:
    if math.isnan(value):
        return None
    return Entry(
        interval=Interval(mean=value), num_lost=0, num_seeds=0, is_bold=False, is_unsteady=measurement.is_unsteady
    )


def _eliminated_entries(summary: Summary, snapshot: Snapshot) -> dict[int, Entry]:
    """Returns the methods eliminated from a race, with their distance from the method that eliminated them."""
    if summary.race is None:
        return {}
    full_snapshot = summary.snapshot
    labels = full_snapshot.method_labels | snapshot.method_labels
    entries = {}
    for name, exit_look, standing in zip(
        full_snapshot.experiment.method_names, summary.race.out_at, summary.race.standings, strict=True
    ):
        if exit_look is not None and standing is not None and name in snapshot.experiment.method_names:
            entries[snapshot.experiment.method_names.index(name)] = Entry(
                interval=standing.score_gap,
                num_lost=0,
                num_seeds=0,
                is_bold=False,
                is_score=True,
                eliminated_by=labels[full_snapshot.experiment.method_names[standing.rival]],
            )
    return entries


def _ranks_note(labels: Sequence[str], num_sides: int, num_cases: int) -> str:
    text = f"{', '.join(labels)}: mean rank of {num_sides} by the score, 1 is best"
    return f"{text}, over the {counted(num_cases, 'case')} that all of them have; 95% bootstrap over cases and seeds"


def race_notes(summary: Summary, *, has_bounds: bool) -> list[str]:
    """Returns the notes on a race: its leader, and the looks at which methods were eliminated.

    Args:
      summary: Summary of the store.
      has_bounds: Whether the table shows the bounds of an eliminated method's score against the other one's.
    """
    race, stored_race = summary.race, summary.snapshot.experiment.race
    if race is None or stored_race is None or race.leader is None:
        return []
    look_texts = [
        f"look {exit_look} ({counted(exit_look * stored_race.rules.block, 'seed')} a case)"
        for exit_look in range(1, race.looks + 1)
    ]
    leader = race.labels[race.leader]
    notes = [f"race: {race.leader_text} after {look_texts[-1]}; {race.ending or 'it goes on'}"]
    for label, exit_look, standing in zip(race.labels, race.out_at, race.standings, strict=True):
        if exit_look is not None and standing is not None:
            opponent, (num_diverged, num_diverged_of_other) = (
                race.labels[standing.rival],
                standing.diverged_counts,
            )
            divergence_text = (
                f"; diverged on {num_diverged} where {opponent} did not, and the other way round on "
                f"{num_diverged_of_other}"
                if num_diverged
                else ""
            )
            notes.append(f"{label} left at {look_texts[exit_look - 1]}: worse than {opponent}{divergence_text}")
    has_eliminated = len(notes) > 1
    notes += [f"{leader}: {edge}" for edge in race.edge_notes]
    if has_eliminated:
        meaning = "against: its score less the other's," if has_bounds else "worse:"
        level = f"{1 - stored_race.rules.alpha:g}"
        notes.append(f"{meaning} by bounds that hold at all looks and for all pairs with {level}")
    return notes


def _left_out_notes(snapshot: Snapshot, shown_indices: Sequence[int]) -> list[str]:
    """Returns the note on checkpoints of runs that a table leaves out; [] if it shows all."""
    if len(shown_indices) == len(snapshot.subjects):
        return []
    count = sum(subject.subject.has_theta for subject in snapshot.subjects)
    is_one_run = snapshot.groups.is_one_run
    shown_checkpoints = (
        " and ".join(snapshot.labels[index] for index in shown_indices) if is_one_run else "each run's first and last"
    )
    return [f"{shown_checkpoints} of {counted(count, 'checkpoint')}; Table.methods names others"]


def _order_by_group(
    indices: Sequence[int], titles: Sequence[str], groups: dict[str, list[int]]
) -> list[tuple[int, Heading]]:
    """Returns the indices sorted by group, each with its heading. Indices without a group are last.

    Args:
      indices: Indices of methods or cases of the snapshot.
      titles: Titles of these methods or cases.
      groups: Indices of each group.
    """
    title_by_index = dict(zip(indices, titles, strict=True))
    grouped_methods = [
        (index, group) for group, members in groups.items() for index in members if index in title_by_index
    ]
    grouped_indices = {index for index, _ in grouped_methods}
    grouped_methods += [(index, "") for index in indices if index not in grouped_indices]
    return [(index, Heading(label=title_by_index[index], group=group)) for index, group in grouped_methods]


def _method_and_case_groups(summary: Summary, spec: TableSpec) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Returns the groups of methods and those of cases. Members are given by their index among the shown ones.

    Raises:
      ConfigError: A member is neither a method nor a case, or a group has both.
    """
    snapshot = pick_methods(summary.snapshot, spec.methods)
    groups_of_methods: dict[str, list[int]] = {}
    groups_of_cases: dict[str, list[int]] = {}
    for group, members in spec.groups.items():
        cases = [index_of_case(snapshot, name) for name in members]
        if members and all(index is not None for index in cases):
            groups_of_cases[group] = [index for index in cases if index is not None]
            continue
        find_method: Callable[[str], int] = lambda name: (  # noqa: E731
            -1 if name == summary.baseline_label else index_of_method(snapshot, "groups", name)
        )
        groups_of_methods[group] = [find_method(name) for name in members]
    return groups_of_methods, groups_of_cases
