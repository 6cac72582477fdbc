"""What a run adds to its store besides evaluations: the experiment, its members, the states of its commands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lobench.core.experiment import CommandState, Member, Method, members
from lobench.core.planner import CommandId, Plan
from lobench.core.subject import Given, Subject
from lobench.engine.chief.commands import CommandRun, CommandRuns
from lobench.engine.chief.contract import Ending
from lobench.engine.config.experiment_files import ExperimentFile
from lobench.engine.config.origin import revision_of
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.provenance import versions_here
from lobench.hookspecs import CheckpointReader

__all__ = ["ExperimentRecord"]

_HASHED = 8


class ExperimentRecord:
    """A run's guest in the chief: it is there from the opening of the ledger to its closing.

    Args:
      methods: Those that are run.
      given: Subjects of those that are optimizers and checkpoints, by name.
      say: Told what people should know.
      retry_errors: Whether commands that failed are run again.

    Attributes:
      form: Id of the experiment's form in the ledger.
      num_done, num_planned: Evaluations of the methods, at the end.
      trials: State of each session of a command.
    """

    def __init__(
        self,
        file: ExperimentFile,
        methods: Sequence[Method],
        given: Mapping[str, Given],
        store: Path,
        say: Callable[[str], None],
        *,
        retry_errors: bool,
    ) -> None:
        self._file, self._given, self._say, self._retry_errors = file, given, say, retry_errors
        sessions = file.experiment.sessions or range(1)
        self._runs = [
            CommandRun(
                method=method,
                session=session,
                folder=_folder(store, method) / str(session),
                runs_in=file.path.parent,
                log=store.absolute() / "logs" / f"{method.name}-{session}",
            )
            for method in methods
            if method.kind == "command"
            for session in sessions
        ]
        self._commands: CommandRuns | None = None
        self.form = self.num_done = self.num_planned = 0

    @property
    def trials(self) -> Mapping[str, CommandState]:
        states = self._commands.states if self._commands is not None else {}
        return {f"{command.method}-{command.session}": state for command, state in states.items()}

    def begin(self, ledger: Ledger, readers: Mapping[str, CheckpointReader]) -> CommandRuns:
        """Records the experiment, and returns its commands."""
        experiment = self._file.experiment
        revision = revision_of(self._file.path.parent)
        states = self._known_states(ledger)
        self.form = ledger.record_experiment(
            experiment.name, self._file.text, revision=revision, versions=versions_here()
        )
        self._commands = CommandRuns(
            self._runs, readers, states=states, record=lambda row: ledger.set_trial(self.form, row), say=self._say
        )
        return self._commands

    def _known_states(self, ledger: Ledger) -> dict[CommandId, CommandState]:
        """Returns what became of the commands in any form of any experiment: their folder says which they are."""
        trials = [row for form in ledger.experiments() for row in ledger.trials(form.id)]
        by_folder = {row.parameters.get("folder"): row.state for row in trials}
        states: dict[CommandId, CommandState] = {}
        for run in self._runs:
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
        self.num_planned, self.num_done = len(wanted), len(wanted & history.recorded)

    def _members(self, ending: Ending) -> Iterator[Member]:
        sessions = self._file.experiment.sessions
        for name, trial, subject in self._subjects(ending):
            cases = ending.cases.get(subject.variant.key, ())
            yield from members(name, subject.sha256, cases, sessions, trial=trial)

    def _subjects(self, ending: Ending) -> Iterator[tuple[str, int, Subject]]:
        """Yields what each method's subjects turned out to be: a method's name, the trial, the subject."""
        for name, given in self._given.items():
            for subject in ending.subjects:
                is_it = subject.sha256 == given.sha256 if isinstance(given, Subject) else subject.uri == given.uri
                if is_it and subject.variant == given.variant:
                    yield name, 0, subject
        for run in self._runs:
            for subject in ending.subjects:
                if Path(subject.uri).is_relative_to(run.folder):
                    yield run.method.name, run.session, subject


def _folder(store: Path, method: Method) -> Path:
    """Returns the folder of a method's sessions: a changed method has another one."""
    digest = hashlib.sha256(method.subject.encode()).hexdigest()[:_HASHED]
    return store.absolute() / "commands" / f"{method.name}-{digest}"
