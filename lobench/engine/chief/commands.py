"""Meta-training commands that run alongside evaluations: their folders, states and checkpoints."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from lobench.core.checkpoint import SeenCheckpoint
from lobench.core.errors import ConfigError
from lobench.core.experiment import Method
from lobench.core.planner import CommandEnded, CommandId, LeaseCommand, Size
from lobench.core.search.search import TrialState
from lobench.core.subject import RequestedSubject, Subject
from lobench.engine.checkpoints.given import given_checkpoint
from lobench.engine.checkpoints.source import DirectorySource
from lobench.engine.chief.interfaces import Arrivals
from lobench.engine.chief.worker_link import WatchWorkers
from lobench.engine.group_files import open_to_group
from lobench.engine.store.experiments import TrialRow
from lobench.engine.whole_file import write_whole
from lobench.engine.workers.placeholders import command_words
from lobench.engine.workers.protocol import Command
from lobench.hookspecs import CheckpointReader, SourceContext

__all__ = ["CommandRun", "CommandRuns", "has_checkpoint"]

_END_STATES: tuple[TrialState, ...] = ("done", "failed", "infeasible", "stopped")
_NUM_POLLS = 2  # polls of a finished command's folder: a file is complete if two polls find it unchanged
_GIN_FILE = "method.gin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """One session (seed) of a method that is a command.

    Attributes:
      method: The method.
      session: Number of the session.
      folder: Absolute path of the folder for its checkpoints, or for a script's output.
      working_folder: Working directory: the folder of the experiment's file.
      log: Path of its output, without `.out` and `.err`.
    """

    method: Method
    session: int
    folder: Path
    working_folder: Path
    log: Path

    @property
    def id(self) -> CommandId:
        return CommandId(self.method.name, self.session)

    @property
    def name(self) -> str:
        """Path below the folder of all commands. It differs for different commands of the same name."""
        return "/".join(self.folder.parts[-2:])

    @property
    def is_script(self) -> bool:
        """Whether the command produces curves instead of checkpoints."""
        return self.method.kind == "script"

    @property
    def label(self) -> str:
        return f"{self.method.title}-{self.session}"

    @property
    def size(self) -> Size:
        return Size(self.method.num_cpus, self.method.num_gpus)

    @property
    def placeholder_values(self) -> Mapping[str, str]:
        """Values of the placeholders `{NAME}` in the command and in its curves path."""
        placeholders = {"session": str(self.session), "gin": str(self.folder.parent / _GIN_FILE)}
        return {**self.method.values, **placeholders, **dict.fromkeys(("folder", "out"), str(self.folder))}

    def message(self, lease: int) -> Command:
        command_line = command_words(shlex.split(self.method.command), self.placeholder_values)
        return Command(lease=lease, words=command_line, folder=str(self.working_folder), log=str(self.log))


def has_checkpoint(run: CommandRun, readers: Mapping[str, CheckpointReader]) -> bool:
    """Returns whether a command's folder contains a complete checkpoint."""
    return run.folder.is_dir() and bool(_poll_repeatedly(_source_of(run, readers)))


def _source_of(run: CommandRun, readers: Mapping[str, CheckpointReader]) -> DirectorySource:
    return DirectorySource(SourceContext(location=str(run.folder), readers=readers))


def _poll_repeatedly(source: DirectorySource) -> list[SeenCheckpoint]:
    return [checkpoint for _ in range(_NUM_POLLS) for checkpoint in source.poll()]


class CommandRuns(Arrivals):
    """States of the commands, which are recorded as trials in the ledger.

    Args:
      runs: All commands, including those that finished in an earlier run.
      readers: Checkpoint readers by name.
      states: States in the ledger.
      record: Called with each change of a state.
      log: Called with lines for the user.

    Attributes:
      edited_file: Returns, for a method, the name of a code file that was edited since the method was planned, or "".
      follows_edits: Whether a command with an edited file waits until the run begins again.
    """

    follows_edits = True
    edited_file: Callable[[Method], str] = staticmethod(lambda method: "")

    def __init__(
        self,
        runs: Iterable[CommandRun],
        readers: Mapping[str, CheckpointReader],
        *,
        states: Mapping[CommandId, TrialState] = MappingProxyType({}),
        record: Callable[[TrialRow], None] = lambda row: None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._runs: dict[CommandId, CommandRun] = {}
        self._readers, self._record, self._log = readers, record, log
        self._sources: dict[CommandId, DirectorySource] = {}
        self._announced_commands: set[CommandId] = set()  # returned by `waiting`
        self._drained_commands: set[CommandId] = set()  # done, with all checkpoints returned by `poll`
        self._refusal_reasons: dict[CommandId, str] = {}  # reason why cases cannot be bound for its checkpoint
        self._leases: dict[CommandId, tuple[int, int]] = {}  # worker and lease of running commands
        self._postponed_commands: set[CommandId] = set()  # waiting until the run begins again
        self._workers: WatchWorkers | None = None
        self.states: dict[CommandId, TrialState] = {}
        for run in runs:
            self.add_run(run, states.get(run.id, "waiting"))

    def add_run(self, run: CommandRun, recorded_state: TrialState = "waiting") -> None:
        """Adds a command, with its state in the ledger."""
        self._runs[run.id], self._sources[run.id] = run, _source_of(run, self._readers)
        self._set_state(run.id, recorded_state if recorded_state in _END_STATES else "waiting")

    @property
    def is_open(self) -> bool:
        """Whether another checkpoint may arrive."""
        return not all(map(self.is_drained, self.states))

    def is_drained(self, command: CommandId) -> bool:
        """Returns whether a command has ended, and all its checkpoints were returned."""
        state = self.states[command]
        return state in _END_STATES and (
            state != "done" or command in self._drained_commands or self._runs[command].is_script
        )

    @property
    def has_new(self) -> bool:
        """Whether `waiting` has new commands to return."""
        return any(
            state not in _END_STATES
            for command, state in self.states.items()
            if command not in self._announced_commands
        )

    def new_subjects(self) -> list[RequestedSubject]:
        """Returns new checkpoints as subjects, with the method's bindings and the folder's `config.gin`."""
        given_subjects: list[RequestedSubject] = []
        for run, seen_checkpoint in self.new_checkpoints():
            try:
                given_subjects.append(given_checkpoint(seen_checkpoint.uri, run.method.bindings, label=run.label))
            except ConfigError as error:
                self._refuse_checkpoint(seen_checkpoint.uri, str(error))
        return given_subjects

    def new_commands(self) -> list[tuple[tuple[CommandId, Size], ...]]:
        """Returns the commands that became ready since the last call, with the resources that each needs."""
        new_commands = [command for command in self.states if command not in self._announced_commands]
        commands_with_sizes = tuple(
            (command, self._runs[command].size) for command in new_commands if self.states[command] not in _END_STATES
        )
        self._announced_commands.update(new_commands)
        return [commands_with_sizes] if commands_with_sizes else []

    def postponing_file(self, command: CommandId) -> str:
        edited_file = self.edited_file(self._runs[command].method) if self.follows_edits else ""
        if edited_file:
            self._postponed_commands.add(command)
        return edited_file

    @property
    def has_postponed(self) -> bool:
        """Whether a command waits until the run begins again."""
        return bool(self._postponed_commands)

    def execute(self, action: LeaseCommand | CommandEnded, workers: WatchWorkers) -> None:
        if action.command in self._postponed_commands:
            return
        if isinstance(action, CommandEnded):
            self._leases.pop(action.command, None)
            self.end_command(action.command, action.message)
            return
        self._workers, self._leases[action.command] = workers, (action.worker, action.lease)
        is_stopped = self.states[action.command] == "stopped"
        workers.run_command(action.worker, self.begin_command(action.command, action.lease))
        if is_stopped:
            self.stop_command(action.command)

    def stop_command(self, command: CommandId) -> None:
        """Stops a running or waiting command whose results are no longer needed."""
        self._set_state(command, "stopped")
        if self._workers is not None and command in self._leases:
            self._workers.stop_command(*self._leases[command])

    def begin_command(self, command: CommandId, lease: int) -> Command:
        """Prepares a command's folder, and returns the message to its worker.

        A folder without a complete checkpoint is emptied first. Folders of scripts are kept, because a script may
        continue from its files.
        """
        run = self._runs[command]
        if not run.is_script and not has_checkpoint(run, self._readers):
            shutil.rmtree(run.folder, ignore_errors=True)
        run.folder.mkdir(parents=True, exist_ok=True)
        open_to_group(run.folder)
        write_whole(run.folder.parent / _GIN_FILE, "".join(f"{line}\n" for line in run.method.trainer_bindings))
        self._set_state(command, "running")
        message = run.message(lease)
        self._log(f"{run.label} starts: {shlex.join(message.words)}; output: {run.log}.out")
        return message

    def end_command(self, command: CommandId, problem: str) -> None:
        """Records the end of a command. `problem` is "" if its exit code was 0."""
        if self.states[command] == "stopped":
            return
        state: TrialState = "failed" if problem else "infeasible"
        if not problem and not (problem := self._refusal_reasons.get(command, "")):
            has_output, problem = self._output_and_problem(self._runs[command])
            state = "done" if has_output else "infeasible"
        self._record_state(command, state, problem)
        if state == "done" and (edited_file := self.edited_file(self._runs[command].method)):
            label = self._runs[command].label
            self._log(f"{edited_file} was edited while {label} ran: its result counts as one of the code at its start")

    def _output_and_problem(self, run: CommandRun) -> tuple[bool, str]:
        """Returns whether a command that exited with 0 wrote a checkpoint, and a message on missing ones."""
        checkpoints, notice = self._last_checkpoint(run)
        problem = "" if checkpoints else f"it wrote no checkpoint into {run.folder}"
        return bool(checkpoints), "; ".join(filter(None, (problem, notice)))

    def refuse_subject(self, subject: Subject, problem: str) -> bool:
        """Marks the command that wrote a subject's checkpoint as infeasible; returns whether there is such a command.

        A running command is marked once it has ended.
        """
        return self._refuse_checkpoint(subject.uri, problem)

    def _refuse_checkpoint(self, uri: str, problem: str) -> bool:
        for command, run in self._runs.items():
            if "://" not in uri and Path(uri).is_relative_to(run.folder):
                self._refusal_reasons.setdefault(command, problem)
                if self.states[command] == "done":
                    self._record_state(command, "infeasible", problem)
                return True
        return False

    def _record_state(self, command: CommandId, state: TrialState, problem: str) -> None:
        self._set_state(command, state)
        self._log(f"{self._runs[command].label} {state}{': ' if problem else ''}{problem}")

    def chief_ended(self) -> None:
        """Sets running commands back to waiting, because the chief ends and stops them."""
        for command, state in self.states.items():
            if state == "running":
                self._set_state(command, "waiting")

    def new_checkpoints(self) -> list[tuple[CommandRun, SeenCheckpoint]]:
        """Returns checkpoints to evaluate: each new one or, if the method asks for it, only the last at the end."""
        sightings_of_runs: list[tuple[CommandRun, SeenCheckpoint]] = []
        for command, run in self._runs.items():
            is_done = self.states[command] == "done"
            is_last_wanted = run.method.checkpoints == "last"
            if (
                run.is_script
                or command in self._drained_commands
                or not (is_done or (self.states[command] == "running" and not is_last_wanted))
            ):
                continue
            num_polls = _NUM_POLLS if is_done else 1
            new_checkpoints = (
                self._last_checkpoint(run)[0]
                if is_last_wanted
                else [checkpoint for _ in range(num_polls) for checkpoint in self._sources[command].poll()]
            )
            sightings_of_runs += [(run, checkpoint) for checkpoint in new_checkpoints]
            if is_done:
                self._drained_commands.add(command)
        return sightings_of_runs

    def _last_checkpoint(self, run: CommandRun) -> tuple[Sequence[SeenCheckpoint], str]:
        """Returns the last complete checkpoint of a command, and a message on incomplete ones."""
        source = _source_of(run, self._readers)
        checkpoints = _poll_repeatedly(source)
        unfinished_files = source.pending().items()  # incomplete for good: the command has ended
        notice = "; ".join(
            f"{path} is left out: it is half-written ({unfinished.reason.removeprefix('half-written: ')})"
            for path, unfinished in unfinished_files
        )
        return sorted(checkpoints, key=lambda checkpoint: -1 if checkpoint.index is None else checkpoint.index)[
            -1:
        ], notice

    def _set_state(self, command: CommandId, state: TrialState) -> None:
        if self.states.get(command) == state:
            return
        self.states[command] = state
        run = self._runs[command]
        parameters = {"folder": run.name}
        self._record(TrialRow(method=command.method, number=command.session, parameters=parameters, state=state))
