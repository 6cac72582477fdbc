"""Plan of an experiment (`lobench run --check`): existing and missing evaluations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lobench.analysis.scores.trial_fitness import fitness
from lobench.api.settings import WatchSettings
from lobench.core.case import OPTIMIZER_FIELDS, CaseInfo, CaseSpec, SeedBlock, seed_blocks
from lobench.core.experiment import Method, SessionBlocks
from lobench.core.search.search import Trial, best_trial
from lobench.core.search.space import Space, Value
from lobench.core.subject import Subject, SubjectKey, Variant
from lobench.core.trials import TrialHistory, fresh_seed_bindings, fresh_seed_cases, is_over
from lobench.engine.checkpoints.given import given_method
from lobench.engine.checkpoints.readers import load_checkpoint
from lobench.engine.chief.commands import CommandRun
from lobench.engine.config.bound import integer_field_of
from lobench.engine.config.experiment.file import ExperimentFile
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_called
from lobench.engine.config.syntax import only_bindings, parse_text
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.experiments.blocks import blocks_of, member_blocks, open_if_present
from lobench.experiments.existing import ExistingResults, NamedBlock, cases_of
from lobench.experiments.imported_curves import ExperimentCurves
from lobench.experiments.members import WITHOUT_CHECKPOINT, states_by_folder
from lobench.experiments.method_index import MethodIndex
from lobench.experiments.scripts import num_report_sessions
from lobench.experiments.search.planned import KnownTrials, PlannedSearch, known_trials_of
from lobench.experiments.search.running import request_on_fresh_seeds
from lobench.plugins import PluginManager

__all__ = ["ExperimentPlan", "MethodPlan", "bind_waiting_commands", "plan_of"]

_NUM_DRAWS = 64  # samples of a space, until each parameter is active in one of them
_PLACEHOLDER_OPTIMIZER = (
    "Case.optimizer = @lobench.sgd()",
)  # stands for the optimizer that a config.gin will name later


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPlan:
    """Planned and missing evaluations of a method, as far as files and the store determine them.

    Attributes:
      num_planned: Number of evaluations.
      num_missing: Number of evaluations that the store lacks.
      seconds: Expected seconds of the missing evaluations, from recorded durations.
      cases_without_duration: Cases of missing evaluations that never ran.
      num_trainings: Number of trainings, which are the sessions of a command in all of its trials; 0 without a command.
      num_trials: Largest number of trials of a search.
      num_reported: Number of evaluations of the best trial on fresh seeds.
      repeated_plan: Evaluations that earlier methods share; a run computes them once.
    """

    method: Method
    num_planned: int
    num_missing: int
    seconds: float
    cases_without_duration: frozenset[str]
    num_trainings: int = 0
    num_trials: int = 0
    num_reported: int = 0
    repeated_plan: MethodPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlan:
    """Planned and missing evaluations of an experiment. Evaluations shared by methods count once.

    Attributes:
      unbound: Titles of methods whose bindings were not checked, because no worker was started.
      is_race: Whether the missing evaluations are an upper bound, because methods may drop out.
      notices: Lines on bindings of `--gin-param` and on data files that changed.
    """

    store: Path
    methods: tuple[MethodPlan, ...]
    num_cases: int
    unbound: tuple[str, ...] = ()
    is_race: bool = False
    notices: tuple[str, ...] = ()

    @property
    def num_planned(self) -> int:
        return int(self._sum("num_planned"))

    @property
    def num_missing(self) -> int:
        return int(self._sum("num_missing"))

    @property
    def seconds(self) -> float:
        return self._sum("seconds")

    def _sum(self, name: Literal["num_planned", "num_missing", "seconds"]) -> float:
        repeated_plans = [method.repeated_plan for method in self.methods if method.repeated_plan is not None]
        total, repeated_total = (
            math.fsum(getattr(plan, name) for plan in plans) for plans in (self.methods, repeated_plans)
        )
        return total - repeated_total


def plan_of(
    file: ExperimentFile,
    methods: Sequence[Method],
    searches: Mapping[str, PlannedSearch],
    settings: WatchSettings,
    manager: PluginManager,
    *,
    curves: ExperimentCurves,
    is_offline: bool = False,
) -> ExperimentPlan:
    """Returns the plan of an experiment. Trains nothing and writes nothing.

    Each method is bound as the run binds it, in one local worker, so wrong gin text is an error. For a search, some
    trials are bound that together have all of its parameters. A command without checkpoints is bound with its own
    bindings, and with any optimizer if they name none.

    Args:
      file: Experiment file.
      methods: Methods that are planned.
      searches: Searches of the methods, by name.
      settings: Settings of the run.
      manager: Plugins.
      curves: Curves of the imported methods.
      is_offline: Whether no worker is started. Methods whose cases are not in the store are then not bound.
    Raises:
      CheckpointError: A checkpoint cannot be read.
      SuiteError: The cases cannot be collected or bound.
      UsageError: The imported curves do not fit the cases.
    """
    store = settings.store_folder
    specs = specs_called(settings.cases, *settings.suites) if settings.suites else []
    blocks = blocks_of(file.experiment, store)
    with open_if_present(store) as ledger:
        planned_subjects = _PlannedSubjects(file, methods, searches, settings, manager, ledger)
        cases = cases_of(
            planned_subjects.label_by_variant,
            ledger,
            settings,
            manager,
            store,
            is_offline=is_offline,
            traced_variants=planned_subjects.traced_variants,
        )
        for case in cases.values():
            curves.check(case)
        rows = list(ledger.evaluations()) if ledger is not None else []
        unbound_blocks = [(spec.names[-1], block) for spec in specs for block in _blocks(spec, file, blocks)]
        planner = _Planner(
            planned_subjects=planned_subjects,
            existing_results=ExistingResults(ledger, settings, cases, unbound_blocks),
            display_names=_short_names(specs),
            durations=_durations(rows),
        )
        plans = planner.plans(methods)
    unbound_labels = [label for variant, label in planned_subjects.label_by_variant.items() if variant.key not in cases]
    return ExperimentPlan(
        store=store,
        methods=tuple(plans),
        num_cases=len(specs),
        unbound=tuple(dict.fromkeys(unbound_labels)),
        is_race=file.experiment.race is not None,
    )


def bind_waiting_commands(
    file: ExperimentFile,
    methods: Sequence[Method],
    searches: Mapping[str, PlannedSearch],
    settings: WatchSettings,
    manager: PluginManager,
) -> None:
    """Binds the cases for commands that have not run yet, and for trials of searches over commands.

    Unknown names are thereby reported before hours of training.

    Raises:
      SuiteError: The cases cannot be bound.
    """
    with open_if_present(settings.store_folder, will_write=True) as ledger:
        trainings = _Trainings(file, ledger, settings)
        has_optimizer = _names_optimizer(file.shared_lines)
        labels: dict[Variant, str] = {}
        for method in methods:
            if method.kind != "command":
                continue
            if method.search is None:
                waiting_commands = [method] if trainings.num_expected_checkpoints(method) else []
            else:
                planned_search = searches[method.name]
                known_trials = known_trials_of(planned_search, file, ledger).trials
                num_ended = sum(is_over(trial.state) for trial in known_trials)
                is_complete = num_ended == len(known_trials) >= planned_search.num_trials
                waiting_commands = (
                    [] if is_complete else [method.with_values(values) for values in _samples(planned_search.space)]
                )
            for command in waiting_commands:
                labels[_waiting_variant(command, has_optimizer=has_optimizer)] = method.title
        if labels:
            cases_of(labels, ledger, settings, manager, settings.store_folder)


def bound_cases(settings: WatchSettings, manager: PluginManager) -> Sequence[CaseInfo]:
    """Returns the cases of an experiment's suites, for any method.

    Raises:
      SuiteError: The cases cannot be collected or bound.
    """
    variant = Variant(bindings=_PLACEHOLDER_OPTIMIZER, trainer_config="")
    with open_if_present(settings.store_folder, will_write=True) as ledger:
        return cases_of({variant: "the cases"}, ledger, settings, manager, settings.store_folder)[variant.key]


class _PlannedSubjects:
    """Subjects that a run would evaluate, as far as files and the store determine them.

    Attributes:
      subjects: Known subjects of each method without a search.
      trial_variants: Hash and variant of the subject of each known trial of an optimizer or checkpoint, by its number.
        Stopped and infeasible trials are left out: a run evaluates nothing more of them.
      waiting_variants: Variant of each method whose subjects are unknown before the run: checkpoints of a command, or
        trials of a search.
      known_trials: State of each search in the store.
      label_by_variant: Label of the subject of every variant.
      traced_variants: Variants that the run traces before it trains. Trials are not among them, because a trial may be
        infeasible; nor are commands, because the optimizer of their checkpoints is unknown.
    """

    def __init__(
        self,
        file: ExperimentFile,
        methods: Sequence[Method],
        searches: Mapping[str, PlannedSearch],
        settings: WatchSettings,
        manager: PluginManager,
        ledger: Ledger | None,
    ) -> None:
        self._manager = manager
        self._allow_pickle = settings.allow_pickle
        self.trainings = _Trainings(file, ledger, settings)
        self.searches = searches
        self.experiment = file.experiment
        self.stored_blocks = member_blocks(ledger, file.experiment.name) if ledger is not None else set()
        self.num_sessions = len(file.experiment.sessions or (0,))
        self.subjects = dict[str, list[Subject]]()
        self.trial_variants = dict[str, dict[int, tuple[str, Variant]]]()
        self.waiting_variants = dict[str, Variant]()
        self.known_trials = {
            name: known
            if (known := known_trials_of(search, file, ledger)).trials
            else self._seen_proposals(search, ledger)
            for name, search in searches.items()
        }
        self.label_by_variant, self.traced_variants = dict[Variant, str](), set[Variant]()
        has_optimizer = _names_optimizer(file.shared_lines)
        for method in methods:
            if method.kind == "script":
                continue  # curves of a script bind nothing
            if method.search is not None:
                trial_methods = [method.with_values(values) for values in _samples(searches[method.name].space)]
                variants = [
                    _waiting_variant(trial_method, has_optimizer=has_optimizer) for trial_method in trial_methods
                ]
                self.waiting_variants[method.name] = variants[0]
                if method.kind != "command":  # a session of a command must have trained the checkpoint
                    evaluated_trials = [
                        trial for trial in self.trials_of(method) if trial.state not in ("stopped", "infeasible")
                    ]
                    self.trial_variants[method.name] = self._variants_of(method, evaluated_trials)
                trial_variants = self.trial_variants.setdefault(method.name, {})
                variants += [variant for _, variant in trial_variants.values()]
                subjects = []
            elif method.kind == "command":
                subjects = self.subjects[method.name] = self.trainings.checkpoints_of(method)
                self.waiting_variants[method.name] = _waiting_variant(method, has_optimizer=has_optimizer)
                variants = (
                    [self.waiting_variants[method.name]] if self.trainings.num_expected_checkpoints(method) else []
                )
            else:
                subjects = self.subjects[method.name] = [self._subject_of(method)]
                variants = []
                self.traced_variants.update(subject.variant for subject in subjects)
            for variant in (*(subject.variant for subject in subjects), *variants):
                self.label_by_variant.setdefault(variant, method.title)

    def trials_of(self, method: Method) -> Sequence[Trial]:
        return self.known_trials[method.name].trials[: self.searches[method.name].num_trials]

    def _seen_proposals(self, search: PlannedSearch, ledger: Ledger | None) -> KnownTrials:
        """Returns the trials that a search begins with and the store has seen, as after a change of the sessions.

        Others are left out, because an optimizer may be infeasible. So are trials of commands.
        """
        if ledger is None or search.method.kind not in ("optimizer", "checkpoint"):
            return KnownTrials()
        proposals = TrialHistory(
            search.strategy, search.space, seed=search.seed, width=search.num_trials, num_trials=search.num_trials
        ).advance()
        variants = self._variants_of(search.method, proposals)
        seen_keys = {subject.key for subject in ledger.sightings().values()}
        return KnownTrials(
            trials=tuple(
                trial for trial in proposals if (variants[trial.number][0], variants[trial.number][1].key) in seen_keys
            )
        )

    def _variants_of(self, method: Method, trials: Sequence[Trial]) -> dict[int, tuple[str, Variant]]:
        """Returns the hash and the variant of the subject of each trial of an optimizer or checkpoint, by its number.

        Raises:
          CheckpointError: The method's checkpoint cannot be read.
        """
        theta_hash = self._subject_of(method).sha256 if method.kind == "checkpoint" else ""
        requests = {
            trial.number: given_method(method.with_values(trial.parameters), label=method.title) for trial in trials
        }
        return {
            number: (request.sha256 if isinstance(request, Subject) else theta_hash, request.variant)
            for number, request in requests.items()
        }

    def _subject_of(self, method: Method) -> Subject:
        """Returns the subject of an optimizer or checkpoint method."""
        request = given_method(method, label=method.title)
        if isinstance(request, Subject):
            return request
        return request.to_subject(load_checkpoint(request.uri, self._manager, allow_pickle=self._allow_pickle)[0])


def _samples(space: Space) -> list[Mapping[str, Value]]:
    """Draws a few points of a space that together contain each parameter, if possible."""
    samples: list[Mapping[str, Value]] = []
    sampled_names = set[str]()
    for seed in range(_NUM_DRAWS):
        values = space.sample(seed)
        if not samples or not sampled_names.issuperset(values):
            samples.append(values)
            sampled_names.update(values)
        if len(sampled_names) == len(space.parameters):
            break
    return samples


def _waiting_variant(method: Method, *, has_optimizer: bool) -> Variant:
    """Returns the variant of a method's subjects. For a command it lacks the `config.gin`, which is not written yet.

    Args:
      method: Method.
      has_optimizer: Whether the file names an optimizer for all methods.
    """
    if method.kind != "command":
        return given_method(method, label=method.title).variant
    is_named = has_optimizer or _names_optimizer(method.bindings)
    return Variant(bindings=(*method.bindings, *(() if is_named else _PLACEHOLDER_OPTIMIZER)), trainer_config="")


def _names_optimizer(lines: Sequence[str]) -> bool:
    statements = [statement for line in lines for statement in parse_text(line, repr(line))]
    return any(
        binding.name == "Case" and binding.parameter in OPTIMIZER_FIELDS for binding in only_bindings(statements)
    )


class _Trainings:
    """Checkpoints that the commands of an experiment have produced, and the sessions that are still missing."""

    def __init__(self, file: ExperimentFile, ledger: Ledger | None, settings: WatchSettings) -> None:
        self._file, self._settings = file, settings
        self._states = states_by_folder(ledger) if ledger is not None else {}
        self._sightings = ledger.sightings().values() if ledger is not None else ()

    def num_sessions_of(self, method: Method) -> int:
        return len(self._runs(method))

    def checkpoints_of(self, method: Method) -> list[Subject]:
        """Returns the checkpoints that a command has produced, each theta once."""
        checkpoints = [checkpoint for run in self._runs(method) for checkpoint in self._checkpoints_of(run)]
        return list({checkpoint.key: checkpoint for checkpoint in checkpoints}.values())

    def num_expected_checkpoints(self, method: Method) -> int:
        """Returns the number of sessions that are still to produce a checkpoint."""
        states_without_checkpoint = [
            self._states.get(run.name, "waiting") for run in self._runs(method) if not self._checkpoints_of(run)
        ]
        return sum(
            state not in WITHOUT_CHECKPOINT or self._settings.retry_errors for state in states_without_checkpoint
        )

    def num_not_begun(self, method: Method) -> int:
        """Returns the number of sessions that never ran with the present command and its present code."""
        return sum(run.name not in self._states for run in self._runs(method))

    def num_not_done(self, method: Method) -> int:
        """Returns the number of sessions that are not done."""
        return sum(self._states.get(run.name) != "done" for run in self._runs(method))

    def _runs(self, method: Method) -> Sequence[CommandRun]:
        return MethodIndex(self._file, (method,), {}, {}, self._settings.store_folder).runs

    def _checkpoints_of(self, run: CommandRun) -> list[Subject]:
        sightings = [
            sighting
            for sighting in self._sightings
            if sighting.has_theta and Path(sighting.uri).is_relative_to(run.folder)
        ]
        return sightings[-1:] if run.method.checkpoints == "last" else sightings


def _blocks(spec: CaseSpec, file: ExperimentFile, blocks: SessionBlocks | None) -> list[SeedBlock]:
    if blocks is not None:
        return list(seed_blocks(sum(blocks.widths), None, blocks.first_seed or 0, blocks.widths))
    return list(seed_blocks(integer_field_of("num_seeds", spec, Layers(gin_params=file.shared_lines)) or 1, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """Makes the plans of methods.

    Attributes:
      display_names: Displayed name of each case.
      durations: Seconds of an evaluation, by case.
    """

    planned_subjects: _PlannedSubjects
    existing_results: ExistingResults
    display_names: Mapping[str, str]
    durations: Mapping[str, float]

    def plans(self, methods: Sequence[Method]) -> list[MethodPlan]:
        """Returns the plans in the order of the methods. `repeated` of each counts evaluations of earlier methods."""
        method_plans = list[MethodPlan]()
        earlier_keys = set[SubjectKey]()
        for method in methods:
            if method.kind == "script":
                method_plans.append(self._plan_of_script(method))
                continue
            if method.search is not None:
                method_plans.append(self._plan_of_search(method, self.planned_subjects.searches[method.name]))
                continue
            wanted_subjects = self.planned_subjects.subjects[method.name]
            plan = self._plan_of_subjects(
                method, wanted_subjects, self.planned_subjects.trainings.num_expected_checkpoints(method)
            )
            repeated = self._plan_of_subjects(
                method, [subject for subject in wanted_subjects if subject.key in earlier_keys], 0
            )
            method_plans.append(replace(plan, repeated_plan=repeated))
            earlier_keys.update(subject.key for subject in wanted_subjects)
        return method_plans

    def _plan_of_script(self, method: Method) -> MethodPlan:
        """Returns the plan of a script, which has one curve per session."""
        factor = self.planned_subjects.num_sessions
        search = self.planned_subjects.searches.get(method.name)
        num_trials = 1
        num_stopped = 0
        num_fresh_sessions = 0
        num_missing = self.planned_subjects.trainings.num_not_done(method)
        if search is not None:
            trials = self.planned_subjects.trials_of(method)
            num_trials = search.num_trials
            num_stopped = sum(trial.state == "stopped" for trial in trials)
            num_fresh_sessions = num_report_sessions(method, factor)
            num_missing = factor * (num_trials - sum(is_over(trial.state) for trial in trials))
            num_outdated = sum(self._num_outdated_sessions(method, trial) for trial in trials)
            is_reported = self.planned_subjects.known_trials[method.name].is_reported and not num_outdated
            num_missing += num_outdated + (0 if is_reported else num_fresh_sessions)
        unknown_titles = frozenset([method.title]) if num_missing else frozenset()
        return MethodPlan(
            method=method,
            num_planned=factor * (num_trials - num_stopped) + num_fresh_sessions,
            num_missing=num_missing,
            seconds=0.0,
            cases_without_duration=unknown_titles,
            num_trainings=factor * num_trials,
            num_trials=num_trials if search is not None else 0,
            num_reported=num_fresh_sessions,
        )

    def _num_outdated_sessions(self, method: Method, trial: Trial) -> int:
        """Returns the number of sessions of a finished trial that run again, as after an edit of the command's code."""
        if method.kind not in ("command", "script") or trial.state not in ("done", "failed"):
            return 0
        return self.planned_subjects.trainings.num_not_begun(method.with_values(trial.parameters))

    def _plan_of_subjects(self, method: Method, subjects: Sequence[Subject], num_expected: int) -> MethodPlan:
        """Returns the plan of subjects, and of a number of subjects that do not exist yet."""
        blocks = [self.existing_results.blocks_of(subject.sha256, subject.variant) for subject in subjects]
        blocks += [self._blocks_per_trial(method)] * num_expected if num_expected else []
        return self._method_plan(
            method,
            [block for planned_blocks, _ in blocks for block in planned_blocks],
            [block for _, missing_blocks in blocks for block in missing_blocks],
            num_trainings=self.planned_subjects.trainings.num_sessions_of(method) if method.kind == "command" else 0,
        )

    def _blocks_per_trial(self, method: Method) -> tuple[list[NamedBlock], list[NamedBlock]]:
        return self.existing_results.blocks_of("", self.planned_subjects.waiting_variants[method.name])

    def _plan_of_search(self, method: Method, search: PlannedSearch) -> MethodPlan:
        """Returns the plan of a search. Trials that were not proposed yet lack all evaluations."""
        num_sessions = self.planned_subjects.num_sessions if method.kind == "command" else 1
        blocks_of_trial = self._blocks_per_trial(method)[0] * num_sessions
        trials = self.planned_subjects.trials_of(method)
        trial_variants = self.planned_subjects.trial_variants[method.name]
        missing_blocks = blocks_of_trial * (search.num_trials - len(trials))
        is_reported = self.planned_subjects.known_trials[method.name].is_reported
        for trial in trials:
            if trial.number in trial_variants:
                missing_of_trial = self.existing_results.blocks_of(*trial_variants[trial.number])[1]
            elif is_over(trial.state):
                missing_of_trial = self._blocks_per_trial(method)[0] * self._num_outdated_sessions(method, trial)
            else:
                missing_of_trial = blocks_of_trial
            missing_blocks = missing_blocks + missing_of_trial
            # A finished trial that is evaluated again, as after an edit of its code, may be the best.
            is_reported = is_reported and not (missing_of_trial and is_over(trial.state))
        num_stopped = sum(trial.state == "stopped" for trial in trials)
        cases = self.existing_results.cases_of(self.planned_subjects.waiting_variants[method.name])
        cases_on_fresh_seeds = fresh_seed_cases(
            cases, self.planned_subjects.experiment, method.report_sessions, self.planned_subjects.stored_blocks
        )
        final_report_blocks = [
            (case.names[-1], block) for case in cases_on_fresh_seeds for block in case.blocks()
        ] * num_sessions
        if not cases and method.report_sessions != 0:
            final_report_blocks = blocks_of_trial  # nothing is bound, and no case is known
        if method.kind != "command" and not missing_blocks:
            missing_blocks = self._missing_reports(method, trials)
        elif not is_reported:
            missing_blocks = missing_blocks + final_report_blocks
        num_trainings = num_sessions * search.num_trials if method.kind == "command" else 0
        plan = self._method_plan(
            method,
            blocks_of_trial * (search.num_trials - num_stopped),
            missing_blocks,
            num_trainings=num_trainings,
        )
        return replace(
            plan,
            num_planned=plan.num_planned + len(final_report_blocks),
            num_trials=search.num_trials,
            num_reported=len(final_report_blocks),
        )

    def _missing_reports(self, method: Method, trials: Sequence[Trial]) -> list[NamedBlock]:
        """Returns the missing evaluations of the best trial on fresh seeds, after a search with all other results.

        Its trials may be those of another search, so that their fitness on the present cases is not recorded.
        """
        planned = self.planned_subjects
        variants = planned.trial_variants[method.name]
        evaluated_trials = (trial for trial in trials if trial.number in variants)
        best = best_trial([self._with_fitness(trial, *variants[trial.number]) for trial in evaluated_trials])
        if best is None or method.report_sessions == 0:
            return []
        sha256, variant = variants[best.number]
        arguments = planned.experiment, method.report_sessions, planned.stored_blocks
        cases = fresh_seed_cases(self.existing_results.cases_of(variant), *arguments)
        request = request_on_fresh_seeds(method, best, fresh_seed_bindings(*arguments))
        sha256 = request.sha256 if isinstance(request, Subject) else sha256  # else that of the same checkpoint
        return self.existing_results.blocks_of_cases(sha256, cases)[1]

    def _with_fitness(self, trial: Trial, sha256: str, variant: Variant) -> Trial:
        """Returns a trial that has all results as one that has ended."""
        if is_over(trial.state):
            return trial
        rows, cases = self.existing_results.rows_of(sha256, variant), self.existing_results.cases_of(variant)
        experiment = self.planned_subjects.experiment
        return replace(trial, state="done", fitness=fitness(rows, cases, experiment.sessions, experiment.suites))

    def _method_plan(
        self,
        method: Method,
        planned_blocks: Sequence[NamedBlock],
        missing_blocks: Sequence[NamedBlock],
        *,
        num_trainings: int,
    ) -> MethodPlan:
        """Returns a plan with the expected seconds of its missing evaluations."""
        return MethodPlan(
            method=method,
            num_planned=len(planned_blocks),
            num_missing=len(missing_blocks),
            seconds=math.fsum(self.durations.get(name, 0.0) for name, _ in missing_blocks),
            cases_without_duration=frozenset(
                self.display_names.get(name, name) for name, _ in missing_blocks if name not in self.durations
            ),
            num_trainings=num_trainings,
        )


def _short_names(cases: Sequence[CaseSpec]) -> dict[str, str]:
    """Returns short names of cases: `quick/relu32` for `quick/digits.relu32`, if it is unambiguous."""
    short_names = {spec.names[-1]: f"{spec.suite}/{spec.names[0]}" for spec in cases}
    counts = Counter(short_names.values())
    return {name: short_name if counts[short_name] == 1 else name for name, short_name in short_names.items()}


def _durations(rows: Sequence[EvaluationRow]) -> dict[str, float]:
    """Returns the mean seconds that an evaluation of a case took, by case."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        if row.payload is not None:
            header, _ = row.header()
            for name in row.case.names:
                seconds.setdefault(name, []).append(header["compile_seconds"] + header["wall_seconds"])
    return {name: sum(values) / len(values) for name, values in seconds.items()}
