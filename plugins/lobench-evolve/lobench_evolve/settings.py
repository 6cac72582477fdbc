"""Settings of an evolution in a gin file: `Evolve`, `TruncationGA`, `AntitheticES`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import gin

from lobench import ConfigError
from lobench.extend import CaseSpec, parse_file, parse_text, specs_called, suggestion

__all__ = ["AntitheticES", "Configuration", "Evolve", "TruncationGA", "read_config"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitnessSettings:
    """Definition of a member's fitness on one case, bound as part of `Evolve`.

    Attributes:
      fitness: "curve": minus the mean of the clipped training losses, with a weight of `last_weight` on the last
        `last_fraction` of them. "final": minus the loss of an evaluation after the last inner step, on `split`.
      loss_clip: Upper bound of losses. It replaces losses that are not finite. 0: no bound, and NaN ranks last.
      split: Split of "final". A task without data has only "train".
    """

    fitness: str = "curve"
    loss_clip: float = 5.0
    last_weight: float = 0.5
    last_fraction: float = 0.3
    split: str = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolve(FitnessSettings):
    """Settings of a run. Each field has the name by which gin files bind it.

    Attributes:
      strategy: "ga" or "es".
      cases: Cases of the file over which fitness is averaged. Empty: all.
      num_generations: Number of generations, at least 1.
      first_generation: First generation of a run that extends another, set by `lobench evolve --extend`.
      checkpoint_every: Generations between checkpoints. The first and the last are always written.
      members_per_program: Number of members trained together in one compiled program, which is the unit of work; at
        most the population. Affects the bits.
      first_n: Number of results at which a generation is closed. 0: all. The order of arrival is stored.
      initial_scale: Factors of leaves of the initial theta, by path (`{"nn/~/w2": 0.1}`).
    """

    strategy: str = "ga"
    cases: Sequence[str] = ()
    num_generations: int = 100
    first_generation: int = 0
    checkpoint_every: int = 10
    members_per_program: int = 16
    first_n: int = 0
    initial_scale: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationGA:
    """Settings of the genetic algorithm; see `lobench_evolve.truncation_ga`.

    Attributes:
      population_size, num_parents: Sizes of the population, N, and of the parents, T.
      num_candidates: Number of members evaluated again as candidates for the elite.
      selection: Strategy that picks a child's parent among the T (`lobench list strategies`). "": at random.
      parents_per_child: Number of parents whose mean a child mutates. num_parents: all of them.
      sigma: Standard deviation of a mutation.
      decay: Fraction by which a mutation first reduces its parent's weights, so that norms do not drift.
      elite_evals: Number of fresh evaluations of each candidate. 0: fitness is exact, and the best member is the elite.
    """

    population_size: int = 200
    num_parents: int = 20
    num_candidates: int = 10
    selection: str = ""
    parents_per_child: int = 1
    sigma: float = 0.1
    decay: float = 0.0
    elite_evals: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class AntitheticES:
    """Settings of evolution strategies; see `lobench_evolve.evolution_strategies`.

    Attributes:
      num_pairs: Number of antithetic pairs in a generation.
      sigma: Standard deviation of the perturbations.
      learning_rate: Adam's rate, which decays as a cosine over the generations to `final_rate_fraction` of it.
      clip_norm: Largest norm of the estimated gradient.
      common_random_numbers: Whether all pairs use the same tasks. Otherwise each pair has its own.
    """

    num_pairs: int = 8
    sigma: float = 0.1
    learning_rate: float = 0.01
    final_rate_fraction: float = 0.05
    clip_norm: float = 1.0
    common_random_numbers: bool = False


_SETTINGS_CLASSES = (Evolve, TruncationGA, AntitheticES)
for _settings_class in _SETTINGS_CLASSES:
    gin.external_configurable(_settings_class, module="lobench")

_MAX_MEMBERS = 1_000_000  # members, each a genome in memory

# Lowest and highest value by class and field.
_BOUNDS: dict[tuple[type[Any], str], tuple[float, float]] = {
    (Evolve, "num_generations"): (1, math.inf),
    (Evolve, "first_generation"): (0, math.inf),
    (Evolve, "checkpoint_every"): (1, math.inf),
    (Evolve, "members_per_program"): (1, math.inf),
    (Evolve, "first_n"): (0, math.inf),
    (Evolve, "loss_clip"): (0, math.inf),
    (Evolve, "last_weight"): (0, 1),
    (Evolve, "last_fraction"): (0, 1),
    (TruncationGA, "population_size"): (2, _MAX_MEMBERS),
    (TruncationGA, "num_parents"): (1, math.inf),
    (TruncationGA, "num_candidates"): (1, math.inf),
    (TruncationGA, "elite_evals"): (0, math.inf),
    (TruncationGA, "parents_per_child"): (1, math.inf),
    (TruncationGA, "sigma"): (0, math.inf),
    (TruncationGA, "decay"): (0, 1),
    (AntitheticES, "num_pairs"): (1, _MAX_MEMBERS // 2),
    (AntitheticES, "sigma"): (1e-30, math.inf),
    (AntitheticES, "learning_rate"): (0, math.inf),
    (AntitheticES, "final_rate_fraction"): (0, 1),
    (AntitheticES, "clip_norm"): (1e-30, math.inf),
}
_CHOICES = {"strategy": ("ga", "es"), "fitness": ("curve", "final")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Settings of a file with gin parameters bound over it, independent of the working directory.

    Attributes:
      imports: Modules imported by the file.
    """

    run_settings: Evolve
    ga: TruncationGA
    es: AntitheticES
    cases: tuple[CaseSpec, ...]
    imports: tuple[str, ...]


def read_config(config: Path, gin_params: Sequence[str]) -> Configuration:
    """Reads settings and cases, without binding or building them.

    Raises:
      ConfigError: A parameter is unknown, or a value has the wrong kind or is out of range.
      SuiteError: A case does not exist, or no case is given.
    """
    statements = parse_file(config)
    imports = tuple(statement.module for statement in statements if hasattr(statement, "module"))
    for text in gin_params:
        statements += parse_text(text, f"--gin-param {text!r}")
    run = _read_settings(Evolve, statements)
    ga = _read_settings(TruncationGA, statements)
    es = _read_settings(AntitheticES, statements)
    is_ga = run.strategy == "ga"
    population_size = ga.population_size if is_ga else 2 * es.num_pairs
    _check_at_most("TruncationGA.num_parents", ga.num_parents, "population_size", ga.population_size)
    _check_at_most("TruncationGA.parents_per_child", ga.parents_per_child, "num_parents", ga.num_parents)
    _check_at_most("Evolve.first_n", run.first_n, "the population's size", population_size)
    if is_ga and ga.elite_evals and ga.num_candidates < 2:
        expected = "at least 2: the last elite, and one that may take its place"
        raise ConfigError("TruncationGA.num_candidates", got="1", expected=expected)
    if not is_ga and run.first_n == 1:
        expected = "0, or at least 2: a pair is evaluated only when both are there"
        raise ConfigError("Evolve.first_n", got="1", expected=expected)
    max_members = max(population_size, ga.num_candidates * ga.elite_evals if is_ga else 0)
    run = dataclasses.replace(run, members_per_program=min(run.members_per_program, max_members))
    cases = specs_called(run.cases, config)
    return Configuration(run_settings=run, ga=ga, es=es, cases=tuple(cases), imports=imports)


def _check_at_most(name: str, value: int, limit: str, max_value: int) -> None:
    if value > max_value:
        raise ConfigError(name, got=str(value), expected=f"at most {limit}, {max_value}")


def _read_settings(settings_class: type[T], statements: Sequence[Any]) -> T:
    fields = {entry.name: entry for entry in dataclasses.fields(settings_class)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for statement in statements:
        selector = getattr(statement, "selector", "").rsplit(".", 1)[-1]
        if selector != settings_class.__name__:
            continue
        name = statement.parameter
        if statement.scope or name not in fields:
            raise ConfigError(
                f"{selector}.{name}" if not statement.scope else f"{statement.scope}/{selector}.{name}",
                where=statement.where,
                expected="one of " + ", ".join(fields) + ", without a scope",
                next_step=suggestion(name, fields),
            )
        values[name] = _checked_value(settings_class, name, statement.value, statement.where)
    return settings_class(**values)


def _checked_value(settings_class: type[Any], name: str, value: Any, where: str) -> Any:
    setting = f"{settings_class.__name__}.{name}"
    default = getattr(settings_class(), name)
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ConfigError(setting, where=where, got=repr(value), expected=f"one of {', '.join(_CHOICES[name])}")
        return value
    if name == "cases":
        if (
            isinstance(value, str)
            or not isinstance(value, Sequence)
            or not all(isinstance(scope, str) for scope in value)
        ):
            raise ConfigError(setting, where=where, got=repr(value), expected="a list of the file's scopes")
        return tuple(value)
    if isinstance(default, Mapping):
        if not isinstance(value, Mapping) or not all(_is_number(factor) for factor in value.values()):
            raise ConfigError(setting, where=where, got=repr(value), expected="a dictionary of factors by leaf")
        return {str(path): float(factor) for path, factor in value.items()}
    if isinstance(default, bool | str):
        if type(value) is not type(default):
            raise ConfigError(setting, where=where, got=repr(value), expected=f"a {type(default).__name__}")
        return value
    lowest, highest = _BOUNDS[settings_class, name]
    is_integer = isinstance(default, int)
    is_number = _is_number(value) and not (is_integer and isinstance(value, float))
    if not is_number or not lowest <= value <= highest or math.isinf(value):
        bounds = f">= {lowest:g}" + (f" and <= {highest:g}" if highest < math.inf else "")
        type_text = "an integer" if is_integer else "a number"
        raise ConfigError(setting, where=where, got=repr(value), expected=f"{type_text} {bounds}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
