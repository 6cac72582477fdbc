"""Search that asks optuna for each wave. lobench's records are the only state.

Each wave uses a new study with its own seed, rebuilt from the trials so far. No state of optuna is kept between
waves. A killed search therefore continues from its recorded trials, and the order in which the trials of a wave end
does not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lobench.extend import (
    Grid,
    Kind,
    Parameter,
    PluginError,
    Scale,
    Space,
    Trial,
    Value,
    grid_values,
    headline,
    trials_left,
)
from lobench_optuna.samplers import Sampler, find_sampler, silenced_log

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

__all__ = ["OptunaSearch", "optuna_search"]


def optuna_search(sampler: str = "tpe", **options: Any) -> OptunaSearch:
    """Returns the search `@optuna()`.

    Args:
      sampler: "tpe", "cmaes", "gp", "nsgaii", "qmc" or "brute_force".
      options: Options of the sampler, such as `optuna.multivariate = True`.
    Raises:
      ConfigError: As in `find_sampler`.
    """
    return OptunaSearch(sampler=find_sampler(sampler, options))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptunaSearch:
    """Search strategy; see `lobench.hookspecs.SearchStrategy`."""

    sampler: Sampler

    def size(self, space: Space) -> int | None:
        return Grid().size(space) if self.sampler.is_grid else None

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        size = self.size(space)
        num_proposals = min(trials_left(history, num_trials if size is None else size), max(width, 1))
        if not num_proposals:
            return ()
        history = sorted(history, key=lambda trial: trial.number)
        wave = history[-1].wave + 1 if history else 0
        domains = {axis.path: _Domain(axis, is_grid=self.sampler.is_grid) for axis in space.parents_first}
        try:
            with silenced_log():
                study = _rebuild_study(self.sampler, history, domains, seed)
                study.sampler = self.sampler.make(seed, wave)
                return [_ask_trial(study, space, domains) for _ in range(num_proposals)]
        except Exception as error:
            options = ", ".join(f"{name} = {value!r}" for name, value in self.sampler.options)
            next_step = f"are its options right? {options}" if options else ""
            raise PluginError(
                f"optuna's sampler {self.sampler.name!r} proposes nothing",
                where=f"wave {wave}",
                got=headline(error),
                next_step=next_step,
            ) from error


class _Domain:
    """Conversion of a parameter to optuna: ranges directly, ordered values by their index."""

    def __init__(self, parameter: Parameter, *, is_grid: bool) -> None:
        self._values: tuple[Value, ...] = ()
        self.distribution = self._distribution(parameter, is_grid)

    def _distribution(
        self, parameter: Parameter, is_grid: bool
    ) -> CategoricalDistribution | FloatDistribution | IntDistribution:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if parameter.kind is Kind.CATEGORICAL:
            return CategoricalDistribution(parameter.values)
        if parameter.kind is Kind.DISCRETE or is_grid:
            self._values = grid_values(parameter)
            return IntDistribution(0, len(self._values) - 1)
        is_log = parameter.scale is Scale.LOG
        if parameter.kind is Kind.INT:
            return IntDistribution(int(parameter.low), int(parameter.high), log=is_log)
        return FloatDistribution(parameter.low, parameter.high, log=is_log)

    def to_lobench(self, value: Any) -> Value:
        parameter_value: Value = self._values[value] if self._values else value
        return parameter_value

    def to_optuna(self, value: Value) -> Any:
        return self._values.index(value) if self._values else value

    def suggest(self, trial: optuna.Trial, path: str) -> Any:
        from optuna.distributions import CategoricalDistribution, IntDistribution

        distribution = self.distribution
        if isinstance(distribution, CategoricalDistribution):
            return trial.suggest_categorical(path, distribution.choices)
        if isinstance(distribution, IntDistribution):
            return trial.suggest_int(path, distribution.low, distribution.high, log=distribution.log)
        return trial.suggest_float(path, distribution.low, distribution.high, log=distribution.log)


def _ask_trial(study: optuna.Study, space: Space, domains: Mapping[str, _Domain]) -> dict[str, Value]:
    """Asks for one more trial. Only values of active parameters are requested."""
    trial = study.ask()
    values = dict[str, Value]()
    for parameter in space.parents_first:
        if space.is_active(parameter.path, values):
            domain = domains[parameter.path]
            values[parameter.path] = domain.to_lobench(domain.suggest(trial, parameter.path))
    return space.active(values)


def _rebuild_study(
    sampler: Sampler, history: Sequence[Trial], domains: Mapping[str, _Domain], seed: int
) -> optuna.Study:
    """Returns a study with the recorded trials.

    A sampler with further state is asked for each wave again, so that its state advances. Its proposals are replaced by
    the recorded values.
    """
    import optuna

    study = optuna.create_study(direction="maximize")
    if not sampler.is_replayed:
        study.add_trials([_frozen_trial(trial, domains) for trial in history])
        return study
    for wave, trials in itertools.groupby(history, key=lambda trial: trial.wave):
        study.sampler = sampler.make(seed, wave)
        trial_pairs = []
        for trial in trials:
            study.enqueue_trial(_optuna_values(trial, domains))
            optuna_trial = study.ask()
            _ = optuna_trial.relative_params  # updates the sampler's state
            for path in _optuna_values(trial, domains):
                domains[path].suggest(optuna_trial, path)
            trial_pairs.append((optuna_trial, trial))
        for optuna_trial, trial in trial_pairs:
            if trial.is_feasible:
                study.tell(optuna_trial, trial.fitness)
            else:
                study.tell(optuna_trial, state=_optuna_state(trial))
    return study


def _frozen_trial(trial: Trial, domains: Mapping[str, _Domain]) -> optuna.trial.FrozenTrial:
    from optuna.trial import create_trial

    value = trial.fitness if trial.is_feasible else None
    return create_trial(
        state=_optuna_state(trial),
        value=value,
        params=_optuna_values(trial, domains),
        distributions={path: domain.distribution for path, domain in domains.items() if path in trial.parameters},
    )


def _optuna_state(trial: Trial) -> optuna.trial.TrialState:
    """Returns optuna's state of a trial. Trials ended by median stopping are pruned."""
    from optuna.trial import TrialState

    if trial.is_feasible:
        return TrialState.COMPLETE
    return TrialState.PRUNED if trial.state == "stopped" else TrialState.FAIL


def _optuna_values(trial: Trial, domains: Mapping[str, _Domain]) -> dict[str, Any]:
    """Returns the values as optuna stores them, in the order of the requests."""
    return {
        path: domain.to_optuna(trial.parameters[path]) for path, domain in domains.items() if path in trial.parameters
    }
