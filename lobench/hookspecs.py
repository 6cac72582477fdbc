"""Hook specifications, typed, with their contracts.

Declaring hooks return `Declaration`s: a name and a "module:attribute" factory. They are cheap, and import neither jax
nor the factory's module. Observing hooks get one frozen event. Their return values are ignored, and an exception in one
of them is reported with the plugin's name and does not affect the others.

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
    """An object that a plugin provides.

    Example:
      Declaration(name="ratio", factory="mypackage.metrics:ratio", metric_directions={"ratio": "min"})

    Attributes:
      name: Name on the command line and in gin. If two plugins declare one name, the error names both.
      factory: "module:attribute", imported on first use; ":attribute" is in the declaring module.
      summary: One line for `lobench list`.
      metric_directions: For a metric, "min" or "max" by the name of each metric that it returns. A metric without a
        direction is stored and shown, but has no best value, no score and no bold.

    >>> Declaration(name="npz", factory="my_package.readers:NpzReader", summary="Arrays by name.").metric_directions
    {}
    """

    name: str
    factory: str
    summary: str = ""
    metric_directions: Mapping[str, str] = field(default_factory=dict, hash=False)


# Events, in the order of a subject's evaluation. All are immutable.


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfSubject:
    """Base of all events.

    Attributes:
      subject: Subject of the event: a checkpoint, or an optimizer without theta (`subject.kind`).
    """

    subject: Subject

    @property
    def checkpoint(self) -> Checkpoint:
        """The subject as a checkpoint; see `Subject.checkpoint` for an optimizer without theta."""
        return self.subject.checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen(_OfSubject):
    """A checkpoint was copied and read, or an optimizer without theta was given.

    >>> CheckpointSeen(subject=Subject.of_optimizer("adam()")).subject.label
    'adam()'
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFinished(_OfSubject):
    """One seed block of one case reached its outcome for one sighting of a subject.

    Attributes:
      case: Evaluated case.
      seed_block: Seeds that were trained together.
      outcome: Outcome of the evaluation.
      curves: Curves of the seeds. None if the outcome gave none (error, timeout, poisoned, ...).
      message: One line on a failure; empty if there was none.

    >>> subject, case = Subject.of_optimizer("adam()"), lobench.open_results("results").rows[0].case
    >>> block, outcome = SeedBlock(start=0, size=3), lobench.Outcome.ERROR
    >>> event = EvaluationFinished(subject=subject, case=case, seed_block=block, outcome=outcome, message="it hung")
    >>> event.curves is None
    True
    """

    case: CaseInfo
    seed_block: SeedBlock
    outcome: Outcome
    curves: Curves | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFinished(_OfSubject):
    """Every evaluation of a subject has an outcome.

    Attributes:
      evaluations: All evaluations of the subject, in a fixed order.

    >>> CheckpointFinished(subject=Subject.of_optimizer("adam()"), evaluations=()).evaluations
    ()
    """

    evaluations: tuple[EvaluationFinished, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRaised(_OfSubject):
    """A checkpoint is worse than an earlier one, or the run's trend has ended.

    Attributes:
      kind: Kind of the alarm, such as `regress`.
      reference: Earlier checkpoint to which it was compared.
      value: Harm in score; for a trend, score per 1,000 outer steps.
      bound: One-sided confidence bound of the value, which decided.
      cases: Cases that show it, the worst first; () if it is for all cases together.
      message: One line for people.

    >>> first = Subject.of_checkpoint(Checkpoint(uri="theta_3.npz", sha256="1" * 64, outer_step=3))
    >>> last = Subject.of_checkpoint(Checkpoint(uri="theta_9.npz", sha256="2" * 64, outer_step=9))
    >>> event = AlarmRaised(subject=last, kind="regress", reference=first, value=0.3, bound=0.1, message="worse")
    >>> event.reference.outer_step
    3
    """

    kind: str
    reference: Subject
    value: float
    bound: float
    cases: tuple[CaseInfo, ...] = ()
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A sink's input: an event, its sequence number, and the run to which its values belong.

    Attributes:
      sequence: Number of the delivery, unique in the store and equal whenever the delivery is repeated. Results have
        1, 2, ... in the order of the ledger. Alarms may come at any time and have -1, -2, ...: a sink that skips
        deliveries not above its last number gets no alarms, but loses no results.
      event: The event.
      run: Name of the run, as in tables: for an experiment a method, or a session of a command (`mine-0`); for a watch
        the run's folder, or "" if the watched folder contains the checkpoints itself. A sink writes the numbers of each
        run and generation (`event.checkpoint.generation`) separately, because two runs have equal outer steps.

    >>> Delivery(sequence=1, event=CheckpointFinished(subject=Subject.of_optimizer("adam()"), evaluations=())).run
    ''
    """

    sequence: int
    event: EvaluationFinished | CheckpointFinished | AlarmRaised
    run: str = ""


# Return types of the factories of the declaring hooks.


class CheckpointReader(Protocol):
    """Reader of one checkpoint format. Factory: `factory(allow_pickle: bool) -> CheckpointReader`.

    Attributes:
      in_place: Whether the format is written in place. If so, a source takes a checkpoint only after its size and mtime
        were unchanged over two polls, or if it has a `.done` file. False if a rename or a commit marker completes it.

    >>> class TextReader:
    ...     def recognises(self, path):
    ...         return path.suffix == ".txt"
    ...
    ...     def is_complete(self, path):
    ...         return path.exists()
    ...
    ...     def read(self, path):
    ...         return CheckpointContent(leaves={"w": np.loadtxt(path)})
    >>> Path("theta.txt").write_text("1.5")
    3
    >>> TextReader().read(Path("theta.txt")).leaves["w"]
    array(1.5)
    """

    in_place: bool

    def recognises(self, path: epath.Path) -> bool:
        """Returns whether this reader is for `path`, judging only by its name and kind (file or directory)."""

    def is_complete(self, path: epath.Path) -> bool:
        """Returns whether the format's marks of completeness exist. It is cheap and reads no arrays.

        A trainer may remove a checkpoint at any time. A removed checkpoint is not complete.

        Raises:
          OSError: The path cannot be accessed, because of permissions or a network disk that does not answer. It is
            retried.
        """

    def read(self, path: epath.Path) -> CheckpointContent:
        """Returns the leaves (theta's, and possibly others) with the outer step and generation in the content.

        Raises:
          CheckpointError: The checkpoint is truncated or not of this format, or a leaf is neither text nor an array.
          PickleRefused: The checkpoint is a pickle, and pickles are not allowed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """Arguments with which a checkpoint source is made.

    Attributes:
      location: The watched location.
      readers: Checkpoint readers by name, in order of preference.

    >>> SourceContext(location="runs/today", readers={}).location
    'runs/today'
    """

    location: str
    readers: Mapping[str, CheckpointReader]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Reason why a source does not take a path that looks like a checkpoint.

    Attributes:
      reason: Text for people.
      is_awaited: Whether it may still become a checkpoint, so that a watch waits for it before it ends. If False, it is
        ignored.

    >>> Unfinished(reason="the index names a file that is missing", is_awaited=True).is_awaited
    True
    """

    reason: str
    is_awaited: bool = False

    def __str__(self) -> str:
        return self.reason


class CheckpointSource(Protocol):
    """Source of checkpoints. Factory: `factory(context: SourceContext) -> CheckpointSource`.

    Attributes:
      poll_seconds: Seconds that the chief waits between two polls.

    >>> load_plugins().declarations("lobench_checkpoint_sources").keys() >= {"directory"}
    True
    """

    poll_seconds: float

    def poll(self) -> Sequence[SeenCheckpoint]:
        """Returns the checkpoints that became complete since the last poll, oldest first.

        No checkpoint is returned twice.

        It must not raise if the location does not exist yet, but return nothing.
        """

    def pending(self) -> Mapping[str, Unfinished]:
        """Returns the incomplete checkpoints that the last poll found, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """Arguments with which a result sink is made.

    Attributes:
      store: Folder of the store. A sink may keep files in it.
      argument: Text after `NAME:` on the command line; "" if omitted.
      name: Name of the watch.
      suites: Suites of the watch, as absolute paths of folders and `.gin` files.

    >>> SinkContext(store=Path("results"), argument="project").suites
    ()
    """

    store: Path
    argument: str = ""
    name: str = ""
    suites: tuple[str, ...] = ()

    @property
    def given_run(self) -> tuple[str, str]:
        """Place and id of an existing run, from an argument `[PLACE,]run=ID`; otherwise the argument and "".

        >>> SinkContext(store=Path("s"), argument="mlruns,run=3f2a").given_run
        ('mlruns', '3f2a')
        """
        location, _, last = self.argument.rpartition(",")
        return (location, last.removeprefix("run=")) if last.startswith("run=") else (self.argument, "")


class ResultSink(Protocol):
    """Destination of results. Factory: `factory(context: SinkContext) -> ResultSink`.

    The progress of a sink is stored under its address, and under its attribute `destination` (str) if it has one: an id
    stored with the written data, so that a removed or replaced destination gets everything again. If its attribute
    `keeps_first` is true, the sink writes a number only once for each run, generation and outer step. The caller
    reports later numbers that the sink therefore ignores. A sink whose attribute `shows_state` is true shows the
    present state of the store, such as a page. The state also changes without a result: a trainer begins again, or
    bindings go back to former ones. So `deliver` is also called with no deliveries, at the start, every 30 seconds
    while nothing is delivered, and at the end.

    >>> "report" in load_plugins().declarations("lobench_result_sinks")
    True
    """

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Writes deliveries, which come in ledger order. They must be durable when it returns.

        Delivery is at least once: after a crash the same deliveries come again, so writing a delivery twice must have
        the same effect as writing it once. An exception is reported, and the same deliveries are tried again later.
        Other sinks are not affected.
        """

    def close(self) -> None:
        """Releases the sink's resources."""


class SelectionStrategy(Protocol):
    """Strategy that picks the successor of a member of a population.

    Factory: `factory(argument: str) -> SelectionStrategy`. It is a pure function of its arguments.

    Attributes:
      pool: Members that an asynchronous controller passes to it in addition to the initiator; see `Pool`.

    >>> "exploit_explore" in load_plugins().declarations("lobench_selection_strategies")
    True
    """

    @property
    def pool(self) -> Pool: ...

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        """Returns the parent of the initiator's child, and the member that it was preferred to, as ids or None.

        The result does not depend on the order of the population. An infeasible member is never the parent. A member
        with a value of minus infinity (which replaces NaN) never succeeds an initiator without one. The worst member
        succeeds only itself, and on average parents are no worse than the population.

        Args:
          population: The initiator and the others, each once.
          initiator: Id of the member whose place is to be filled.
          seed: The only source of randomness.
        """


class Executor(Protocol):
    """Backend that runs workers.

    Factory: `factory(config: WorkerConfig, wakeup: Connection | None) -> Executor`.

    It transports bytes in both directions. The caller handles leases, deadlines and attempts; an executor never retries
    a job.

    >>> sorted(load_plugins().declarations("lobench_executors").keys() & {"inline", "local"})
    ['inline', 'local']
    """

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        """Starts a worker. `wait` then returns a message from it, or that it died."""

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        """Sends a message to a worker. Messages arrive in the order of the calls. A worker that died gets none.

        Args:
          worker: Number of the worker.
          message: The message.
          files: Paths contained in the message. A worker on another machine finds the files by their names only, so a
            name must determine the content (as a hash does). A file that a machine already has is not sent again.
        """

    def kill(self, worker: int) -> None:
        """Kills a worker at once. `wait` returns nothing more about it."""

    def wait(self, timeout: float) -> Sequence[ExecutorEvent]:
        """Returns messages of workers and events of the executor, waiting at most `timeout` seconds."""

    def close(self) -> None:
        """Ends all workers."""


class HookSpecs:
    """Specifications of all hooks.

    Example:
      def lobench_metrics():
          return [Declaration(name="ratio", factory="mypackage.metrics:ratio")]
    """

    @hookspec
    def lobench_gin_modules(self) -> Iterable[Declaration]:
        """Declares modules whose import registers gin configurables (factory: "module:" with nothing after the colon).

        `lobench list tasks` shows the names in the `__all__` of a module whose own name ends in `tasks`, and the same
        for `optimizers` and `schedules`. Of a module with another name, it shows the classes of tasks, of families and
        of learned optimizers.

        A module with very many names may register each on first use in a gin file. It then has an attribute
        `lobench_on_use` with `names()`, which returns all names; `find(selector)`, which registers one and returns its
        whole name, or None; and `summary`, a line for `lobench list`. If it also has `optimizers()`, functions by name,
        `lobench list -v` shows them.
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

        The factory is called with its gin bindings: `NAME.sampler = "tpe"` gives `factory(sampler="tpe")`.
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
        """Declares metrics: `factory(curves: Curves) -> Mapping[str, Sequence[float]]`, one value per seed.

        They are computed for every seed block on the machine of its evaluation, and stored, shown and delivered like
        the task's own metrics. Names are `<split>/<metric>`; a name without "/" is put below the declaration's name.
        `Declaration.metric_directions` gives the direction of each. An exception is reported with the evaluation, and
        changes nothing else.

        Example:
          def ratio(curves):
              return {"ratio": [last / first for first, last in zip(curves.first("train/loss"),
              curves.final("train/loss"))]}
        """
        return ()

    @hookspec
    def lobench_report_sections(self) -> Iterable[Declaration]:
        """Declares sections of the report: `factory(summary: Summary) -> list[Section]`, below the built-in charts.

        `lobench.extend` has `Section`, `Figure`, `Chart` and `Series`. If one raises, the page shows the error in its
        place.
        """
        return ()

    @hookspec
    def lobench_import_formats(self) -> Iterable[Declaration]:
        """Declares formats of `lobench import`: `factory() -> FileKind` (`lobench.extend`).

        Their `recognises` is called before the built-in formats are tried. `--kind` takes the declaration's name.
        """
        return ()

    @hookspec
    def lobench_cli_commands(self) -> Iterable[Declaration]:
        """Declares click commands of `lobench`."""
        return ()

    @hookspec
    def lobench_checkpoint_seen(self, event: CheckpointSeen) -> None:
        """Called after a checkpoint was copied and read."""

    @hookspec
    def lobench_evaluation_finished(self, event: EvaluationFinished) -> None:
        """Called after an outcome is durable."""

    @hookspec
    def lobench_checkpoint_finished(self, event: CheckpointFinished) -> None:
        """Called after every evaluation of a checkpoint has an outcome."""

    @hookspec
    def lobench_alarm_raised(self, event: AlarmRaised) -> None:
        """Called after an alarm along a run. After a kill the same alarm may come again."""
