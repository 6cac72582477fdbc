"""Interfaces of the chief: options, arrivals, progress, and the summary of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lobench.core.case import CaseInfo
from lobench.core.labels import Labels
from lobench.core.planner import CommandEnded, CommandId, LeaseCommand, RemainingWork, Size
from lobench.core.result import Outcome
from lobench.core.settings_field import option
from lobench.core.subject import RequestedSubject, Subject
from lobench.engine.chief.worker_link import WatchWorkers
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import EvaluationFinished

__all__ = ["ERRORS", "Arrivals", "ForwardingProgress", "WatchOptions", "WatchPlan", "WatchProgress", "WatchSummary"]

# Outcomes that another attempt may change. A watch with any of them exits with code 3.
ERRORS = (Outcome.ERROR, Outcome.TIMEOUT, Outcome.OOM, Outcome.POISONED, Outcome.EXPIRED)


class WatchProgress:
    """Receives progress events of a watch. The base class ignores them; the command line displays them."""

    def log(self, line: str) -> None: ...

    def announce(self, line: str) -> None:
        """Reports the evaluations that are about to run. By default, logs the line."""
        self.log(line)

    def warn(self, line: str) -> None:
        """Reports stored results that are kept although something has changed. By default, logs the line."""
        self.log(line)

    def opened(
        self, open_reader: Callable[[], Ledger], suites: Sequence[str], is_of_run: Callable[[Subject], bool]
    ) -> None:
        """Called when the store is open. Call `open_reader` in each thread that reads it, until `closed`.

        Args:
          open_reader: Opens the store.
          suites: Suites of the watch.
          is_of_run: Returns whether a stored checkpoint is of the watched run. A store may hold other runs, too.
        """

    def closed(self) -> None: ...

    def cases_known(self, cases: Sequence[CaseInfo]) -> None: ...

    def subject_admitted(self, subject: Subject) -> None: ...

    def training_progressed(self, lease: int, step: int) -> None: ...

    def programs_planned(self, programs: Collection[str]) -> None:
        """Called before a program runs for the first time, with the keys of the programs that are still needed."""

    def evaluation_leased(self, lease: int, subject: Subject, case: CaseInfo) -> None: ...

    def given_up(self, lease: int) -> None:
        """Called when a lease ends without curves: its worker died or was ended, or its theta is gone."""

    def evaluation_finished(self, event: EvaluationFinished, lease: int | None) -> None: ...

    def curves_extended(self) -> None:
        """Called when a running script has appended to its curves."""

    def subject_finished(self, subject: Subject, left: RemainingWork) -> None:
        """Called when all evaluations of a subject are in the store."""


class ForwardingProgress(WatchProgress):
    """Progress that passes on all events that its class does not define.

    Args:
      inner: Progress that receives the events.
    """

    def __init__(self, inner: WatchProgress) -> None:
        self._inner = inner
        for name, event in vars(WatchProgress).items():
            if callable(event) and getattr(type(self), name) is event:
                setattr(self, name, getattr(inner, name))


class Arrivals(Protocol):
    """Subjects and commands that arrive while a chief runs: commands with their checkpoints, and trials of searches."""

    @property
    def is_open(self) -> bool:
        """Whether another subject may arrive."""

    @property
    def has_new(self) -> bool:
        """Whether `given` or `waiting` has something to return now. The chief then polls without a pause."""

    @property
    def subjects_noun(self) -> str:
        """Plural noun for the given subjects, as in "methods already evaluated: 2 of 4"."""
        return "methods"

    def new_subjects(self) -> Sequence[RequestedSubject]:
        """Returns the subjects that are new since the last call."""

    def subject_read(self, given: RequestedSubject, subject: Subject | None) -> None:
        """Called when a given subject was read; `subject` is None if it cannot be read."""
        return

    def register_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        """Called when the cases of a variant are known."""
        return

    def subject_finished(self, subject: Subject) -> None:
        """Called when all evaluations of a subject are in the ledger."""
        return

    def new_commands(self) -> Sequence[tuple[tuple[CommandId, Size], ...]]:
        """Returns the commands that became ready since the last call, with the resources that each needs."""

    def postponing_file(self, command: CommandId) -> str:
        """Called before a command starts; returns the name of a file of its code that was edited since it was planned.

        If there is one, the command does not start, and the run begins again.
        """

    def execute(self, action: LeaseCommand | CommandEnded, workers: WatchWorkers) -> None: ...

    def refuse_subject(self, subject: Subject, problem: str) -> bool:
        """Called if the cases of a subject cannot be bound; returns whether to continue without the subject."""

    def chief_ended(self) -> None:
        """Called when the chief ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(Labels):
    """Options of a watch: when it ends and what it evaluates.

    Fields defined with `option` are also command-line options of `lobench watch`.

    Attributes:
      traced: Whether jax traces the trainings of explicitly named subjects before the first training starts, so that
        wrong values are reported at once.
      elsewhere: Whether workers may run on other machines.
      replan: Whether to plan again the subjects that an earlier run of the watch finished. If not, changes of the suite
        apply only to new checkpoints.
      with_tests: Whether ordinary tests of the suites are cases.
    """

    once: bool = option(False, "Evaluate the checkpoints that exist now, and end.")
    until_step: int | None = option(None, "End when a checkpoint of this outer step or a later one is done.", least=0)
    idle_timeout: float | None = option(
        None, "End after this time without a new checkpoint.", least=0, metavar="SECONDS"
    )
    retry_errors: bool = option(False, "Retry evaluations that ended in error, timeout, oom, poisoned or expired.")
    keep_results: bool = option(
        False, "Accept results that were made by other code, as after a refactoring; from then on they count."
    )
    together: int = option(
        1, "Compute N waiting checkpoints in one program; this changes the last bits of results.", least=1, most=64,
        metavar="N",
    )  # fmt: skip
    max_core_hours: float | None = option(None, "Start no more evaluations after this many core hours.", above=0)
    cases: tuple[str, ...] = option(
        (), "Only this case: relu32, quick/relu32 or digits.relu32; repeatable.", flag="--case"
    )
    traced: bool = False
    elsewhere: bool = False
    replan: bool = True
    with_tests: bool = False

    def is_enough(self, *, quiet_polls: int, highest_step: int, idle_seconds: float) -> bool:
        """Returns whether a watch stops waiting for checkpoints.

        Args:
          quiet_polls: Number of polls of the source since the last one that found a checkpoint.
          highest_step: Highest outer step seen.
          idle_seconds: Seconds since the last new checkpoint.
        """
        return (
            (self.once and quiet_polls >= 2)
            or (self.until_step is not None and highest_step >= self.until_step)
            or (self.idle_timeout is not None and idle_seconds > self.idle_timeout)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Evaluations that a watch had to provide: all of its subjects on all of their cases.

    Attributes:
      subjects: Subjects that were evaluated, in this call or earlier.
      cases: Cases of each variant, by the variant's key.
      programs: Keys of the programs whose results count.
    """

    subjects: Sequence[Subject]
    cases: Mapping[str, Sequence[CaseInfo]]
    programs: Collection[str]

    @property
    def cases_by_key(self) -> dict[str, CaseInfo]:
        """Cases of all variants, by `CaseInfo.key`."""
        return {case.key: case for cases in self.cases.values() for case in cases}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSummary:
    """Summary of a watch.

    Attributes:
      outcomes: Number of evaluations of this call, by outcome.
      recorded: Number of stored evaluations of the current cases and programs, by outcome, whenever recorded.
        Checkpoints of a former run, before the trainer began again in its folder, are left out.
      interrupted: Whether a signal ended it.
      over_budget: Whether the limit on core hours ended it.
      num_left: Number of missing evaluations of the known checkpoints.
      suite_changed: Whether it ended because the suite changed, so that the caller should start a new watch.
      core_seconds: Core seconds used by its workers.
      behind: Number of outstanding deliveries by sink, for sinks that have any.
      earlier: Number of deliveries of earlier calls that were outstanding at the start, by sink.
      plan: Evaluations that the watch had to provide, stored earlier or computed by it.
      unread: Reason why the newest checkpoint of a run could not be read, by path. An older one was evaluated.
      unbound: Reason why a run was not evaluated with its `config.gin`, by the run's folder.
    """

    outcomes: Mapping[Outcome, int]
    recorded: Mapping[Outcome, int]
    interrupted: bool
    over_budget: bool
    num_left: int
    suite_changed: bool
    core_seconds: float
    behind: Mapping[str, int]
    earlier: Mapping[str, int]
    plan: WatchPlan
    unread: Mapping[str, str]
    unbound: Mapping[str, str]

    @property
    def num_checkpoints(self) -> int:
        return len(self.plan.subjects)
