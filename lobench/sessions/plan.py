"""How much of an experiment is there already, and what is missing: `lobench run --check`. No training is started."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lobench.core.case import CaseSpec, SeedBlock, seed_blocks
from lobench.core.experiment import CommandState, Method, SessionBlocks
from lobench.core.subject import Subject, SubjectKey
from lobench.core.trials import is_over
from lobench.engine.checkpoints.readers import load_checkpoint
from lobench.engine.chief.commands import CommandRun
from lobench.engine.config.bound import number_of
from lobench.engine.config.experiment_files import ExperimentFile
from lobench.engine.config.layers import Layers
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.plugins import PluginManager
from lobench.sessions.held import Held, NamedBlock
from lobench.sessions.members import states_by_folder
from lobench.sessions.methods import blocks_of, given_method, looked_at
from lobench.sessions.roster import Roster
from lobench.sessions.searches import KnownTrials, PlannedSearch, known_of, planned_searches
from lobench.sessions.settings import WatchSettings

__all__ = ["MethodPlan", "plan_of"]

_WITHOUT: tuple[CommandState, ...] = ("failed", "infeasible")  # they bring no checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodPlan:
    """How much of a method is there, as far as files and the store tell.

    Attributes:
      num_planned: Evaluations.
      num_missing: Those of them that the store does not hold.
      seconds: What these take, by recorded durations of their cases.
      unknown: Cases, among these, that never ran.
      num_trainings: Sessions of a command, each with as many evaluations.
      num_trials: Of a search, at most.
      num_reported: Evaluations of the best one on fresh seeds.
      repeated: What of this the methods before it have too: a run computes it once.
    """

    method: Method
    num_planned: int
    num_missing: int
    seconds: float
    unknown: frozenset[str]
    num_trainings: int = 0
    num_trials: int = 0
    num_reported: int = 0
    repeated: MethodPlan | None = None


def plan_of(
    file: ExperimentFile,
    methods: Sequence[Method],
    cases: Sequence[CaseSpec],
    settings: WatchSettings,
    manager: PluginManager,
) -> list[MethodPlan]:
    """Returns how much of each method is missing. Trains nothing and writes nothing.

    Args:
      cases: Those that are planned.
      settings: What would be run.
    Raises:
      CheckpointError: a checkpoint cannot be read. SuiteError: the cases cannot be bound.
    """
    store = settings.store_folder
    searches = planned_searches(file, methods, manager)
    blocks = blocks_of(file.experiment, store)
    num_sessions = len(file.experiment.sessions or (0,))
    with looked_at(store) as ledger:
        rows = list(ledger.evaluations()) if ledger is not None else []
        known_trials = {name: known_of(one, file, ledger) for name, one in searches.items()}
        planner = _Planner(
            planned=[(spec.names[-1], block) for spec in cases for block in _blocks(spec, file, blocks)],
            shown=_short_names(cases),
            rows=rows,
            durations=_durations(rows),
            manager=manager,
            allow_pickle=settings.allow_pickle,
        )
        found = _found(file, methods, settings, planner, ledger)
    return [
        MethodPlan(method=method, num_planned=0, num_missing=0, seconds=0.0, unknown=frozenset())
        if method.kind == "curves"
        else _plan_search(method, searches[method.name], known_trials[method.name], planner.plan, num_sessions)
        if method.search is not None
        else found[method.name]
        for method in methods
    ]


def _found(
    file: ExperimentFile, methods: Sequence[Method], settings: WatchSettings, planner: _Planner, ledger: Ledger | None
) -> dict[str, MethodPlan]:
    """Returns the plans of methods without a search: as the ledger has it, where it has something of a subject."""
    trainings = _Trainings(file, ledger, settings)
    methods = [method for method in methods if method.search is None and method.kind != "curves"]
    subjects = {
        method.name: trainings.brought(method) if method.kind == "command" else [planner.subject_of(method)]
        for method in methods
    }
    there = {row.key.checkpoint_sha256 for row in planner.rows}
    wanted = {one for own in subjects.values() for one in own if one.sha256 in there}
    held = Held(ledger, settings, planner.manager, settings.store_folder, wanted) if ledger and wanted else None
    blocks_of = {
        one.key: held.blocks_of(one) if held is not None and one in wanted else (planner.planned, planner.planned)
        for own in subjects.values()
        for one in own
    }
    plans, seen = dict[str, MethodPlan](), set[SubjectKey]()
    for method in methods:
        own = [one.key for one in subjects[method.name]]
        waiting = planner.planned * trainings.num_expected(method)
        plan, repeated = (
            planner.priced(
                method,
                [block for key in keys for block in blocks_of[key][0]] + others,
                [block for key in keys for block in blocks_of[key][1]] + others,
                num_trainings=trainings.num_of(method),
            )
            for keys, others in ((own, waiting), ([key for key in own if key in seen], []))
        )
        plans[method.name] = replace(plan, repeated=repeated)
        seen.update(own)
    return plans


class _Trainings:
    """What became of the trainings of commands."""

    def __init__(self, file: ExperimentFile, ledger: Ledger | None, settings: WatchSettings) -> None:
        self._file, self._settings = file, settings
        self._states = states_by_folder(ledger) if ledger is not None else {}
        self._sightings = ledger.sightings().values() if ledger is not None else ()

    def num_of(self, method: Method) -> int:
        return len(self._runs(method))

    def brought(self, method: Method) -> list[Subject]:
        """Returns the checkpoints that a command has, each theta once."""
        found = [one for run in self._runs(method) for one in self._of(run)]
        return list({one.key: one for one in found}.values())

    def num_expected(self, method: Method) -> int:
        """Returns how many sessions bring a checkpoint yet."""
        without = [self._states.get(run.name, "waiting") for run in self._runs(method) if not self._of(run)]
        return sum(state not in _WITHOUT or self._settings.retry_errors for state in without)

    def _runs(self, method: Method) -> Sequence[CommandRun]:
        return Roster(self._file, (method,), {}, {}, self._settings.store_folder).runs

    def _of(self, run: CommandRun) -> list[Subject]:
        own = [one for one in self._sightings if one.has_theta and Path(one.uri).is_relative_to(run.folder)]
        return own[-1:] if run.method.checkpoints == "last" else own


def _blocks(spec: CaseSpec, file: ExperimentFile, blocks: SessionBlocks | None) -> list[SeedBlock]:
    if blocks is not None:
        return list(seed_blocks(sum(blocks.widths), None, blocks.first_seed, blocks.widths))
    return list(seed_blocks(number_of("num_seeds", spec, Layers(gin_params=file.shared)) or 1, None))


def _plan_search(
    method: Method, search: PlannedSearch, known: KnownTrials, plan: Callable[..., MethodPlan], num_sessions: int
) -> MethodPlan:
    """Returns the plan of a search: trials that nobody has proposed yet lack everything."""
    factor = num_sessions if method.kind == "command" else 0
    nothing = plan(method, num_trainings=factor, is_known=False)
    num_known = min(len(known.trials), search.num_trials)
    parts = [nothing] * (search.num_trials - num_known)
    for trial in known.trials[:num_known]:
        if is_over(trial.state):
            continue
        is_text = method.kind == "optimizer"  # of others the bindings are not in the hash
        parts.append(plan(method.with_values(trial.parameters), num_trainings=factor, is_known=is_text))
    num_stopped = sum(trial.state == "stopped" for trial in known.trials[:num_known])
    num_reported = 0 if method.report_sessions == 0 else nothing.num_planned
    parts += [nothing] if num_reported and not known.is_reported else []
    return MethodPlan(
        method=method,
        num_planned=nothing.num_planned * (search.num_trials - num_stopped) + num_reported,
        num_missing=sum(one.num_missing for one in parts),
        seconds=math.fsum(one.seconds for one in parts),
        unknown=frozenset[str]().union(*(one.unknown for one in parts)),
        num_trainings=factor * search.num_trials,
        num_trials=search.num_trials,
        num_reported=num_reported,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """Makes plans of methods.

    Attributes:
      planned: Of one subject.
      shown: What each case is called where people read it.
      rows: What the store holds.
      durations: Seconds that an evaluation of a case took, by case.
    """

    planned: list[NamedBlock]
    shown: Mapping[str, str]
    rows: Sequence[EvaluationRow]
    durations: Mapping[str, float]
    manager: PluginManager
    allow_pickle: bool

    def subject_of(self, method: Method) -> Subject:
        """Returns what a method that is an optimizer or a checkpoint evaluates."""
        given = given_method(method, label=method.title)
        if isinstance(given, Subject):
            return given
        return given.read_as(load_checkpoint(given.uri, self.manager, allow_pickle=self.allow_pickle)[0])

    def plan(self, method: Method, *, num_trainings: int, is_known: bool = True) -> MethodPlan:
        """Returns the plan of one subject, or of one for each session of a command, going by the names of cases.

        Args:
          is_known: Whether the store may hold some of it.
        """
        if method.kind == "checkpoint" and method.search is None:
            self.subject_of(method)  # it can be read
        sha256 = self.subject_of(method).sha256 if is_known and method.kind != "command" else ""
        own = [row for row in self.rows if row.key.checkpoint_sha256 == sha256]
        held = {(name, row.key.seed_block) for row in own for name in row.case.names}
        missing = [one for one in self.planned if one not in held]
        factor = max(num_trainings, 1)
        return self.priced(method, self.planned * factor, missing * factor, num_trainings=num_trainings)

    def priced(
        self, method: Method, planned: Sequence[NamedBlock], missing: Sequence[NamedBlock], *, num_trainings: int
    ) -> MethodPlan:
        """Returns a plan with what its missing evaluations take."""
        return MethodPlan(
            method=method,
            num_planned=len(planned),
            num_missing=len(missing),
            seconds=math.fsum(self.durations.get(name, 0.0) for name, _ in missing),
            unknown=frozenset(self.shown.get(name, name) for name, _ in missing if name not in self.durations),
            num_trainings=num_trainings,
        )


def _short_names(cases: Sequence[CaseSpec]) -> dict[str, str]:
    """Returns `quick/relu32` for `quick/digits.relu32`, where no other case is called so."""
    short = {spec.names[-1]: f"{spec.suite}/{spec.names[0]}" for spec in cases}
    counts = Counter(short.values())
    return {name: own if counts[own] == 1 else name for name, own in short.items()}


def _durations(rows: Sequence[EvaluationRow]) -> dict[str, float]:
    """Returns the mean seconds that an evaluation of a case took, by case."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        if row.payload is not None:
            head, _ = row.header()
            for name in row.case.names:
                seconds.setdefault(name, []).append(head["compile_seconds"] + head["wall_seconds"])
    return {name: sum(values) / len(values) for name, values in seconds.items()}
