"""Study in a gin file.

    import my_trainer                                  # registers the configurables of the paths

    Study.population = 8
    Study.generations = 10
    Study.n_steps = 50
    Study.objectives = [@loss/Objective()]
    loss/Objective.metric = "train/loss"
    loss/Objective.direction = "min"
    Study.parameters = [@rate/Real(), @kind/Categorical(), @momentum/Real()]
    rate/Real.path = "outer_adam.learning_rate"
    rate/Real.low = 1e-4
    rate/Real.high = 1e-1
    rate/Real.scale = "log"
    ...
    momentum/Real.when = {"outer.kind": ["sgdm"]}      # active only then

As a program (`python -m lobench_pbt.study_file FILE`), it prints the study as JSON, so that the serving process does
not import the modules of the file.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lobench import ConfigError, LobenchError
from lobench.extend import Direction, Kind, Objective, Parameter, Rule, Scale, cause, headline, load_plugins
from lobench_pbt.gin_paths import check_gin_paths
from lobench_pbt.lineage import warm_starts
from lobench_pbt.study import FitnessFrom, Keep, Opponents, Segment, Study, check_study, study_from_json, study_to_json

__all__ = ["load_study", "read_study"]


def read_study(path: Path) -> Study:
    """Reads a study in a separate process.

    Raises:
      ConfigError: The file is invalid.
    """
    command = [sys.executable, "-P", "-m", "lobench_pbt.study_file", str(path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["the process that reads it died"]
        raise ConfigError(lines[-1])
    return study_from_json(process.stdout.splitlines()[-1])


def load_study(path: Path) -> Study:
    """Reads a study in this process, and leaves its bindings in gin's configuration.

    Raises:
      ConfigError: The file is invalid.
    """
    import gin

    where = str(path)
    values: dict[str, Any] = {}
    _register_gin_names(values)
    sys.path.insert(0, str(path.absolute().parent))
    try:
        gin.parse_config_files_and_bindings([str(path)], [], finalize_config=False)
        gin.get_configurable("lobench_pbt.Study")()
    except LobenchError as error:
        # gin raises a generated subclass, whose text has further lines with its position.
        raise ConfigError(cause(error), where=where) from error
    except Exception as error:
        line = cause(error)
        if line.startswith("malformed node"):  # message of `ast.literal_eval`
            line = "a value that is not a literal, reference or macro of gin"
        raise ConfigError("cannot read the study", where=where, got=line) from error
    values["name"] = values["name"] or path.stem
    values["schedule"] = _read_schedule(values["schedule"], path)
    if values["schedule"] and values["generations"] is None:
        values["generations"] = len(values["schedule"]) - 1
    study = Study(**values)
    check_study(study, where, load_plugins())
    check_gin_paths([parameter.path for parameter in study.parameters], where)
    return study


# Fields of a study that a file must set, or sets by other means.
_OTHER_DEFAULTS = {"name": "", "population": None, "generations": None, "n_steps": 1, "objectives": (), "schedule": ""}


def _register_gin_names(values: dict[str, Any]) -> None:
    """Registers the names that a study file uses; calling `Study` fills `values`."""
    import gin

    def register(function: Any, name: str) -> None:
        gin.external_configurable(function, name=name, module="lobench_pbt")

    defaults = {field.name: field.default for field in dataclasses.fields(Study)} | _OTHER_DEFAULTS

    def study(**bindings: Any) -> None:
        values.update(defaults | bindings)
        values["objectives"], values["parameters"] = tuple(values["objectives"]), tuple(values["parameters"])
        for key, enum_class in (("opponents", Opponents), ("fitness_from", FitnessFrom), ("keep", Keep)):
            values[key] = _enum_value(enum_class, values[key], f"Study.{key}")

    study.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what gin looks for
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in defaults.items()]
    )
    register(study, "Study")
    register(_objective, "Objective")
    for enum_class in Kind:
        register(_parameter_factory(enum_class), enum_class.capitalize())


def _enum_value(enum_class: Any, value: Any, where: str) -> Any:
    if value not in list(enum_class):
        raise ConfigError(where, got=repr(value), expected=f"one of {', '.join(enum_class)}")
    return enum_class(value)


def _objective(metric: str = "", direction: str = "", weight: float = 1.0) -> Objective:
    if not direction:
        raise ConfigError(f"the objective {metric!r} has no direction", expected="'min' or 'max'")
    return Objective(metric=metric, direction=_enum_value(Direction, direction, "Objective.direction"), weight=weight)


def _parameter_factory(parameter_kind: Kind) -> Callable[..., Parameter]:
    """Returns a function that creates a parameter of a kind from gin keywords."""

    def make_range(
        path: str = "",
        low: Any = None,
        high: Any = None,
        scale: str = "linear",
        rule: str = "multiply",
        when: Any = None,
    ) -> Parameter:
        where = f"parameter {path!r}"
        if not all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high)):
            raise ConfigError("the bounds", where=where, got=f"{low!r}, {high!r}", expected="two numbers")
        scale_and_rule: dict[str, Any] = {
            "scale": _enum_value(Scale, scale, where),
            "rule": _enum_value(Rule, rule, where),
        }
        return Parameter(path=path, kind=parameter_kind, low=low, high=high, when=_conditions(when), **scale_and_rule)

    def make_choice(path: str = "", values: Sequence[Any] = (), when: Any = None) -> Parameter:
        return Parameter(path=path, kind=parameter_kind, values=tuple(values), when=_conditions(when))

    return make_range if parameter_kind in (Kind.REAL, Kind.INT) else make_choice


def _conditions(when: Mapping[str, Sequence[Any]] | None) -> dict[str, tuple[Any, ...]]:
    return {parent: tuple(values) for parent, values in (when or {}).items()}


def _read_schedule(name: str, study_file: Path) -> tuple[Segment, ...]:
    """Reads the output of `lobench pbt replay`. Its path is relative to the study's file."""
    if not name:
        return ()
    path = study_file.absolute().parent / name
    try:
        chain = warm_starts(json.loads(path.read_text())["segments"])
        names = [field.name for field in dataclasses.fields(Segment)]
        schedule = tuple(Segment(**{key: entry[key] for key in names}) for entry in chain)
        first_step = chain[0].get("start_step", 0) if chain else 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("cannot read the schedule", where=str(path), got=headline(error)) from error
    if first_step:
        raise ConfigError(
            "the schedule has no beginning, and a study starts from scratch",
            where=str(path),
            got=f"a first segment from step {first_step}",
            next_step="print it without --from-step, or go on with lobench_pbt.replay(..., start=...)",
        )
    return schedule


if __name__ == "__main__":
    try:
        print(study_to_json(load_study(Path(sys.argv[1]))))
    except LobenchError as error:
        sys.exit(str(error))
