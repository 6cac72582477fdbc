"""Hook specifications, typed, with their contracts.

Declaring hooks return `Declaration`s: a name and a "module:attribute" factory. They are cheap, and import neither jax
nor the factory's module. Observing hooks get one frozen event; what they return is ignored, and an exception in one is
reported with the plugin's name and silences nobody.

Plugins register through entry points in the group "lobench", or by defining `lobench_*` functions in a suite's
conftest.py (a plain `def lobench_...` counts; `@hookimpl` is needed only for options such as `trylast`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pluggy

from lobench.core.admission import AdmissionPolicy
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint, CheckpointContent, SeenCheckpoint
from lobench.core.executor_events import ExecutorCapacity, ExecutorEvent, Notice, WorkerExited, WorkerMessage
from lobench.core.population.population import Member, Pool, Selection
from lobench.core.result import Curves, Outcome
from lobench.core.search.search import SearchStrategy
from lobench.core.subject import Subject

if TYPE_CHECKING:
    from etils import epath

__all__ = [
    "AdmissionPolicy",
    "AlarmRaised",
    "CheckpointFinished",
    "CheckpointReader",
    "CheckpointSeen",
    "CheckpointSource",
    "Declaration",
    "Delivery",
    "EvaluationFinished",
    "Executor",
    "ExecutorCapacity",
    "ExecutorEvent",
    "Notice",
    "ResultSink",
    "SearchStrategy",
    "SelectionStrategy",
    "SinkContext",
    "SourceContext",
    "Unfinished",
    "WorkerExited",
    "WorkerMessage",
    "hookimpl",
    "hookspec",
]

hookspec = pluggy.HookspecMarker("lobench")
hookimpl = pluggy.HookimplMarker("lobench")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A thing that a plugin provides.

    Attributes:
      name: How the command line and gin name it; two plugins with one name are an error that names both.
      factory: "module:attribute", imported when it is used and not before; ":attribute" is in the declaring module.
      summary: One line for `lobench list`.
      metric_directions: Of a metric's declaration: "min" or "max" by the name of each metric that it returns. One
        without it is stored and shown, and has no best value, no score and no bold.
    """

    name: str
    factory: str
    summary: str = ""
    metric_directions: Mapping[str, str] = field(default_factory=dict, hash=False)


# Events, in the order in which a subject meets them. All are immutable.


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfSubject:
    """What every event has.

    Attributes:
      subject: Whom it is about: a checkpoint, or an optimizer without theta (`subject.kind`).
    """

    subject: Subject

    @property
    def checkpoint(self) -> Checkpoint:
        """The subject as a checkpoint; see `Subject.checkpoint` for an optimizer without theta."""
        return self.subject.checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen(_OfSubject):
    """A checkpoint was copied and read, or an optimizer without theta was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFinished(_OfSubject):
    """One seed block of one case reached its outcome for one sighting of a subject.

    Attributes:
      curves: None where the outcome gave none (error, timeout, poisoned, ...).
      message: One line on what went wrong; empty where nothing did.
    """

    case: CaseInfo
    seed_block: SeedBlock
    outcome: Outcome
    curves: Curves | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFinished(_OfSubject):
    """Every evaluation of a subject has an outcome; all of them, in a fixed order."""

    evaluations: tuple[EvaluationFinished, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRaised(_OfSubject):
    """A checkpoint is worse than an earlier one, or the run's trend has ended.

    Attributes:
      kind: What was tested, for example `regress`.
      reference: The earlier checkpoint that it was held against.
      value: The harm in score; of a trend, score per 1,000 outer steps.
      bound: The one-sided confidence bound of the value that decided.
      cases: Those that tell, the worst first; () where it is of all.
      message: One line for people.
    """

    kind: str
    reference: Subject
    value: float
    bound: float
    cases: tuple[CaseInfo, ...] = ()
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a sink gets: an event, its number, and the run that its numbers are of.

    Attributes:
      sequence: Number of the delivery, the same whenever it comes again; no other delivery of the store has it. Results
        have 1, 2, ... in the order of the ledger, without end. Alarms, which come beside them at any time, have -1, -2,
        ...: a sink that skips what is not above the last number gets no alarms, and loses no results.
      run: Name of the run, as tables name it: of an experiment a method, or a session of a command (`mine-0`); of a
        watch the run's folder, and "" where the watched folder holds checkpoints itself. A sink writes the numbers of
        each run and generation (`event.checkpoint.generation`) apart from all others: two runs have equal outer steps.
    """

    sequence: int
    event: EvaluationFinished | CheckpointFinished | AlarmRaised
    run: str = ""


# What the factories of the declaring hooks must return.


class CheckpointReader(Protocol):
    """Loads one checkpoint format. Factory: `factory(allow_pickle: bool) -> CheckpointReader`.

    Attributes:
      in_place: True where the format is written in place, so that a source must see size and mtime unchanged over two
        polls, or a `.done` file beside it; False where a rename or a commit marker completes it.
    """

    in_place: bool

    def recognises(self, path: epath.Path) -> bool:
        """Says by name and kind (file or directory) alone whether this reader is for `path`."""

    def is_complete(self, path: epath.Path) -> bool:
        """Says whether the marks of completeness that this format writes are there; cheap, reads no arrays.

        A trainer may remove a checkpoint at any moment: what is gone is not complete.

        Raises:
          OSError: it cannot be looked at: no permission, a network disk that does not answer. It is looked at again.
        """

    def read(self, path: epath.Path) -> CheckpointContent:
        """Returns the leaves, theta's or more, and what the content says of outer step and generation.

        Raises:
          CheckpointError: truncated, not this format, a leaf that is neither text nor an array; PickleRefused.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """What a source is made from: the watched location and the readers by name, in order of preference."""

    location: str
    readers: Mapping[str, CheckpointReader]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Why a source does not take what looks like a checkpoint.

    Attributes:
      reason: For people.
      is_awaited: It may still become one, so that a run that ends waits for it; False: it is given up.
    """

    reason: str
    is_awaited: bool = False

    def __str__(self) -> str:
        return self.reason


class CheckpointSource(Protocol):
    """Finds checkpoints. Factory: `factory(context: SourceContext) -> CheckpointSource`.

    Attributes:
      poll_seconds: How long the chief waits between two polls.
    """

    poll_seconds: float

    def poll(self) -> Sequence[SeenCheckpoint]:
        """Returns the checkpoints that became complete since the last poll, oldest first; never one twice.

        Must not raise for a location that does not exist yet: that is an empty poll.
        """

    def pending(self) -> Mapping[str, Unfinished]:
        """Returns by its path what the last poll met that looks like a checkpoint and is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What a sink is made from.

    Attributes:
      store: Folder of the store; a sink may keep files below it.
      argument: What followed `NAME:` on the command line, or "".
      name: Name of the watch.
      suites: What the watch evaluates on: folders and `.gin` files, whole paths.
    """

    store: Path
    argument: str = ""
    name: str = ""
    suites: tuple[str, ...] = ()


class ResultSink(Protocol):
    """Takes results. Factory: `factory(context: SinkContext) -> ResultSink`.

    How far a sink came is remembered under its address, and under its attribute `destination` (str) where it has one:
    an id that goes with what was written, so that a destination which was removed, or is another one, gets everything.
    One whose attribute `keeps_first` is true writes a number once for each run, generation and outer step: what comes
    for the same ones later, and is therefore not written, is said by whoever delivers.
    """

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Takes deliveries in ledger order; durable when it returns.

        At least once: after a crash the same deliveries come again, so taking one twice must equal taking it once.
        An exception is reported, and the same deliveries are tried again later; other sinks go on.
        """

    def close(self) -> None:
        """Releases what the sink holds."""


class SelectionStrategy(Protocol):
    """Picks who succeeds a member of a population. Factory: `factory(argument: str) -> SelectionStrategy`. Pure.

    Attributes:
      pool: Whom an asynchronous controller shows it beside the initiator; see `Pool`.
    """

    @property
    def pool(self) -> Pool: ...

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        """Returns parent and other of the initiator's child; ids, or None.

        The same whatever the order of the population. An infeasible member is never the parent, and one with a value of
        minus infinity (which is what NaN becomes) never succeeds an initiator without one.

        Args:
          population: The initiator and the others, each once.
          initiator: Id of the member whose place is to be filled.
          seed: All the chance that there is.
        """


class Executor(Protocol):
    """Runs workers somewhere. Factory: `factory(config: WorkerConfig, wakeup: Connection | None) -> Executor`.

    It carries bytes both ways. Leases, deadlines and attempts are the caller's; an executor retries nothing.
    """

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        """Starts a worker, which then says something or is said to have died."""

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        """Sends a message to a worker, which gets them in the order of the calls; one that died gets nothing.

        Args:
          files: Paths that the message names. A worker on another machine finds them under their names alone, so that
            a name says the content (a hash of it, say), and what a machine has it does not get again.
        """

    def kill(self, worker: int) -> None:
        """Ends a worker at once; it is not heard of again."""

    def wait(self, timeout: float) -> Sequence[ExecutorEvent]:
        """Returns what workers said, and what the executor says for itself, `timeout` seconds later at most."""

    def close(self) -> None:
        """Ends all workers."""


class HookSpecs:
    """The specifications that plugins implement; registered with the manager."""

    @hookspec
    def lobench_gin_modules(self) -> Iterable[Declaration]:
        """Declares modules whose import registers gin configurables (factory: "module:" and nothing after).

        A module with very many names may register them when a gin file says one: its attribute `lobench_on_use` has
        `names()`, all of them, `find(selector)`, which registers one and returns its whole name, or None, and
        `summary`, a line for `lobench list`; where it has `optimizers()`, functions by name, `lobench list -v` shows
        them too.
        """
        return ()

    @hookspec
    def lobench_checkpoint_sources(self) -> Iterable[Declaration]:
        """Declares checkpoint sources (`CheckpointSource`)."""
        return ()

    @hookspec
    def lobench_checkpoint_readers(self) -> Iterable[Declaration]:
        """Declares checkpoint readers (`CheckpointReader`)."""
        return ()

    @hookspec
    def lobench_result_sinks(self) -> Iterable[Declaration]:
        """Declares result sinks (`ResultSink`)."""
        return ()

    @hookspec
    def lobench_selection_strategies(self) -> Iterable[Declaration]:
        """Declares strategies that pick members of a population (`SelectionStrategy`)."""
        return ()

    @hookspec
    def lobench_search_strategies(self) -> Iterable[Declaration]:
        """Declares searches over a method's settings (`SearchStrategy`): `Method.search = @NAME()`.

        The factory is called with what gin binds of it: `NAME.sampler = "tpe"` is `factory(sampler="tpe")`.
        """
        return ()

    @hookspec
    def lobench_admission_policies(self) -> Iterable[Declaration]:
        """Declares policies that pick which waiting checkpoints are evaluated (`AdmissionPolicy`)."""
        return ()

    @hookspec
    def lobench_executors(self) -> Iterable[Declaration]:
        """Declares executors (`Executor`), which run warm workers somewhere."""
        return ()

    @hookspec
    def lobench_metrics(self) -> Iterable[Declaration]:
        """Declares metrics: `factory(curves: Curves) -> Mapping[str, Sequence[float]]`, a value a seed.

        Computed for every seed block where it ran, and stored, shown and delivered like the task's own metrics. Names
        are `<split>/<metric>`; one without "/" goes below the declaration's name, and
        `Declaration.metric_directions` says which way each is better. What raises is named with the evaluation, and
        changes nothing else.
        """
        return ()

    @hookspec
    def lobench_report_sections(self) -> Iterable[Declaration]:
        """Declares sections of the report: `factory(summary: Summary) -> list[Section]`, below the charts that ship.

        `lobench.extend` has `Section`, `Figure`, `Chart` and `Series`. One that raises is named in its place, and the
        page has everything else.
        """
        return ()

    @hookspec
    def lobench_import_formats(self) -> Iterable[Declaration]:
        """Declares formats of `lobench import`: `factory() -> FileKind` (`lobench.extend`).

        Their `recognises` is asked before what ships is tried; the declaration's name is what `--kind` takes.
        """
        return ()

    @hookspec
    def lobench_cli_commands(self) -> Iterable[Declaration]:
        """Declares click commands of `lobench`."""
        return ()

    @hookspec
    def lobench_checkpoint_seen(self, event: CheckpointSeen) -> None:
        """Observes a checkpoint that was copied and read."""

    @hookspec
    def lobench_evaluation_finished(self, event: EvaluationFinished) -> None:
        """Observes an outcome, after it is durable."""

    @hookspec
    def lobench_checkpoint_finished(self, event: CheckpointFinished) -> None:
        """Observes that every evaluation of a checkpoint has an outcome."""

    @hookspec
    def lobench_alarm_raised(self, event: AlarmRaised) -> None:
        """Observes an alarm along a run; after a kill it may come again."""
