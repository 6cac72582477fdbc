"""`lobench run`: the missing evaluations of methods x cases x sessions."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Unpack

from lobench.analysis.store.entrants import Entrant
from lobench.analysis.store.methods import read_methods
from lobench.analysis.tables.frames import StoredResults, open_results
from lobench.api.components import components_of
from lobench.api.dry_run import joined_error
from lobench.api.engine_run import LOCAL_EXECUTORS, WatchOutcome, run_rounds
from lobench.api.rerun import repeating_command
from lobench.api.settings import EvaluationSettings, WatchSettings, WorkerKeywords, num_workers
from lobench.core.case import CaseSpec
from lobench.core.errors import LobenchError, UsageError
from lobench.core.experiment import Experiment, Method, Race, SessionBlocks
from lobench.core.planner import EvaluationId
from lobench.core.result import Outcome
from lobench.core.search.search import TrialState
from lobench.core.settings_field import check_keywords, settings_from
from lobench.core.subject import Subject
from lobench.core.wording import shortened_list
from lobench.engine.checkpoints.given import given_methods
from lobench.engine.chief.interfaces import ERRORS, WatchProgress, WatchSummary
from lobench.engine.config.bound import num_gpus_of
from lobench.engine.config.experiment.file import ExperimentFile, chosen_methods, read_experiment
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_called, specs_of_suites
from lobench.engine.store.data_files import changed_data
from lobench.engine.store.ledger import EvaluationRow
from lobench.engine.workers.devices import devices_here
from lobench.experiments.blocks import blocks_of, open_if_present
from lobench.experiments.check import ExperimentPlan, MethodPlan, bind_waiting_commands, bound_cases, plan_of
from lobench.experiments.command_code import CommandCode, code_of_commands, record_command_data, with_code
from lobench.experiments.imported_curves import read_curves
from lobench.experiments.members import ExperimentRunExtension
from lobench.experiments.method_index import MethodIndex
from lobench.experiments.search.planned import planned_searches
from lobench.plugins import load_plugins
from lobench.report.live.methods import MethodCounts
from lobench.report.live.notebook_progress import default_progress

__all__ = ["ExperimentOutcome", "ExperimentRun", "RunSettings", "run", "store_of"]

_MAX_RESTARTS = 2  # limit after edits of commands; a command may itself write a file of its code
# The other options of a run are those of a watch.
_OWN_OPTIONS = ("experiment", "store", "methods", "cases", "gin_params")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings(EvaluationSettings):
    """Options of `lobench run`, under the names of the command line. Those of evaluations are inherited.

    Attributes:
      experiment: Path of the file.
      methods: Names of the methods to run. (): all.
      cases: Names of the cases to run: `relu32`, `quick/relu32` or `digits.relu32`. (): all.
    """

    experiment: str
    store: str = ""
    methods: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    max_core_hours: float | None = None
    retry_errors: bool = False
    keep_results: bool = False


class RunKeywords(WorkerKeywords, total=False):
    """Keywords of `lobench.run`, described at `RunSettings`."""

    store: str | Path
    methods: Sequence[str]
    cases: Sequence[str]
    gin_params: Sequence[str]
    sinks: Sequence[str]
    max_core_hours: float | None
    retry_errors: bool
    keep_results: bool
    allow_pickle: bool


def store_of(settings: RunSettings, experiment: Experiment) -> Path:
    return Path(settings.store) if settings.store else Path(".lobench") / experiment.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOutcome:
    """Outcome of running an experiment.

    Attributes:
      name: Name of the experiment.
      experiment: Id of this version of the experiment in the ledger.
      num_done, num_planned: Numbers of evaluations of the methods that were run.
      trials: State of each session of a command, `mine-0`.
      refused: Reasons why methods could not be evaluated, by title.
      utilisation: See `Watched`.
    """

    store: Path
    name: str
    experiment: int
    ending: WatchSummary
    num_done: int
    num_planned: int
    trials: Mapping[str, TrialState]
    refused: Mapping[str, str] = field(default_factory=dict)
    utilisation: str = ""


def run(
    experiment: str | Path, *, progress: WatchProgress | None = None, **options: Unpack[RunKeywords]
) -> StoredResults:
    """Runs the missing part of an experiment, and returns the results in its store.

    Example:
        found = lobench.run("experiment.gin", workers=2)

    Args:
      experiment: Path of the experiment file.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench run`: store, methods, gin_params, workers, executor, max_core_hours, retry_errors,
        keep_results, sinks.
    Raises:
      LobenchError: The experiment is invalid, the store is busy, or a suite cannot be collected.
      KeyboardInterrupt: Ctrl-C was pressed. The same call continues from there.

    >>> lobench.run("experiment.gin", store="experiment")
    StoredResults('experiment': 2 evaluations, 2 optimizers, 1 case)
    """
    check_keywords("run", options, RunKeywords)
    experiment_run = ExperimentRun(settings_from(RunSettings, options, experiment=str(experiment)))
    outcome = experiment_run.run(progress or default_progress(experiment_run.methods))
    if outcome.ending.interrupted:
        raise KeyboardInterrupt
    return open_results(outcome.store)


class ExperimentRun:
    """An experiment that was read. `check` returns its plan without training anything; `run` runs it.

    Attributes:
      methods: State of the methods for a display, kept current during the run.
    Raises:
      LobenchError: The experiment is invalid.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._read_plan()
        self.methods = MethodCounts(
            lambda subject: self._method_index.titles(subject),
            lambda rows: self._extension.snapshot(rows),
            lambda cases: self._extension.plan(cases),
            trials_of=lambda: self._method_index.trial_texts(),
            curve_progress_of=lambda: self._extension.progress_by_title,
        )

    def _read_plan(self, *, follows_edits: bool = True) -> None:
        """Reads the experiment and the code of its commands.

        Args:
          follows_edits: See `ExperimentRunExtension`.
        """
        settings = self._settings
        self._file = read_experiment(Path(settings.experiment), settings.gin_params)
        experiment = self._file.experiment
        methods = chosen_methods(experiment, settings.methods)
        named_specs = specs_called(settings.cases, *experiment.suites) if settings.cases else []
        self._case_names = tuple(spec.names[-1] for spec in named_specs)
        self._curve_methods = [method for method in methods if method.kind == "curves"]
        chosen_names = {method.name for method in methods}
        _check_devices(self._file, methods, settings, named_specs)
        self._unfit_problems = _unfit_methods(methods, settings)
        methods = tuple(
            method for method in methods if method.kind != "curves" and method.title not in self._unfit_problems
        )
        if self._unfit_problems and not methods and not self._curve_methods:
            raise joined_error(self._unfit_problems)
        self._store = store_of(settings, experiment)
        codes = self._codes = self._command_codes(methods)
        self._file = with_code(self._file, codes)
        methods_by_name = {code.method.name: code.method for code in codes}
        methods = tuple(methods_by_name.get(method.name, method) for method in methods)
        self._subjects_by_method = given_methods(methods)
        is_search = any(method.search is not None for method in methods)
        if experiment.race is not None and (settings.methods or settings.cases):
            got = "--method" if settings.methods else "--case"
            raise UsageError(
                "a race is of all methods on all cases",
                where=str(self._file.path),
                got=got,
                next_step="leave it out, or leave out Experiment.race",
            )
        self._chosen_methods = methods
        self._searches = planned_searches(self._file, methods, load_plugins()) if is_search else {}
        self._method_index = MethodIndex(self._file, methods, self._subjects_by_method, self._searches, self._store)
        self._extension = ExperimentRunExtension(
            self._file,
            self._method_index,
            retry_errors=settings.retry_errors,
            is_elsewhere=settings.executor not in LOCAL_EXECUTORS,
            num_slots=num_workers(settings.workers),
            command_codes=codes,
            keep_results=settings.keep_results,
            follows_edits=follows_edits,
            kept_methods=[
                method.name
                for method in experiment.methods
                if method.name not in chosen_names
                or (settings.cases and method.search is None and method.kind in ("optimizer", "checkpoint", "command"))
            ],
        )

    def _command_codes(self, methods: Sequence[Method]) -> list[CommandCode]:
        if not any(method.command for method in methods):
            return []
        with open_if_present(self._store) as ledger:
            return code_of_commands(self._file, methods, ledger, keep_results=self._settings.keep_results)

    def check(self, progress: WatchProgress, *, is_offline: bool = False) -> ExperimentPlan:
        """Returns the plan, after finding and binding everything that the run names.

        Nothing is trained or written. A local worker binds cases that the store does not remember.

        Args:
          progress: Receives progress events.
          is_offline: Whether no worker is started and no curves are read. The plan then lists the skipped checks.
        Raises:
          LobenchError: An error that `run` would raise before it trains anything.
        """
        if self._unfit_problems:
            raise joined_error(self._unfit_problems)
        settings = self._settings_of_run()
        components = components_of(settings.resolved(), progress)
        for sink in settings.sinks:
            components.manager.find("lobench_result_sinks", sink.partition(":")[0], kind="sink")
        with read_curves(() if is_offline else self._curve_methods) as curves:
            plan = plan_of(
                self._file,
                self._chosen_methods,
                self._searches,
                settings,
                components.manager,
                curves=curves,
                is_offline=is_offline,
            )
        imported_plans = [
            MethodPlan(method=method, num_planned=0, num_missing=0, seconds=0.0, cases_without_duration=frozenset())
            for method in self._curve_methods
        ]
        method_names = [method.name for method in self._file.experiment.methods]
        params = "; ".join(self._settings.gin_params)
        notices = [f"--gin-param, for every method: {params}"] if params else []
        return replace(
            plan,
            methods=tuple(
                sorted(
                    (*plan.methods, *imported_plans),
                    key=lambda method_plan: method_names.index(method_plan.method.name),
                )
            ),
            notices=(*notices, *self._changed_data()),
        )

    def _changed_data(self) -> Iterator[str]:
        """Yields the lines of a run on changed data files, without recording them."""
        with open_if_present(self._store) as ledger:
            if ledger is not None:
                yield from record_command_data(self._codes, ledger, is_recorded=False)
                if line := changed_data(ledger, self._settings_of_run().suites, is_recorded=False):
                    yield line

    def run(self, progress: WatchProgress) -> ExperimentOutcome:
        """Runs missing evaluations, and adds existing ones to the experiment.

        If the code of a command was edited before a session of it, the experiment is read and planned again.

        Raises:
          LobenchError: As in `run`.
        """
        rounds = [self._run_planned(progress)]
        while self._extension.is_outdated and not rounds[-1].ending.interrupted and not rounds[-1].ending.over_budget:
            hours = self._settings.max_core_hours
            if hours is not None:
                hours -= rounds[-1].ending.core_seconds / 3600
            self._settings = replace(self._settings, retry_errors=False, max_core_hours=hours)
            self._read_plan(follows_edits=len(rounds) < _MAX_RESTARTS)
            self.methods.forget()
            rounds.append(self._run_planned(progress))
        outcomes = sum((Counter(outcome.ending.outcomes) for outcome in rounds), Counter[Outcome]())
        core_seconds = sum(outcome.ending.core_seconds for outcome in rounds)
        return replace(rounds[-1], ending=replace(rounds[-1].ending, outcomes=outcomes, core_seconds=core_seconds))

    def _run_planned(self, progress: WatchProgress) -> ExperimentOutcome:
        for title, problem in self._unfit_problems.items():
            progress.log(f"{title!r} cannot be trained, and the other methods go on: {problem}")
        extension = self._extension
        subjects = tuple(self._subjects_by_method.values())
        settings = self._settings_of_run()
        if any(method.kind == "command" for method in self._chosen_methods):
            manager = components_of(settings.resolved(), progress).manager
            bind_waiting_commands(self._file, self._chosen_methods, self._searches, settings, manager)
        if settings.suites and any(method.kind == "script" for method in self._chosen_methods):
            manager = components_of(settings.resolved(), progress).manager
            extension.own_cases = bound_cases(settings, manager)
        with read_curves(self._curve_methods) as curves:
            extension.curves = curves
            race = self._file.experiment.race
            outcome_of_rounds = (
                run_rounds(settings, progress, requests=subjects, has_source=False, extension=extension)
                if race is None
                else self._run_race(race, progress)
            )
        outcomes = Counter(outcome_of_rounds.ending.outcomes) + Counter({Outcome.PASSED: extension.num_curves})
        return ExperimentOutcome(
            store=self._store,
            name=self._file.experiment.name,
            experiment=extension.experiment_id,
            ending=replace(outcome_of_rounds.ending, outcomes=outcomes),
            num_done=extension.num_done,
            num_planned=extension.num_planned,
            trials=extension.session_states,
            refused={**self._unfit_problems, **extension.refused},
            utilisation=outcome_of_rounds.utilisation,
        )

    def _run_race(self, race: Race, progress: WatchProgress) -> WatchOutcome:
        """Runs the rounds of a race, as `lobench compare --race` does, and returns their common summary."""
        extension = self._extension
        given = list(self._subjects_by_method.values())
        settings = self._settings_of_run()
        rounds = list[WatchOutcome]()
        wanted_evaluations = set[EvaluationId]()
        num_done = 0

        def evaluate(racing_indices: Sequence[int], num_blocks: int) -> bool:
            nonlocal num_done
            blocks = SessionBlocks(first_seed=race.first_seed, widths=(race.block,) * num_blocks)
            used_core_hours = sum(round_outcome.ending.core_seconds for round_outcome in rounds) / 3600
            hours = settings.max_core_hours
            max_core_hours = None if hours is None else hours - used_core_hours
            round_settings = replace(
                settings,
                gin_params=(*self._file.shared_lines, *blocks.bindings),
                max_core_hours=max_core_hours,
            )
            subjects = [given[index] for index in racing_indices]
            rounds.append(
                run_rounds(round_settings, progress, requests=subjects, has_source=False, extension=extension)
            )
            # Only existing evaluations of eliminated methods are wanted.
            num_done += extension.num_done - len(extension.planned_evaluations & wanted_evaluations)
            wanted_evaluations.update(extension.planned_evaluations)
            ending = rounds[-1].ending
            if set(ERRORS) & {*ending.recorded}:
                reason = "evaluations gave no result, and an incomplete round decides nothing"
                progress.log(f"the race stops: {reason}; --retry-errors tries them again")
                return False
            return not ending.interrupted and not ending.over_budget

        def read_entrants() -> Sequence[Entrant]:
            stored_race = read_methods(self._store, self._file.experiment.name).experiment.race
            return stored_race.entrants if stored_race is not None else ()

        from lobench.api.race import run_race  # imports scipy, which the other experiments need not

        run_race(evaluate, read_entrants, race, (), progress.log, num_methods=len(given))
        extension.num_done, extension.num_planned = num_done, len(wanted_evaluations)
        return replace(rounds[-1], ending=_join_endings([round_outcome.ending for round_outcome in rounds]))

    def _settings_of_run(self) -> WatchSettings:
        """Returns the settings of a watch without a source."""
        experiment = self._file.experiment
        blocks = blocks_of(experiment, self._store)
        watch_options = {
            field.name: getattr(self._settings, field.name)
            for field in fields(self._settings)
            if field.name not in _OWN_OPTIONS
        }
        return WatchSettings(
            location="",
            suites=tuple(experiment.suites),
            store=str(self._store),
            name=experiment.name,
            checkpoints="all",
            once=True,
            gin_params=(*self._file.shared_lines, *(blocks.bindings if blocks else ())),
            import_folders=self._file.import_folders,
            cases=self._case_names,
            traced=True,
            **watch_options,
        )

    def repeating_command(self, subject: Subject, row: EvaluationRow) -> str:
        """Returns the command that computes an evaluation of this experiment again."""
        name = f"{row.case.suite}/{row.case.name}"
        items = [
            f"{self._settings.experiment}::{name}[{role.name}-{seed}]"
            for role in self._method_index.roles_of(subject)
            if role.name in self._subjects_by_method
            for seed in row.key.seed_block.seeds
        ]
        if not items:
            return repeating_command(subject, row.case, self._settings_of_run().resolved())
        params = [word for param in self._settings.gin_params for word in ("--lobench-gin-param", param)]
        return shlex.join(["pytest", *items, "--lobench-store", str(self._store), *params])


def _check_devices(
    file: ExperimentFile, methods: Sequence[Method], settings: RunSettings, named_specs: Sequence[CaseSpec]
) -> None:
    """Checks that this machine has the devices of the cases, before anything is trained.

    Methods with imported curves or scripts need none, because lobench does not train them. Suites whose gin files
    cannot be read are skipped: the worker that collects them reports the error.

    Args:
      file: The experiment.
      methods: Methods to run.
      settings: Options of the command.
      named_specs: Cases that the options name. Empty: all cases of the experiment.

    Raises:
      UsageError: A case needs more devices than this machine has.
    """
    if settings.executor not in LOCAL_EXECUTORS or all(method.kind in ("script", "curves") for method in methods):
        return
    try:
        specs = named_specs or specs_of_suites(*file.experiment.suites)
    except LobenchError:
        return
    num_devices = len(devices_here(os.environ))
    layers = Layers(gin_params=file.shared_lines)
    devices_by_case = {spec.names[-1]: num_gpus_of(spec, layers) for spec in specs}
    names = [name for name, num_gpus in devices_by_case.items() if num_gpus > num_devices]
    if names:
        raise UsageError(
            "Case.num_gpus",
            where=shortened_list(names, 3),
            got=f"{devices_by_case[names[0]]:g}",
            expected=f"at most the {num_devices} of this machine",
            next_step="--executor ray uses other machines, and --case names the cases to train",
        )


def _unfit_methods(methods: Sequence[Method], settings: RunSettings) -> dict[str, str]:
    """Returns the reasons why methods cannot be trained on this machine, by title."""
    if settings.executor not in LOCAL_EXECUTORS:
        return {}
    num_devices = len(devices_here(os.environ))
    return {
        method.title: f"Method.num_gpus; got {method.num_gpus:g}; expected at most the {num_devices} of this machine; "
        "--executor ray uses other machines"
        for method in methods
        if method.num_gpus > num_devices
    }


def _join_endings(endings: Sequence[WatchSummary]) -> WatchSummary:
    """Returns the summary of a race: the summary of its last round, plus the work of methods eliminated earlier."""
    recorded_outcomes = Counter[Outcome]()
    for ending in endings:  # each includes the outcomes of earlier rounds, for the methods that were still in the race
        recorded_outcomes |= Counter(ending.recorded)
    return replace(
        endings[-1],
        outcomes=sum((Counter(ending.outcomes) for ending in endings), Counter[Outcome]()),
        recorded=recorded_outcomes,
        core_seconds=sum(ending.core_seconds for ending in endings),
        plan=replace(
            endings[-1].plan,
            subjects=tuple(dict.fromkeys(subject for ending in endings for subject in ending.plan.subjects)),
            cases={variant: cases for ending in endings for variant, cases in ending.plan.cases.items()},
        ),
    )
