"""Study: a population, its search space, fitness and rules, as one value that is sent as JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lobench import ConfigError, UsageError
from lobench.extend import (
    Direction,
    Kind,
    Member,
    Objective,
    Parameter,
    PluginManager,
    Rule,
    Scale,
    Selection,
    Space,
    Value,
    check_parameters,
    headline,
)
from lobench.hookspecs import SelectionStrategy

__all__ = [
    "FitnessFrom",
    "Keep",
    "Opponents",
    "Segment",
    "Study",
    "check_study",
    "load_strategy",
    "study_from_json",
    "study_to_json",
]

_VERSION = 2
_OLD_DEFAULTS = {1: {"p_switch": 1.0}}  # defaults of studies of older versions, by version


class FitnessFrom(enum.StrEnum):
    """Source of a trial's fitness: its trainer, or a `lobench watch` with the sink `pbt`."""

    TRAINER = "trainer"
    WATCH = "watch"


class Opponents(enum.StrEnum):
    """Generations of an initiator's opponents: its own, or also the previous one."""

    SAME = "same"
    LAST_TWO = "last_two"


class Keep(enum.StrEnum):
    """Checkpoints that the store keeps: the best ones and those that a live trial may still need, or all."""

    NEEDED = "needed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One step of a fixed schedule, for the trials of one generation."""

    n_steps: int
    params: Mapping[str, Value]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Settings of a study. A study file binds each field by its name, so that the fields are not grouped.

    Attributes:
      population: Number of trials per generation, N.
      generations: Number of the last generation, G; trials are of generations 0 to G.
      n_steps: Number of outer steps of a trial.
      objectives: Objectives of the fitness. Several are summed by weight (`weighted`), or compared by a strategy for
        that.
      strategy: `NAME[:ARGUMENT]` of `lobench list strategies`.
      opponents: Generations that an initiator meets.
      p_resample: Probability that a mutation draws a number from the prior.
      p_switch: Probability that a mutation draws a new category instead of inheriting it.
      p_crossover: Probability of taking a value from the loser. Weights are always taken from the winner.
      budget: Whether a generation reproduces only once it has N terminal trials. Few workers then serve many members,
        opponents do not depend on speed, and the seed determines the study. Otherwise each trial reproduces when it
        ends.
      max_attempts: Number of lost leases after which a trial is infeasible.
      lease_seconds: Time that a worker may be silent.
      fitness_seconds: Time that a trial waits for its fitness.
      schedule: One segment per generation, for the strategy `fixed_schedule`. Slot 0 has the segments' own seeds; other
        slots have seeds folded with `seed` and the slot. A line in which a trial fails ends there, infeasible.
    """

    name: str
    population: int
    generations: int
    n_steps: int
    objectives: tuple[Objective, ...]
    parameters: tuple[Parameter, ...] = ()
    strategy: str = "exploit_explore"
    weighted: bool = False
    seed: int = 0
    p_resample: float = 0.25
    p_switch: float = 0.25
    p_crossover: float = 0.0
    budget: bool = True
    opponents: Opponents = Opponents.SAME
    max_attempts: int = 3
    lease_seconds: float = 60.0
    fitness_from: FitnessFrom = FitnessFrom.TRAINER
    fitness_seconds: float = 3600.0
    keep: Keep = Keep.NEEDED
    schedule: tuple[Segment, ...] = ()


def study_to_json(study: Study) -> str:
    return json.dumps({"version": _VERSION, **dataclasses.asdict(study)}, sort_keys=True)


def study_from_json(text: str) -> Study:
    """Returns a study from the text of `study_to_json`.

    Raises:
      ConfigError: The text is malformed.
    """
    try:
        values: dict[str, Any] = json.loads(text)
        version = values.pop("version")
        if version != _VERSION and version not in _OLD_DEFAULTS:
            raise ValueError(f"version {_VERSION} is known")
        values = {**_OLD_DEFAULTS.get(version, {}), **values}
        values["objectives"] = tuple(
            Objective(**{**entry, "direction": Direction(entry["direction"])}) for entry in values["objectives"]
        )
        values["parameters"] = tuple(_parameter(entry) for entry in values["parameters"])
        values["schedule"] = tuple(Segment(**entry) for entry in values["schedule"])
        for name, enum_class in (("opponents", Opponents), ("fitness_from", FitnessFrom), ("keep", Keep)):
            values[name] = enum_class(values[name])
        return Study(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError("not a study", got=headline(error)) from error


def _parameter(entry: Mapping[str, Any]) -> Parameter:
    when = {parent: tuple(values) for parent, values in entry["when"].items()}
    enums = {"kind": Kind(entry["kind"]), "scale": Scale(entry["scale"]), "rule": Rule(entry["rule"])}
    return Parameter(**{**entry, **enums, "values": tuple(entry["values"]), "when": when})


def load_strategy(study: Study, plugins: PluginManager, where: str) -> SelectionStrategy:
    """Returns the study's strategy.

    Raises:
      ConfigError: The strategy is unknown, or does not accept its argument.
    """
    name, _, argument = study.strategy.partition(":")
    try:
        plugin_strategy = plugins.find("lobench_selection_strategies", name, kind="strategy")
        strategy: SelectionStrategy = plugin_strategy.make_guarded(
            argument,
            where=f"{where}: Study.strategy {study.strategy!r}",
            hook="lobench_selection_strategies",
            results={"select": lambda selection: isinstance(selection, Selection)},
        )
    except UsageError as error:
        raise ConfigError(f"Study.strategy: {error}", where=where) from error
    return strategy


def check_study(study: Study, where: str, plugins: PluginManager) -> None:
    """Checks that a study can run.

    Raises:
      ConfigError: A number is out of range, no objective is given, the strategy is unknown, or the search space or the
        schedule is invalid.
    """
    limits = (
        ("population", 1, None),
        ("generations", 0, None),
        ("n_steps", 1, None),
        ("max_attempts", 1, None),
        ("lease_seconds", 0.0, None),
        ("fitness_seconds", 0.0, None),
        ("p_resample", 0.0, 1.0),
        ("p_switch", 0.0, 1.0),
        ("p_crossover", 0.0, 1.0),
    )
    for name, low, high in limits:
        value = getattr(study, name)
        is_integer = isinstance(low, int)
        has_wrong_type = isinstance(value, bool) or not isinstance(value, int if is_integer else int | float)
        if has_wrong_type or value < low or (high is not None and value > high):
            expected = f"{'a whole number' if is_integer else 'a number'} >= {low:g}" + (
                f" and <= {high:g}" if high else ""
            )
            raise ConfigError(f"Study.{name}", where=where, got=repr(value), expected=expected)
    for name in ("lease_seconds", "fitness_seconds"):
        if not getattr(study, name) > 0:  # otherwise each trial's would expire at once
            raise ConfigError(f"Study.{name}", where=where, got=repr(getattr(study, name)), expected="a number > 0")
    for name in ("weighted", "budget"):
        if not isinstance(getattr(study, name), bool):  # because "no" would count as true
            raise ConfigError(f"Study.{name}", where=where, got=repr(getattr(study, name)), expected="True or False")
    if not study.name or any(character in study.name for character in "/\\\0 "):
        raise ConfigError("Study.name", where=where, got=repr(study.name), expected="a name without spaces and slashes")
    _check_objectives(study, load_strategy(study, plugins, where), where)
    check_parameters(study.parameters, where)
    _check_schedule(study, where)


def _check_objectives(study: Study, strategy: SelectionStrategy, where: str) -> None:
    if not study.objectives:
        raise ConfigError("Study.objectives is empty", where=where, expected="at least one metric with a direction")
    for objective in study.objectives:
        if not objective.metric or not objective.weight > 0:
            raise ConfigError("an objective", where=where, got=repr(objective), expected="a metric and a weight > 0")
    # Only a selection shows whether a strategy supports several objectives.
    fitness = (0.0,) * (1 if study.weighted else len(study.objectives))
    try:
        strategy.select([Member(id=1, fitness=fitness), Member(id=2, fitness=fitness)], 1, study.seed)
    except UsageError as error:
        raise ConfigError(
            f"Study.strategy {study.strategy!r}: {error.what}",
            where=where,
            got=f"{len(study.objectives)} objectives",
            next_step="set Study.weighted = True, or Study.strategy = 'pareto'",
        ) from error


def _check_schedule(study: Study, where: str) -> None:
    is_fixed = study.strategy == "fixed_schedule"
    if is_fixed != bool(study.schedule) or (is_fixed and len(study.schedule) != study.generations + 1):
        raise ConfigError(
            "Study.schedule",
            where=where,
            got=f"{len(study.schedule)} segments",
            expected=f"{study.generations + 1} with the strategy fixed_schedule, and none with another",
        )
    space = Space(study.parameters)
    for index, segment in enumerate(study.schedule):
        if segment.n_steps < 1 or not space.contains(segment.params):
            raise ConfigError(
                f"segment {index} of the schedule is not in the search space",
                where=where,
                got=repr(dict(segment.params)),
            )
