"""Search history: the trials of a store's searches, the best one, and its scores on the choosing and on fresh seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lobench.analysis.store.snapshot import BestTrial, Snapshot
from lobench.analysis.store.subjects import StoredSubject
from lobench.core.number_checks import is_number
from lobench.core.search.search import Trial, best_trial
from lobench.core.subject import Subject
from lobench.core.trials import FIRST_REPORT_SEED, stop_fitness_and_median
from lobench.core.wording import counted, shortened_list
from lobench.engine.store.experiments import TrialRow

__all__ = [
    "Axis",
    "SearchHistory",
    "best_trial_subject",
    "best_trials",
    "edge_notes_among",
    "edge_notes_by_label",
    "edge_notes_of",
    "num_infeasible",
    "search_histories_of",
    "search_notes",
]

_MOST_NAMED = 6
_LOG_FROM = 50.0  # positive values that span more than this factor are shown by their logarithms


class _HasSeed(Protocol):
    @property
    def seed(self) -> int: ...


_Part = TypeVar("_Part", bound=_HasSeed)


def best_trials(
    rows: Sequence[TrialRow], members: Collection[tuple[str, int | str]], methods: Iterable[str]
) -> dict[str, int | str]:
    """Returns the number of the best trial of each method that searches.

    Args:
      rows: Trials of the experiment.
      members: Methods and trials that have evaluations. Other trials are ignored. If none is feasible, the first
        counts.
      methods: Names of the methods that search.
    """
    best: dict[str, int | str] = {}
    for name in methods:
        member_numbers = sorted(number for method, number in members if method == name and isinstance(number, int))
        best_row = best_trial([row for row in rows if row.method == name and row.number in member_numbers])
        if member_numbers:
            best[name] = member_numbers[0] if best_row is None else best_row.number
    return best


def num_infeasible(rows: Sequence[TrialRow], method: str) -> int:
    """Returns the number of trials of a search if none of them is feasible, else 0."""
    rows_of_method = [row for row in rows if row.method == method]
    return len(rows_of_method) if best_trial(rows_of_method) is None else 0


def best_trial_subject(
    sessions: Mapping[int, Sequence[_Part]], make_subject: Callable[[Mapping[int, Sequence[_Part]]], StoredSubject]
) -> tuple[StoredSubject, BestTrial]:
    """Returns the best trial on fresh seeds, if there are some, and on the seeds that chose it."""
    search_sessions = _filtered_sessions(sessions, lambda part: part.seed < FIRST_REPORT_SEED)
    fresh_sessions = _filtered_sessions(sessions, lambda part: part.seed >= FIRST_REPORT_SEED)
    if not search_sessions or not fresh_sessions:
        subject = make_subject(search_sessions or fresh_sessions)
        return subject, BestTrial(subject=subject, has_fresh_seeds=False)
    search_subject = make_subject(search_sessions)
    return dataclasses.replace(make_subject(fresh_sessions), subject=search_subject.subject), BestTrial(
        subject=search_subject, has_fresh_seeds=True
    )


def _filtered_sessions(
    sessions: Mapping[int, Sequence[_Part]], is_wanted: Callable[[_Part], bool]
) -> dict[int, Sequence[_Part]]:
    wanted_parts = {
        session: [part for part in session_parts if is_wanted(part)] for session, session_parts in sessions.items()
    }
    return {session: session_parts for session, session_parts in wanted_parts.items() if session_parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A parameter, or the fitness, over the trials of a search.

    Attributes:
      path: Path of the parameter.
      values: Value of each trial; NaN if it has none. Values that are not numbers are replaced by their index in
        `names`.
      names: Distinct values, if they are not numbers; else ().
      is_log: Whether the values are shown on a log scale.
    """

    path: str
    values: tuple[float, ...]
    names: tuple[str, ...] = ()
    is_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHistory:
    """Finished trials of a search.

    Attributes:
      method: Scope of the method in the experiment's file.
      label: Name of the method in tables.
      numbers: Numbers of the finished trials, in order. The other fields have the same order.
      fitness: Fitness, higher is better. NaN if a trial has none.
      parameters: Parameters, in the order of their first occurrence.
      best_so_far: Index of the best trial up to each trial. None before the first feasible trial.
      num_unfinished: Number of unfinished trials.
      stop_bounds: Fitness at the stop and the median that it fell below, for trials ended by median stopping; None for
        others.
    """

    method: str
    label: str
    numbers: tuple[int, ...]
    fitness: Axis
    parameters: tuple[Axis, ...]
    best_so_far: tuple[int | None, ...]
    num_unfinished: int
    stop_bounds: tuple[tuple[float, float] | None, ...] = ()

    @property
    def num_stopped(self) -> int:
        return sum(bounds is not None for bounds in self.stop_bounds)

    @property
    def num_failed(self) -> int:
        """Number of trials that ended without a fitness for another reason than median stopping."""
        return sum(math.isnan(value) for value in self.fitness.values) - self.num_stopped

    def fitness_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Returns a lower and an upper bound of the fitness of each trial; NaN for failed trials.

        The bounds differ for stopped trials only. Their final fitness is censored: the lower bound is their fitness at
        the stop, and the upper bound is the median that they fell below, because they are assumed not to exceed it. The
        trial of that median may have been stopped too, so the upper bound is at least the fitness of the worst finished
        trial.
        """
        worst = min((value for value in self.fitness.values if not math.isnan(value)), default=-math.inf)
        bounds = [
            (value, value) if stopped_bounds is None else (stopped_bounds[0], max(*stopped_bounds, worst))
            for value, stopped_bounds in zip(
                self.fitness.values, self.stop_bounds or (None,) * len(self.numbers), strict=True
            )
        ]
        return tuple(low for low, _ in bounds), tuple(high for _, high in bounds)


def search_histories_of(trials: Sequence[TrialRow], labels: Mapping[str, str]) -> list[SearchHistory]:
    """Returns the searches among the trials of an experiment, in the order of their first trials.

    Args:
      trials: Trials of the experiment.
      labels: Names of the methods in tables, by scope.
    """
    trials_by_method: dict[str, list[TrialRow]] = {}
    for trial in trials:
        if trial.parameters:
            trials_by_method.setdefault(trial.method, []).append(trial)
    return [_search_history(method, labels.get(method, method), rows) for method, rows in trials_by_method.items()]


def edge_notes_of(history: SearchHistory) -> list[str]:
    """Returns a line for each number whose best value is the smallest or largest of at least three tried values."""
    best = history.best_so_far[-1] if history.best_so_far else None
    return [] if best is None else _edge_notes(history.parameters, best)


def edge_notes_by_label(snapshot: Snapshot) -> dict[str, list[str]]:
    """Returns the lines of `edge_notes_of` for an experiment's searches, by the labels of their methods."""
    labels = snapshot.method_labels
    edges_by_label = {
        history.label: edge_notes_of(history) for history in search_histories_of(snapshot.experiment.trials, labels)
    }
    return {label: lines for label, lines in edges_by_label.items() if lines}


def edge_notes_among(subjects: Sequence[Subject], best_index: int) -> list[str]:
    """Returns the lines of `edge_notes_of` for one subject among others that bind other values of the same settings.

    Args:
      subjects: The subjects.
      best_index: Index of the subject.
    """
    settings = [_settings(subject) for subject in subjects]
    same_form_indices = [
        index
        for index, setting in enumerate(settings)
        if _settings_form(setting) == _settings_form(settings[best_index])
    ]
    axes = [_axis(path, [settings[index][path] for index in same_form_indices]) for path in settings[best_index]]
    return _edge_notes(axes, same_form_indices.index(best_index))


def _settings(subject: Subject) -> dict[str, str | float]:
    """Returns the bindings of a subject as texts or numbers, by path. The optimizer or checkpoint has the path ""."""
    name, *bindings = (statement.strip() for statement in (subject.uri if subject.is_optimizer else "").split(";"))
    settings: dict[str, str | float] = {"": name or subject.sha256}
    for binding in bindings or subject.variant.bindings:
        path, _, text = map(str.strip, binding.partition("="))
        try:
            settings[path] = float(text)
        except ValueError:
            settings[path] = text
    return settings


def _settings_form(settings: Mapping[str, str | float]) -> tuple[object, ...]:
    return settings[""], *sorted((path, isinstance(value, float)) for path, value in settings.items())


def _edge_notes(axes: Sequence[Axis], best_index: int) -> list[str]:
    lines = []
    for axis in axes:
        tried_values = sorted({value for value in axis.values if not math.isnan(value)})
        value = axis.values[best_index]
        if not axis.names and len(tried_values) > 2 and value in (tried_values[0], tried_values[-1]):
            end = "least" if value == tried_values[0] else "largest"
            lines.append(f"the best {axis.path}, {value:.6g}, is the {end} that was tried: the optimum may lie beyond")
    return lines


def search_notes(snapshot: Snapshot, history: SearchHistory) -> list[str]:
    """Returns lines on the fairness of a search.

    They name methods that were not searched, the seeds of its results, and best values at the edge of a range.
    """
    searching = {trial.method for trial in snapshot.experiment.trials if trial.parameters}
    names = snapshot.method_labels
    lines = []
    if other_labels := [label for method, label in names.items() if method not in searching]:
        named_labels = shortened_list(other_labels, _MOST_NAMED)
        lines.append(
            f"tried: {counted(len(history.numbers), 'setting')} of this method, one of each other ({named_labels})"
        )
    for method, search in zip(snapshot.experiment.method_names, snapshot.experiment.searches, strict=False):
        if method == history.method and search is not None:
            cells = snapshot.subjects[snapshot.experiment.method_names.index(method)].cells.values()
            seeds = sorted({len(cell.seeds) for cell in cells if cell.seeds})
            seeds_text = " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1]))) if seeds else "no"
            fresh_text = (
                f"its results on the other views are of {seeds_text} fresh seeds a case, which did "
                "not choose the setting"
            )
            optimistic_text = "its results on the other views are of the seeds that chose the setting, and optimistic"
            lines.append(fresh_text if search.has_fresh_seeds else optimistic_text)
    return [*lines, *edge_notes_of(history)]


def _search_history(method: str, label: str, rows: Sequence[TrialRow]) -> SearchHistory:
    ended_rows = sorted((row for row in rows if row.state not in ("waiting", "running")), key=lambda row: row.number)
    trials = [dataclasses.replace(row, number=index) for index, row in enumerate(ended_rows)]
    best: list[int | None] = []
    so_far: Trial | None = None
    for trial in trials:
        so_far = best_trial([trial] if so_far is None else [so_far, trial])
        best.append(so_far.number if so_far is not None else None)
    paths = dict.fromkeys(path for row in ended_rows for path in row.parameters)
    finite = (trial.fitness if trial.is_feasible else math.nan for trial in trials)
    return SearchHistory(
        method=method,
        label=label,
        numbers=tuple(row.number for row in ended_rows),
        fitness=Axis(path="fitness", values=tuple(math.nan if value is None else value for value in finite)),
        parameters=tuple(_axis(path, [row.parameters.get(path) for row in ended_rows]) for path in paths),
        best_so_far=tuple(best),
        num_unfinished=len(rows) - len(ended_rows),
        stop_bounds=tuple(stop_fitness_and_median(row.note) if row.state == "stopped" else None for row in ended_rows),
    )


def _axis(path: str, values: Sequence[str | bool | int | float | None]) -> Axis:
    present_values = [value for value in values if value is not None]
    if all(map(is_number, present_values)):
        is_log = (
            bool(present_values)
            and float(min(present_values)) > 0
            and float(max(present_values)) > _LOG_FROM * float(min(present_values))
        )
        axis_values = tuple(math.nan if value is None else float(value) for value in values)
        return Axis(path=path, values=axis_values, is_log=is_log)
    names = sorted({str(value) for value in present_values})
    name_indices = (math.nan if value is None else float(names.index(str(value))) for value in values)
    return Axis(path=path, values=tuple(name_indices), names=tuple(names))
