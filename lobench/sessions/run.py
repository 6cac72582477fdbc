"""`lobench run`: methods x cases x sessions, as far as the store does not hold them yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lobench.core.experiment import Experiment
from lobench.engine.config.experiment_files import read_experiment
from lobench.plugins import load_plugins
from lobench.sessions.methods import MethodPlan, chosen_methods, num_cases, plan_of

__all__ = ["ExperimentPlan", "RunSettings", "plan_experiment", "store_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The options of `lobench run`, by the names that they have there.

    Attributes:
      experiment: Path of the file.
      methods: Names of those that are run now; none: all.
    """

    experiment: str
    store: str = ""
    methods: tuple[str, ...] = ()
    gin_params: tuple[str, ...] = ()
    workers: str | int = "auto"
    executor: str = "local"
    ray_address: str = "auto"
    insecure: bool = False
    sinks: tuple[str, ...] = ()
    max_core_hours: float | None = None
    retry_errors: bool = False
    allow_pickle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlan:
    """What is planned, and what of it is missing."""

    store: Path
    methods: tuple[MethodPlan, ...]
    num_cases: int


def store_of(settings: RunSettings, experiment: Experiment) -> Path:
    return Path(settings.store) if settings.store else Path(".lobench") / experiment.name


def plan_experiment(settings: RunSettings) -> ExperimentPlan:
    """Returns what is planned. Nothing is started or written.

    Raises:
      LobenchError: the experiment is wrong, or a checkpoint of it cannot be read.
    """
    file = read_experiment(Path(settings.experiment), settings.gin_params)
    methods = chosen_methods(file.experiment, settings.methods)
    store = store_of(settings, file.experiment)
    plans = plan_of(file, methods, store, load_plugins(), allow_pickle=settings.allow_pickle)
    return ExperimentPlan(store=store, methods=tuple(plans), num_cases=num_cases(file.experiment))
