"""What a run adds to its store besides evaluations: the experiment, its members, the states of its commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from lobench.core.case import CaseInfo
from lobench.core.experiment import CommandState, Member, members
from lobench.core.planner import CommandId, Plan
from lobench.engine.chief.commands import CommandRuns
from lobench.engine.chief.contract import ERRORS, Ending
from lobench.engine.config.experiment_files import ExperimentFile
from lobench.engine.config.origin import revision_of
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.programs import Expected
from lobench.engine.store.provenance import versions_here
from lobench.hookspecs import CheckpointReader
from lobench.sessions.roster import Roster

__all__ = ["ExperimentRecord"]

_WITHOUT: tuple[CommandState, ...] = ("failed", "infeasible")  # they bring no checkpoint


class ExperimentRecord:
    """A run's guest in the chief: it is there from the opening of the ledger to its closing.

    Args:
      retry_errors: Whether commands that failed are run again, and evaluations that ended in an error.
      is_elsewhere: Whether workers may be on other machines.

    Attributes:
      form: Id of the experiment's form in the ledger.
      num_done, num_planned: Evaluations of the methods, at the end.
      trials: State of each session of a command.
    """

    def __init__(self, file: ExperimentFile, roster: Roster, *, retry_errors: bool, is_elsewhere: bool) -> None:
        self._file, self._roster, self._retry_errors = file, roster, retry_errors
        self._expected = Expected(is_elsewhere=is_elsewhere).all()
        self._commands: CommandRuns | None = None
        self._ledger: Ledger | None = None
        self.form = self.num_done = self.num_planned = 0

    @property
    def trials(self) -> Mapping[str, CommandState]:
        states = self._commands.states if self._commands is not None else {}
        return {f"{command.method}-{command.session}": state for command, state in states.items()}

    def begin(self, ledger: Ledger, readers: Mapping[str, CheckpointReader], say: Callable[[str], None]) -> CommandRuns:
        """Records the experiment, and returns its commands; `say` is told what people should know of them."""
        self._ledger = ledger
        experiment = self._file.experiment
        revision = revision_of(self._file.path.parent)
        states = self._known_states(ledger)
        self.form = ledger.record_experiment(
            experiment.name, self._file.text, revision=revision, versions=versions_here()
        )
        self._commands = CommandRuns(
            self._roster.runs, readers, states=states, record=lambda row: ledger.set_trial(self.form, row), say=say
        )
        return self._commands

    def _known_states(self, ledger: Ledger) -> dict[CommandId, CommandState]:
        """Returns what became of the commands in any form of any experiment: their folder says which they are."""
        trials = [row for form in ledger.experiments() for row in ledger.trials(form.id)]
        by_folder = {row.parameters.get("folder"): row.state for row in trials}
        states: dict[CommandId, CommandState] = {}
        for run in self._roster.runs:
            state: CommandState = by_folder.get(run.name, "waiting")
            is_retried = self._retry_errors and state in ("failed", "infeasible")
            states[run.id] = "waiting" if is_retried else state
        return states

    def end(self, ledger: Ledger, ending: Ending) -> None:
        """Makes what is recorded the experiment's, and counts it."""
        planned = list(self._members(ending))
        history = ledger.history(ending.programs)
        plan = Plan(history)
        rows = [
            replace(one, evaluation=part)
            for one in planned
            for part in plan.parts(one.evaluation)
            if one.session in part.block.seeds
        ]
        ledger.add_memberships(self.form, rows, programs=ending.programs)
        wanted = {part for one in planned for part in plan.parts(one.evaluation)}
        self.num_done = len(wanted & history.recorded)
        self.num_planned = len(wanted) + self._num_expected(ending)

    def _num_expected(self, ending: Ending) -> int:
        """Returns how many evaluations the commands bring that have no checkpoint yet: of one checkpoint each."""
        cases = next(iter(ending.cases.values()), ())
        begun = {(method.name, trial) for one in ending.subjects for method, trial in self._roster.of(one)}
        states = self._commands.states if self._commands is not None else {}
        waiting = [
            run for run, state in states.items() if state not in _WITHOUT and (run.method, run.session) not in begun
        ]
        return len(waiting) * sum(len(case.blocks()) for case in cases)

    def _members(self, ending: Ending) -> Iterator[Member]:
        sessions = self._file.experiment.sessions
        for subject in ending.subjects:
            for method, trial in self._roster.of(subject):
                cases = ending.cases.get(subject.variant.key, ())
                yield from members(method.name, subject.sha256, cases, sessions, trial=trial)

    def plan(self, cases: Sequence[CaseInfo]) -> tuple[Mapping[str, int], Sequence[EvaluationRow]]:
        """Returns how many evaluations each method has on these cases, by its title, and which of them are there."""
        assert self._ledger is not None, "a run that began"
        programs = self._ledger.accepted_programs(self._expected)
        seeds = {case.identity: {seed for block in case.blocks() for seed in block.seeds} for case in cases}
        rows = [
            row
            for row in self._ledger.evaluations()
            if row.key.program_version in programs
            and not (self._retry_errors and row.outcome in ERRORS)
            and seeds.get(row.key.case_identity, set()).issuperset(row.key.seed_block.seeds)
        ]
        return self._roster.planned(cases), rows
