"""`lobench run`: methods x cases x sessions, as far as the store does not hold them yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lobench.analysis.frames import StoredResults, open_results
from lobench.core.experiment import CommandState, Experiment
from lobench.engine.chief.contract import Ending, Progress
from lobench.engine.config.experiment_files import read_experiment
from lobench.plugins import load_plugins
from lobench.report.progress import SilentProgress
from lobench.sessions.members import ExperimentRecord
from lobench.sessions.methods import MethodPlan, blocks_of, chosen_methods, given_methods, num_cases, plan_of
from lobench.sessions.rounds import run_rounds
from lobench.sessions.settings import WatchSettings

__all__ = ["ExperimentPlan", "Ran", "RunSettings", "plan_experiment", "run", "run_experiment", "store_of"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a run ended.

    Attributes:
      experiment: Id of the experiment's form in the ledger.
      num_done, num_planned: Evaluations of the methods that were asked for.
      trials: State of each session of a command, `mine-0`.
    """

    store: Path
    experiment: int
    ending: Ending
    num_done: int
    num_planned: int
    trials: Mapping[str, CommandState]


def run(experiment: str | Path, *, progress: Progress | None = None, **options: Any) -> StoredResults:
    """Runs an experiment, as far as its store does not hold it yet, and returns what the store holds.

    Args:
      experiment: Path of its file.
      progress: What is told while it runs; None: nothing is shown.
      options: Of `lobench run`: store, methods, gin_params, workers, executor, max_core_hours, retry_errors, sinks.
    Raises:
      LobenchError: the experiment is wrong; a busy store; a suite that cannot be collected.
      KeyboardInterrupt: Ctrl-C; the same call goes on from there.
    """
    ran = run_experiment(RunSettings(experiment=str(experiment), **options), progress or SilentProgress())
    if ran.ending.interrupted:
        raise KeyboardInterrupt
    return open_results(ran.store)


def run_experiment(settings: RunSettings, progress: Progress) -> Ran:
    """Runs what is missing, and makes what is there the experiment's.

    Raises:
      LobenchError: as `run`.
    """
    file = read_experiment(Path(settings.experiment), settings.gin_params)
    experiment = file.experiment
    methods = chosen_methods(experiment, settings.methods)
    store = store_of(settings, experiment)
    given = given_methods(methods)
    blocks = blocks_of(experiment, store)
    record = ExperimentRecord(file, methods, given, store, progress.say, retry_errors=settings.retry_errors)
    watched = run_rounds(
        WatchSettings(
            location="",
            suites=tuple(experiment.suites),
            store=str(store),
            name=experiment.name,
            checkpoints="all",
            once=True,
            gin_params=(*file.shared, *(blocks.bindings if blocks else ())),
            workers=settings.workers,
            executor=settings.executor,
            ray_address=settings.ray_address,
            insecure=settings.insecure,
            sinks=settings.sinks,
            max_core_hours=settings.max_core_hours,
            retry_errors=settings.retry_errors,
            allow_pickle=settings.allow_pickle,
        ),
        progress,
        given=tuple(given.values()),
        has_source=False,
        guest=record,
    )
    return Ran(
        store=store,
        experiment=record.form,
        ending=watched.ending,
        num_done=record.num_done,
        num_planned=record.num_planned,
        trials=record.trials,
    )
