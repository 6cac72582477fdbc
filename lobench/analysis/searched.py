"""Searches in a store: which trial is the best, and its numbers on the seeds that chose it and on fresh ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from lobench.analysis.reading import Searched
from lobench.analysis.subjects import Subject
from lobench.core.search import Trial, best_trial
from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.store.experiments import TrialRow

__all__ = ["best_trials", "chosen_by_search", "trial_of"]


class _HasSeed(Protocol):
    @property
    def seed(self) -> int: ...


_Part = TypeVar("_Part", bound=_HasSeed)


def trial_of(row: TrialRow) -> Trial:
    """Returns a trial of a search as its row says it."""
    return Trial(
        number=row.number,
        parameters=row.parameters,
        state=row.state,
        fitness=row.fitness,
        wave=row.wave,
        note=row.note,
    )


def best_trials(
    rows: Sequence[TrialRow], members: Collection[tuple[str, int | str]], methods: Iterable[str]
) -> dict[str, int | str]:
    """Returns the number of the best trial of each method that searches.

    Args:
      members: Methods and trials that have evaluations: the best of these counts, or the first where none is feasible.
    """
    best: dict[str, int | str] = {}
    for name in methods:
        there = sorted(number for method, number in members if method == name and isinstance(number, int))
        found = best_trial([trial_of(row) for row in rows if row.method == name and row.number in there])
        if there:
            best[name] = there[0] if found is None else found.number
    return best


def chosen_by_search(
    sessions: Mapping[int, Sequence[_Part]], make: Callable[[Mapping[int, Sequence[_Part]]], Subject]
) -> tuple[Subject, Searched]:
    """Returns the best trial on the seeds that chose nothing, as far as there are some, and as its search saw it."""
    own = _of(sessions, lambda part: part.seed < FIRST_REPORT_SEED)
    fresh = _of(sessions, lambda part: part.seed >= FIRST_REPORT_SEED)
    if not own or not fresh:
        subject = make(own or fresh)
        return subject, Searched(subject=subject, is_fresh=False)
    searched = make(own)
    return dataclasses.replace(make(fresh), who=searched.who), Searched(subject=searched, is_fresh=True)


def _of(sessions: Mapping[int, Sequence[_Part]], is_wanted: Callable[[_Part], bool]) -> dict[int, Sequence[_Part]]:
    kept = {session: [part for part in parts if is_wanted(part)] for session, parts in sessions.items()}
    return {session: parts for session, parts in kept.items() if parts}
