"""Iterated constrained grid search: coordinate descent over parameters' grids.

Both are replays: sweeps take their trials out of the history one after another, and the first sweep that misses some
is the next wave.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lobench.core.search.search import Trial, active_sets, best_trial, grid_values, trials_left
from lobench.core.search.seeded_draws import Draws
from lobench.core.search.space import Kind, Parameter, Scale, Space, Value

__all__ = ["AutoIteratedGrid", "IteratedGrid"]

_CLOSE = 1e-9  # of a value and of its range: two values that only a rounding sets apart are one


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratedGrid:
    """Every parameter begins in the middle of its values; in the order of the space, each varies and stays at its best.

    No setting runs twice: k parameters take sum(n_i) - (k - 1) trials. Where no trial of a sweep is feasible, the
    parameter stays where it was.
    """

    def size(self, space: Space) -> int | None:
        return max(1 + sum(len(grid_values(parameter)) - 1 for parameter in active) for active in active_sets(space))

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        return _first_round(_Replay(space, history))


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoIteratedGrid:
    """One round of the iterated grid; then whichever parameter mattered most varies again, over half its last interval.

    The parameter is drawn with a probability in proportion to the standard deviation of the fitness over its last
    sweep. Its interval is centred on the best value so far and clipped to the range, and to the values next to it that
    were tried: who has many values a parameter pays for the new ones among them alone.
    """

    def size(self, space: Space) -> int | None:
        for parameter in space.parameters:
            grid_values(parameter)
        return None

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        left = trials_left(history, num_trials)
        replay = _Replay(space, history)
        missing = _first_round(replay)
        count = 0
        while not missing and left:
            candidates = [(p, values) for p in space.parents_first if len(values := _next_values(replay, p)) > 1]
            if not candidates:
                break
            # One that another's new value has made active comes first: nobody knows how much it matters.
            candidates = [found for found in candidates if found[0].path not in replay.num_sweeps] or candidates
            spreads = [replay.spread(parameter) for parameter, _ in candidates]
            missing = replay.sweep(*candidates[_drawn(spreads, Draws(seed, "auto_ic_grid", count))])
            count += 1
        return missing[:left]


class _Replay:
    """What a search has found after some of its sweeps.

    Attributes:
      values: Where each parameter stands, an inactive one too.
      tried: By path, all values that it had in a sweep.
      num_sweeps: By path.
    """

    def __init__(self, space: Space, history: Sequence[Trial]) -> None:
        self.space = space
        self.values = {parameter.path: _middle(grid_values(parameter)) for parameter in space.parameters}
        self.tried: dict[str, tuple[Value, ...]] = {}
        self.num_sweeps: dict[str, int] = {}
        self._last: dict[str, list[Trial]] = {}
        self._later = {_key(trial.parameters): trial for trial in history}
        self._known: dict[frozenset[tuple[str, Value]], Trial] = {}

    def is_active(self, parameter: Parameter) -> bool:
        return parameter.path in self.space.active(self.values)

    def unseen(self, parameter: Parameter, values: Sequence[Value]) -> list[dict[str, Value]]:
        """Returns the settings of a sweep which no sweep had before."""
        settings = (self.space.active({**self.values, parameter.path: value}) for value in values)
        return [setting for setting in settings if _key(setting) not in self._known]

    def sweep(self, parameter: Parameter, values: Sequence[Value]) -> list[dict[str, Value]]:
        """Varies a parameter and keeps its best value; returns the settings that the history does not hold yet."""
        unseen = self.unseen(parameter, values)
        missing = [setting for setting in unseen if _key(setting) not in self._later]
        if missing:
            return missing
        for setting in unseen:
            self._known[_key(setting)] = self._later[_key(setting)]
        path = parameter.path
        self.tried[path] = tuple(dict.fromkeys((*self.tried.get(path, ()), *values)))
        self.num_sweeps[path] = self.num_sweeps.get(path, 0) + 1
        settings = [self.space.active({**self.values, path: value}) for value in (*values, self.values[path])]
        self._last[path] = [self._known[key] for key in dict.fromkeys(map(_key, settings)) if key in self._known]
        best = best_trial(self._last[path])
        if best is not None:
            self.values[path] = best.parameters[path]
        return []

    def spread(self, parameter: Parameter) -> float:
        """Returns the standard deviation of the fitness over the parameter's last sweep, 0 where there is none."""
        fitness = [trial.fitness for trial in self._last.get(parameter.path, ()) if trial.fitness is not None]
        finite = [value for value in fitness if math.isfinite(value)]
        return statistics.pstdev(finite) if finite else 0.0


def _first_round(replay: _Replay) -> list[dict[str, Value]]:
    """Varies each active parameter once; returns what is missing."""
    for parameter in replay.space.parents_first:
        if replay.is_active(parameter):
            missing = replay.sweep(parameter, grid_values(parameter))
            if missing:
                return missing
    return []


def _next_values(replay: _Replay, parameter: Parameter) -> tuple[Value, ...]:
    """Returns what the parameter would vary over next; () where it is not active or nothing new is left of it."""
    path = parameter.path
    if not replay.is_active(parameter):
        return ()
    least = 1
    if path not in replay.num_sweeps:
        values = grid_values(parameter)
    elif parameter.kind is Kind.CATEGORICAL:
        values, least = parameter.values, 2
    elif parameter.kind is Kind.DISCRETE:
        place = parameter.values.index(replay.values[path])
        values = parameter.values[max(place - 1, 0) : place + 2]
    else:
        values = _interval(parameter, float(replay.values[path]), replay.num_sweeps[path], replay.tried[path])
    return values if len(replay.unseen(parameter, values)) >= least else ()


def _interval(parameter: Parameter, centre: float, num_halvings: int, tried: Sequence[Value]) -> tuple[Value, ...]:
    """Returns values around the centre, of an interval that is the range's, halved so often.

    It ends at the values next to the centre that were tried: what lies beyond them was tried too, and was worse. A
    parameter of 9 values from 0 to 1 that is best at 0.5 has 0.375, 0.4375, ..., 0.625 next, and not 0.25 to 0.75.
    """
    low, high, share = parameter.low, parameter.high, 0.5 ** (num_halvings + 1)
    if parameter.scale is Scale.LOG:
        factor, scale = (high / low) ** share, low
        ends = max(centre / factor, low), min(centre * factor, high)
    else:
        reach, scale = (high - low) * share, high - low
        ends = max(centre - reach, low), min(centre + reach, high)
    values = parameter.between(*ends, parameter.num_values or 1)
    known = dict.fromkeys(_known_value(value, tried, _CLOSE * scale) for value in values)
    below = max((float(one) for one in tried if float(one) < centre), default=low)
    above = min((float(one) for one in tried if float(one) > centre), default=high)
    return tuple(value for value in known if below <= float(value) <= above)


def _known_value(value: Value, tried: Sequence[Value], tolerance: float) -> Value:
    """Returns the value that was tried already where one is as good as equal."""
    for other in tried:
        if math.isclose(float(value), float(other), rel_tol=_CLOSE, abs_tol=tolerance):
            return other
    return value


def _drawn(weights: Sequence[float], draws: Draws) -> int:
    """Returns a place with a probability in proportion to its weight; all zero: each the same."""
    total = sum(weights)
    if not total > 0:
        return draws.below(len(weights))
    rest = draws.uniform() * total
    for place, weight in enumerate(weights):
        rest -= weight
        if rest < 0:
            return place
    return max(range(len(weights)), key=weights.__getitem__)


def _middle(values: Sequence[Value]) -> Value:
    return values[len(values) // 2]


def _key(params: Mapping[str, Value]) -> frozenset[tuple[str, Value]]:
    return frozenset(params.items())
