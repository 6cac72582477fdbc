"""Searches of a store, by their budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.stats.expected_best import expected_best
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.methods import read_methods
from lobench.analysis.store.search_history import edges_of, histories_of
from lobench.core.errors import StoreError
from lobench.core.search.space import Parameter

__all__ = ["Budgets", "Lead", "SearchBudget", "budgets_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """What one search found, by the number of its trials.

    Attributes:
      num_failed: Trials without a fitness; each counts as the worst of the others.
      num_stopped: Trials that median stopping ended. Their final fitness is censored: it counts as what they had at the
        stop, and at most as the median that they fell behind, or as the worst trial that finished.
      parameters: What was searched.
      expected_best: The expected best fitness after 1, 2, ... and all of its trials. Stopped trials count as what they
        had at the stop; the upper end of an interval is that of the medians.
      at_most: The same if each stopped trial had ended as good as it can have: an upper bound of the mean.
      fresh: Mean score of the best trial on seeds that chose nothing; without a mean where there are none.
      edges: Parameters whose best value is the least or the largest that was tried, as lines.
      space: What its trials were proposed from; () where that is not known.
    """

    method: str
    num_failed: int
    num_stopped: int
    parameters: tuple[str, ...]
    expected_best: tuple[Interval, ...]
    at_most: tuple[float, ...]
    fresh: Interval
    edges: tuple[str, ...]
    space: tuple[Parameter, ...]

    @property
    def num_trials(self) -> int:
        return len(self.expected_best)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Who has the highest expected best, from one number of trials to another, both within."""

    method: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The searches of an experiment.

    Attributes:
      leads: As far as all searches have trials.
      left_out: Searches without a fitness, and how many of their trials have ended.
    """

    searches: tuple[SearchBudget, ...]
    leads: tuple[Lead, ...]
    left_out: tuple[tuple[str, int], ...]

    @property
    def differ(self) -> bool:
        """Whether the searches have other numbers of trials, or of parameters."""
        return len({(one.num_trials, len(one.parameters)) for one in self.searches}) > 1

    @property
    def differing_domains(self) -> dict[str, dict[str, str]]:
        """By the name that parameters of several searches share, where they had other values: those of each method."""
        found: dict[str, dict[str, str]] = {}
        for one in self.searches:
            for parameter in one.space:
                found.setdefault(parameter.path.rpartition(".")[2], {})[one.method] = parameter.domain
        return {name: domains for name, domains in found.items() if len(set(domains.values())) > 1}


def budgets_of(store: Path, experiment: str | None = None) -> Budgets:
    """Returns the searches of an experiment by their budgets.

    Raises:
      StoreError: there is no store, or no trial of a search has a fitness. UsageError: no such experiment.
    """
    snapshot = read_methods(store, experiment)
    summary = summary_of(store, snapshot=snapshot)
    labels = dict(zip(snapshot.methods, snapshot.labels, strict=False))
    found, left_out = [], []
    for history in histories_of(snapshot.trials, labels):
        if not history.numbers or history.best[-1] is None:
            left_out.append((history.label, len(history.numbers)))
            continue
        place = snapshot.methods.index(history.method) if history.method in snapshot.methods else None
        search = snapshot.search(place) if place is not None else None
        is_fresh = search is not None and search.is_fresh
        are_independent = search is not None and search.strategy == "random"
        known, most = history.fitness_of_all()
        expected = expected_best(known, are_independent=are_independent)
        at_most = expected_best(most, are_independent=are_independent) if history.num_stopped else expected
        found.append(
            SearchBudget(
                method=history.label,
                num_failed=history.num_failed,
                num_stopped=history.num_stopped,
                parameters=tuple(axis.path for axis in history.parameters),
                expected_best=tuple(
                    dataclasses.replace(low, upper=high.upper) for low, high in zip(expected, at_most, strict=True)
                ),
                at_most=tuple(one.mean for one in at_most),
                fresh=summary.mean_score(place, "primary").interval if is_fresh and place is not None else Interval(),
                edges=tuple(edges_of(history)),
                space=search.space if search is not None else (),
            )
        )
    if not found:
        raise StoreError(
            "no search has a trial with a fitness",
            where=str(store),
            next_step="a search is a method with `Method.search` in the file of `lobench run`, or `lobench tune`",
        )
    return Budgets(searches=tuple(found), leads=tuple(_leads(found)), left_out=tuple(left_out))


def _leads(searches: Sequence[SearchBudget]) -> list[Lead]:
    common = min(search.num_trials for search in searches)
    best = [max(searches, key=lambda search: search.expected_best[k].mean).method for k in range(common)]
    runs = [(method, [k for k, _ in places]) for method, places in groupby(enumerate(best, 1), lambda pair: pair[1])]
    return [Lead(method=method, first=places[0], last=places[-1]) for method, places in runs]
