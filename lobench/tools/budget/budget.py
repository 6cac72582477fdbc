"""Comparison of the searches of a store by their number of trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.stats.expected_best import are_ahead, expected_best
from lobench.analysis.stats.intervals import Interval
from lobench.analysis.store.methods import read_methods
from lobench.analysis.store.search_history import edge_notes_of, search_histories_of
from lobench.core.errors import StoreError
from lobench.core.search.space import Parameter

__all__ = ["Budgets", "Lead", "SearchBudget", "budgets_of"]

_ALPHA = 0.05  # chance of showing any lead among equal searches


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """Results of one search by number of trials.

    Attributes:
      method: Label of the method.
      num_failed: Number of trials without a fitness. Each counts like the worst trial with a fitness.
      num_stopped: Number of trials ended by median stopping. Their final fitness is censored: at least the value at the
        stop, and at most the median that they fell behind, or the worst finished trial.
      parameters: Paths of the searched parameters.
      expected_best: Expected best fitness after 1, 2, ... and all trials. Stopped trials count with their value at the
        stop; the upper end of an interval is computed from the upper bounds.
      at_most: Upper bounds of the expected best: as if each stopped trial had ended at the upper bound of its fitness.
      fresh: Mean score of the best trial on seeds that were not used to choose it. Its mean is NaN without such seeds.
      edges: Lines on parameters whose best value is the smallest or largest one tried.
      space: Parameters of the search space. () if unknown.
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
    """Method with the highest expected best between two numbers of trials, both inclusive.

    Attributes:
      method: Label of the method.
      first, last: Numbers of trials.
      is_shown: Whether its expected best is shown to be above that of each other search, and not only higher. The
        chance of showing any lead among equal searches is at most 5%.
    """

    method: str
    first: int
    last: int
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """Fitness of the trials of a search: a lower and an upper bound of each, and whether they are independent."""

    lower_bounds: tuple[float, ...]
    upper_bounds: tuple[float, ...]
    are_independent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Budgets and leading methods of the searches in an experiment.

    Attributes:
      searches: The searches by method.
      leads: Leading methods, up to the number of trials that all searches have.
      left_out: Searches without a fitness, with their number of ended trials.
      other_code: Note on results that were computed by other code than the user's present code; "" if there are none.
    """

    searches: tuple[SearchBudget, ...]
    leads: tuple[Lead, ...]
    left_out: tuple[tuple[str, int], ...]
    other_code: str = ""

    @property
    def has_differences(self) -> bool:
        """Whether the searches differ in the number of trials or of parameters."""
        return len({(search.num_trials, len(search.parameters)) for search in self.searches}) > 1

    @property
    def differing_domains(self) -> dict[str, dict[str, str]]:
        """Domains by method, for each parameter name that several searches share with different domains."""
        domains_by_parameter: dict[str, dict[str, str]] = {}
        for search in self.searches:
            for parameter in search.space:
                domains_by_parameter.setdefault(parameter.path.rpartition(".")[2], {})[search.method] = parameter.domain
        return {name: domains for name, domains in domains_by_parameter.items() if len(set(domains.values())) > 1}


def budgets_of(store: Path, experiment: str | None = None) -> Budgets:
    """Returns the searches of an experiment by number of trials.

    Args:
      store: Folder of the store.
      experiment: Name of the experiment. None: the last one that ran.
    Raises:
      StoreError: The folder is not a store, or no trial of a search has a fitness.
      UsageError: The store lacks the experiment.
    """
    snapshot = read_methods(store, experiment)
    summary = summary_of(store, snapshot=snapshot)
    labels = snapshot.method_labels
    budgets = list[SearchBudget]()
    trials = list[_Trials]()
    left_out = []
    for history in search_histories_of(snapshot.experiment.trials, labels):
        if not history.numbers or history.best_so_far[-1] is None:
            left_out.append((history.label, len(history.numbers)))
            continue
        methods = snapshot.experiment.method_names
        method_index = methods.index(history.method) if history.method in methods else None
        search = snapshot.search_of(method_index) if method_index is not None else None
        is_fresh = search is not None and search.has_fresh_seeds
        are_independent = search is not None and search.strategy == "random"
        lowest, highest = history.fitness_bounds()
        trials.append(_Trials(lower_bounds=lowest, upper_bounds=highest, are_independent=are_independent))
        expected_intervals = expected_best(lowest, are_independent=are_independent)
        highest_intervals = (
            expected_best(highest, are_independent=are_independent) if history.num_stopped else expected_intervals
        )
        space = search.space if search is not None else ()
        budgets.append(
            SearchBudget(
                method=history.label,
                num_failed=history.num_failed,
                num_stopped=history.num_stopped,
                parameters=tuple(axis.path for axis in history.parameters),
                expected_best=tuple(
                    dataclasses.replace(low_interval, upper=high_interval.upper)
                    for low_interval, high_interval in zip(expected_intervals, highest_intervals, strict=True)
                ),
                at_most=tuple(best_of_trials.mean for best_of_trials in highest_intervals),
                fresh=summary.mean_score(method_index, "primary").interval
                if is_fresh and method_index is not None
                else Interval(),
                edges=tuple(edge_notes_of(history)),
                space=space,
            )
        )
    if not budgets:
        raise StoreError(
            "no search has a trial with a score",
            where=str(store),
            next_step="a search is a method with `Method.search` in the file of `lobench run`, or `lobench tune`",
        )
    return Budgets(
        searches=tuple(budgets),
        leads=tuple(_leads(budgets, trials)),
        left_out=tuple(left_out),
        other_code=snapshot.edited_code_line(),
    )


def _leads(searches: Sequence[SearchBudget], trials: Sequence[_Trials]) -> list[Lead]:
    num_common = min(search.num_trials for search in searches)
    leaders = [
        max(range(len(searches)), key=lambda search_index: searches[search_index].expected_best[num_trials].mean)
        for num_trials in range(num_common)
    ]
    is_ahead_by_leader = {leader: _is_ahead_of_all(trials, leader) for leader in dict.fromkeys(leaders)}
    leaders_by_trials = [
        (searches[leader].method, is_ahead_by_leader[leader][num_trials]) for num_trials, leader in enumerate(leaders)
    ]
    runs = [
        (lead, [num_trials for num_trials, _ in group])
        for lead, group in groupby(enumerate(leaders_by_trials, 1), lambda pair: pair[1])
    ]
    return [
        Lead(method=method, first=trial_counts[0], last=trial_counts[-1], is_shown=is_shown)
        for (method, is_shown), trial_counts in runs
    ]


def _is_ahead_of_all(trials: Sequence[_Trials], leader: int) -> list[bool]:
    """Returns by number of trials whether a search is shown to be ahead of every other one.

    Stopped trials of this search count with their lower bounds, stopped trials of other searches with their upper ones.
    """
    leading_trials = trials[leader]
    other_searches = [search for index, search in enumerate(trials) if index != leader]
    if not other_searches:
        return [False] * len(leading_trials.lower_bounds)
    level = _ALPHA / (len(trials) * len(other_searches))  # Bonferroni: all pairs of searches, in both directions
    comparisons = [
        are_ahead(
            leading_trials.lower_bounds,
            other_search.upper_bounds,
            are_independent=(leading_trials.are_independent, other_search.are_independent),
            alpha=level,
        )
        for other_search in other_searches
    ]
    return [all(column) for column in zip(*comparisons, strict=False)]
