"""Iterated constrained grid search: coordinate descent over parameters' grids.

Both strategies replay the history: each sweep looks up its trials there, and the first sweep with missing trials is the
next wave.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lobench.core.search.search import Trial, active_sets, best_trial, grid_values, trials_left
from lobench.core.search.seeded_draws import Draws
from lobench.core.search.space import Kind, Parameter, Scale, Space, Value

__all__ = ["AutoIteratedGrid", "IteratedGrid"]

_SettingsKey: TypeAlias = frozenset[tuple[str, Value]]
_VALUE_TOLERANCE = 1e-9  # relative to a value and to its range: values this close are equal


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratedGrid:
    """Coordinate descent: each parameter starts in the middle of its values, is varied in turn, and set to its best.

    No setting runs twice: k parameters take sum(n_i) - (k - 1) trials. If no trial of a sweep is feasible, the
    parameter keeps its value.
    """

    def size(self, space: Space) -> int | None:
        return max(1 + sum(len(grid_values(parameter)) - 1 for parameter in active) for active in active_sets(space))

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        return _first_round(_Replay(space, history))


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoIteratedGrid:
    """One round of the iterated grid, then further sweeps of important parameters over half their last interval.

    The parameter of a sweep is drawn with a probability proportional to the standard deviation of the fitness over its
    last sweep. Its interval is centred on the best value so far, and clipped to the range and to the nearest tried
    values. Only new settings are trained.
    """

    def size(self, space: Space) -> int | None:
        for parameter in space.parameters:
            grid_values(parameter)
        return None

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        num_trials_left = trials_left(history, num_trials)
        replay = _Replay(space, history)
        missing_settings = _first_round(replay)
        num_extra_sweeps = 0
        while not missing_settings and num_trials_left:
            candidates = [(p, values) for p in space.parents_first if len(values := _next_values(replay, p)) > 1]
            if not candidates:
                break
            # A parameter that has become active comes first, because its importance is unknown.
            candidates = [
                candidate for candidate in candidates if candidate[0].path not in replay.num_sweeps
            ] or candidates
            spreads = [replay.spread(parameter) for parameter, _ in candidates]
            missing_settings = replay.sweep(
                *candidates[_weighted_index(spreads, Draws(seed, "auto_ic_grid", num_extra_sweeps))]
            )
            num_extra_sweeps += 1
        return missing_settings[:num_trials_left]


class _Replay:
    """State of a search after some of its sweeps.

    Attributes:
      values: Present value of each parameter, including inactive ones.
      tried_values: Values that a parameter had in any sweep, by path.
      num_sweeps: Number of sweeps of a parameter, by path.
    """

    def __init__(self, space: Space, history: Sequence[Trial]) -> None:
        self.space = space
        self.values = {parameter.path: _middle_value(grid_values(parameter)) for parameter in space.parameters}
        self.tried_values: dict[str, tuple[Value, ...]] = {}
        self.num_sweeps: dict[str, int] = {}
        self._last_sweeps: dict[str, list[Trial]] = {}
        # They change with a sweep of their parameter only.
        self._spreads: dict[str, float] = {}
        self._grids: dict[str, tuple[Value, ...]] = {}
        self._trials_by_key = {_settings_key(trial.parameters): trial for trial in history}
        self._replayed_trials: dict[_SettingsKey, Trial] = {}

    def is_active(self, parameter: Parameter) -> bool:
        return not parameter.when or parameter.path in self.space.active(self.values)

    def unseen_settings(
        self, parameter: Parameter, values: Sequence[Value]
    ) -> list[tuple[_SettingsKey, dict[str, Value]]]:
        """Returns the settings of a sweep that are in no earlier sweep, each with its key."""
        settings = (self.space.active({**self.values, parameter.path: value}) for value in values)
        keyed_settings = ((_settings_key(setting), setting) for setting in settings)
        return [(key, setting) for key, setting in keyed_settings if key not in self._replayed_trials]

    def sweep(self, parameter: Parameter, values: Sequence[Value]) -> list[dict[str, Value]]:
        """Varies a parameter and keeps its best value, or returns the settings that the history lacks."""
        unseen_settings = self.unseen_settings(parameter, values)
        missing_settings = [setting for key, setting in unseen_settings if key not in self._trials_by_key]
        if missing_settings:
            return missing_settings
        for key, _ in unseen_settings:
            self._replayed_trials[key] = self._trials_by_key[key]
        path = parameter.path
        self.tried_values[path] = tuple(dict.fromkeys((*self.tried_values.get(path, ()), *values)))
        self.num_sweeps[path] = self.num_sweeps.get(path, 0) + 1
        settings = [self.space.active({**self.values, path: value}) for value in (*values, self.values[path])]
        self._last_sweeps[path] = [
            self._replayed_trials[key]
            for key in dict.fromkeys(map(_settings_key, settings))
            if key in self._replayed_trials
        ]
        self._spreads.pop(path, None)
        self._grids.pop(path, None)
        best_swept = best_trial(self._last_sweeps[path])
        if best_swept is not None:
            self.values[path] = best_swept.parameters[path]
        return []

    def spread(self, parameter: Parameter) -> float:
        """Returns the standard deviation of the fitness over the parameter's last sweep; 0 without one."""
        path = parameter.path
        if path not in self._spreads:
            fitnesses = [trial.fitness for trial in self._last_sweeps.get(path, ()) if trial.fitness is not None]
            finite_values = [value for value in fitnesses if math.isfinite(value)]
            self._spreads[path] = statistics.pstdev(finite_values) if finite_values else 0.0
        return self._spreads[path]

    def next_grid(self, parameter: Parameter) -> tuple[Value, ...]:
        """Returns the values around a parameter's present value that its next sweep takes, tried before or not."""
        path = parameter.path
        if path not in self.num_sweeps:
            return grid_values(parameter)
        if parameter.kind is Kind.CATEGORICAL:
            return parameter.values
        if path not in self._grids:
            if parameter.kind is Kind.DISCRETE:
                index = parameter.values.index(self.values[path])
                self._grids[path] = parameter.values[max(index - 1, 0) : index + 2]
            else:
                centre, num_halvings = float(self.values[path]), self.num_sweeps[path]
                self._grids[path] = _interval_values(parameter, centre, num_halvings, self.tried_values[path])
        return self._grids[path]


def _first_round(replay: _Replay) -> list[dict[str, Value]]:
    """Varies each active parameter once, and returns the missing settings."""
    for parameter in replay.space.parents_first:
        if replay.is_active(parameter):
            missing_settings = replay.sweep(parameter, grid_values(parameter))
            if missing_settings:
                return missing_settings
    return []


def _next_values(replay: _Replay, parameter: Parameter) -> tuple[Value, ...]:
    """Returns the values of a parameter's next sweep; () if it is inactive or has no new values."""
    if not replay.is_active(parameter):
        return ()
    values = replay.next_grid(parameter)
    is_categorical_again = parameter.kind is Kind.CATEGORICAL and parameter.path in replay.num_sweeps
    min_values = 2 if is_categorical_again else 1
    return values if len(replay.unseen_settings(parameter, values)) >= min_values else ()


def _interval_values(
    parameter: Parameter, centre: float, num_halvings: int, tried_values: Sequence[Value]
) -> tuple[Value, ...]:
    """Returns values around a centre. The interval has the length of the range, halved `num_halvings` + 1 times.

    The interval is clipped at the nearest tried values, because values beyond them were worse. A parameter with 9
    values from 0 to 1 that is best at 0.5 has 0.375, 0.4375, ..., 0.625 next, and not 0.25 to 0.75.
    """
    low = parameter.low
    high = parameter.high
    share = 0.5 ** (num_halvings + 1)
    if parameter.scale is Scale.LOG:
        factor, scale = (high / low) ** share, low
        bounds = max(centre / factor, low), min(centre * factor, high)
    else:
        reach, scale = (high - low) * share, high - low
        bounds = max(centre - reach, low), min(centre + reach, high)
    values = parameter.between(*bounds, parameter.num_values or 1)
    candidates = dict.fromkeys(_known_value(value, tried_values, _VALUE_TOLERANCE * scale) for value in values)
    lower_neighbour = max(
        (float(tried_value) for tried_value in tried_values if float(tried_value) < centre), default=low
    )
    upper_neighbour = min(
        (float(tried_value) for tried_value in tried_values if float(tried_value) > centre), default=high
    )
    return tuple(value for value in candidates if lower_neighbour <= float(value) <= upper_neighbour)


def _known_value(value: Value, tried_values: Sequence[Value], tolerance: float) -> Value:
    """Returns a tried value that is equal up to rounding, or else the value itself."""
    for known_value in tried_values:
        if math.isclose(float(value), float(known_value), rel_tol=_VALUE_TOLERANCE, abs_tol=tolerance):
            return known_value
    return value


def _weighted_index(weights: Sequence[float], draws: Draws) -> int:
    """Returns an index drawn with probability proportional to its weight; uniformly if all weights are 0."""
    total = sum(weights)
    if not total > 0:
        return draws.below(len(weights))
    remainder = draws.uniform() * total
    for index, weight in enumerate(weights):
        remainder -= weight
        if remainder < 0:
            return index
    return max(range(len(weights)), key=weights.__getitem__)


def _middle_value(values: Sequence[Value]) -> Value:
    return values[len(values) // 2]


def _settings_key(params: Mapping[str, Value]) -> _SettingsKey:
    return frozenset(params.items())
