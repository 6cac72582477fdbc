"""Search strategies: pure functions from space, finished trials and seed to the next trials.

A strategy keeps no state between calls, so that a search that was killed continues from the ledger:
`next_wave(space, history[:n], ...)` always returns the same.
The iterated grids are in `lobench.core.search.iterated_grid`; plugins add others by `lobench_search_strategies`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lobench.core.errors import ConfigError
from lobench.core.search.seeded_draws import fold
from lobench.core.search.space import Parameter, Space, Value

__all__ = [
    "Grid",
    "Random",
    "SearchStrategy",
    "Trial",
    "TrialState",
    "active_sets",
    "best_trial",
    "grid_values",
    "num_trials_of",
    "search_seed",
    "trials_left",
]

TrialState = Literal["waiting", "running", "done", "failed", "infeasible", "stopped"]

_MAX_WAVE = 10_000  # settings per wave of a grid, so that a large grid does not fill the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting of a method.

    Attributes:
      number: Position in the search, from 0.
      state: State of the trial. "stopped": `Method.median_stopping` ended its training early, and it has no fitness.
      parameters: Values of the active parameters, by path, in the order of the space.
      fitness: Fitness; higher is better. None if the trial has not ended, failed, or is infeasible.
      wave: Number of the wave in which it was proposed, from 0.
      note: Reason if it was stopped; "" otherwise.

    >>> Trial(number=0, parameters={"sgd.learning_rate": 0.1}, state="succeeded", fitness=0.9, wave=0).note
    ''
    """

    number: int
    parameters: Mapping[str, Value]
    state: TrialState
    fitness: float | None
    wave: int
    note: str = ""

    @property
    def is_feasible(self) -> bool:
        """Whether the trial has a fitness that is not NaN."""
        return self.fitness is not None and not math.isnan(self.fitness)


class SearchStrategy(Protocol):
    """Strategy that proposes trials.

    It is pure. Factories are called with their gin bindings: `optuna(sampler="tpe")`.

    >>> rate = Parameter(path="sgd.learning_rate", kind=Kind.DISCRETE, values=(0.1, 0.2))
    >>> len(Grid().next_wave(Space([rate]), [], seed=0, width=4, num_trials=None))
    2
    """

    def size(self, space: Space) -> int | None:
        """Returns the number of trials of a search that determines it, such as a grid; None if any number is possible.

        If conditions make the number depend on results, it is the largest possible number.

        Raises:
          ConfigError: The space does not fit, such as a grid over a range without `num_values`.
        """

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        """Returns the settings to try next; () ends the search.

        Args:
          space: Parameters and their domains.
          history: All trials so far, by number; all of them have ended.
          seed: The only source of randomness; see `search_seed`.
          width: Number of trials that can run in parallel. A search that learns from each wave proposes at most as
            many.
          num_trials: Largest number of trials in total; None if the search determines it.
        """


def search_seed(seed: int, method: str) -> int:
    """Returns the seed of a method's search. Its random stream is independent of the training seeds."""
    return fold(seed, "search", method)


def num_trials_of(strategy: SearchStrategy, space: Space, num_trials: int | None, *, where: str) -> int:
    """Returns the largest number of trials that a search will have.

    Args:
      strategy: Search strategy.
      space: Parameters and their domains.
      num_trials: Bound number of trials; None if unbound.
      where: Location of the search, for error messages.
    Raises:
      ConfigError: The strategy determines another number, or neither the strategy nor `num_trials` gives one.
    """
    size = strategy.size(space)
    if size is None and num_trials is None:
        raise ConfigError("this search needs a number of trials", where=where, next_step="bind Method.num_trials")
    if size is not None and num_trials is not None and size != num_trials:
        next_step = "leave out Method.num_trials (--num-trials): the grid fixes it"
        raise ConfigError("num_trials", where=where, got=str(num_trials), expected=str(size), next_step=next_step)
    return size if size is not None else num_trials or 0


def trials_left(history: Sequence[Trial], num_trials: int | None) -> int:
    """Returns the number of trials that may still be proposed.

    Args:
      history: All trials so far.
      num_trials: Largest number of trials in total; None if unbound.
    Raises:
      ConfigError: The number of trials is not bound.

    >>> trials_left([], 20)
    20
    """
    if num_trials is None:
        raise ConfigError("this search needs a number of trials", next_step="bind Method.num_trials")
    return max(num_trials - len(history), 0)


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """Returns the feasible trial with the highest fitness; the first of equals. None if no trial is feasible."""
    feasible_trials = [trial for trial in trials if trial.is_feasible]
    return min(feasible_trials, key=lambda trial: (-(trial.fitness or 0.0), trial.number), default=None)


def grid_values(parameter: Parameter) -> tuple[Value, ...]:
    """Returns the values of a parameter in a grid.

    Raises:
      ConfigError: The parameter is a range without a number of values.

    >>> grid_values(Parameter(path="sgd.learning_rate", kind=Kind.REAL, low=0.0, high=1.0, num_values=3))
    (0.0, 0.5, 1.0)
    """
    if parameter.is_range and parameter.num_values is None:
        kind = parameter.kind.capitalize()
        raise ConfigError(
            "a grid takes single values, and this range has no number of values",
            where=f"parameter {parameter.path!r}",
            next_step=f"bind num_values of its {kind}, or with --vary write {kind}(LOW, HIGH, num_values=7)",
        )
    return parameter.grid(parameter.num_values or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """Random search. A trial's values depend on its number and the seed only, not on the order in which trials run."""

    def size(self, space: Space) -> int | None:
        return None

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        first_trial = len(history)
        num_left = min(trials_left(history, num_trials), _MAX_WAVE)
        return [space.active(space.sample(fold(seed, number))) for number in range(first_trial, first_trial + num_left)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Grid search over all combinations of values. The last parameter varies fastest.

    Inactive parameters are not varied: {sgd, sgdm} with three momenta of sgdm is four trials.

    >>> rate = Parameter(path="sgd.learning_rate", kind=Kind.DISCRETE, values=(0.1, 0.2))
    >>> Grid().size(Space([rate]))
    2
    """

    def size(self, space: Space) -> int | None:
        return sum(
            math.prod(
                len(grid_values(parameter)) for parameter in active_parameters if parameter.path not in space.parents
            )
            for active_parameters in active_sets(space)
        )

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        num_done = len(history)
        return list(itertools.islice(_combinations(space, 0, {}), num_done, num_done + _MAX_WAVE))


def _combinations(space: Space, index: int, chosen_values: dict[str, Value]) -> Iterator[dict[str, Value]]:
    """Yields the settings that extend the values chosen for the parameters before `index`, parents first."""
    if index == len(space.parents_first):
        yield space.active(chosen_values)
        return
    parameter = space.parents_first[index]
    values: Sequence[Value | None] = (
        grid_values(parameter) if space.is_active(parameter.path, chosen_values) else (None,)
    )
    for value in values:
        new_values = {} if value is None else {parameter.path: value}
        yield from _combinations(space, index + 1, {**chosen_values, **new_values})


def active_sets(space: Space) -> Iterator[tuple[Parameter, ...]]:
    """Yields the active parameters for each combination of values on which other parameters depend.

    Example: A parameter `kind` is sgd or sgdm, and a parameter `momentum` depends on sgdm. The result is (kind,) for
    sgd, and (kind, momentum) for sgdm.
    """

    def sets_from(index: int, chosen: dict[str, Value]) -> Iterator[tuple[Parameter, ...]]:
        if index == len(space.parents_first):
            yield tuple(parameter for parameter in space.parents_first if parameter.path in chosen)
            return
        parameter = space.parents_first[index]
        values = grid_values(parameter) if space.is_active(parameter.path, chosen) else ()
        for value in values if parameter.path in space.parents else values[:1]:
            yield from sets_from(index + 1, {**chosen, parameter.path: value})
        if not values:
            yield from sets_from(index + 1, chosen)

    return sets_from(0, {})
