"""Interfaces of the chief: options, arrivals, progress, ending."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lobench.core.case import CaseInfo
from lobench.core.planner import CommandEnded, CommandId, LeaseCommand, Left, Size
from lobench.core.result import Outcome
from lobench.core.settings_field import option
from lobench.core.subject import Given, Subject
from lobench.engine.chief.worker_link import WatchWorkers
from lobench.engine.store.ledger import Ledger
from lobench.hookspecs import EvaluationFinished

__all__ = ["ERRORS", "Arrivals", "Ending", "WatchOptions", "WatchProgress"]

# Outcomes that another try may change, and that make a watch's exit code 3.
ERRORS = (Outcome.ERROR, Outcome.TIMEOUT, Outcome.OOM, Outcome.POISONED, Outcome.EXPIRED)


class WatchProgress:
    """What a watch tells while it runs; the command line shows it. By itself it shows nothing."""

    def log(self, line: str) -> None: ...

    def announce(self, line: str) -> None:
        """Report what is about to run; by default a line of the log."""
        self.log(line)

    def opened(self, open_reader: Callable[[], Ledger], suites: Sequence[str]) -> None:
        """Takes that a store is open, which a thread may read through a ledger of its own, until `closed`."""

    def closed(self) -> None: ...

    def cases(self, cases: Sequence[CaseInfo]) -> None: ...

    def admitted(self, subject: Subject) -> None: ...

    def step(self, lease: int, step: int) -> None: ...

    def leased(self, lease: int, subject: Subject, case: CaseInfo) -> None: ...

    def finished(self, event: EvaluationFinished, lease: int | None) -> None: ...

    def grown(self) -> None:
        """Called when a script has written more points of its curves."""

    def completed(self, subject: Subject, left: Left) -> None:
        """Called when all evaluations of a subject are in the store."""


class Arrivals(Protocol):
    """What comes while a chief runs: commands and their checkpoints, the trials of searches."""

    @property
    def is_open(self) -> bool:
        """Whether a subject may come yet."""

    @property
    def has_news(self) -> bool:
        """Whether `given` or `waiting` has something now, so that the chief need not wait before it asks."""

    def given(self) -> Sequence[Given]:
        """Returns the subjects that are new since the last call."""

    def taken(self, given: Given, subject: Subject | None) -> None:
        """Called when a given subject was read; `subject` is None if it cannot be read."""

    def know_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        """Called when the cases of a variant are known."""

    def finished(self, subject: Subject) -> None:
        """Called when all evaluations of a subject are in the ledger."""

    def waiting(self) -> Sequence[tuple[tuple[CommandId, Size], ...]]:
        """Returns the commands that became ready since the last call, with the resources that each needs."""

    def act(self, action: LeaseCommand | CommandEnded, workers: WatchWorkers) -> None: ...

    def refuse(self, subject: Subject, problem: str) -> bool:
        """Called if the cases of a subject cannot be bound; returns whether the rest goes on without it."""

    def leave(self) -> None:
        """Called when the chief ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Options of how a watch continues and ends. Each `option` field is also an option of `lobench watch`.

    Attributes:
      cases: Names of the cases to evaluate, any of `CaseInfo.names`; (): all cases of the suites.
      traced: Whether the trainings of what is given are traced before anything is trained; what is wrong with values
        that were written is said then.
      elsewhere: Whether workers may be on other machines.
      replan: Whether what earlier starts were through with is planned anew; an edited suite counts from the next
        checkpoint on.
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
    experiment: str = option("", "Label of the evaluations, for studies.")
    trial: str = option("", "Label of the evaluations, for studies.")
    session: str = option("", "Label of the evaluations, for studies.")
    cases: tuple[str, ...] = ()
    traced: bool = False
    elsewhere: bool = False
    replan: bool = True

    def is_enough(self, *, quiet_polls: int, highest_step: int, idle_seconds: float) -> bool:
        """Says whether a watch waits for no further checkpoint.

        Args:
          quiet_polls: Looks at the source, since the last that found one.
        """
        return (
            (self.once and quiet_polls >= 2)
            or (self.until_step is not None and highest_step >= self.until_step)
            or (self.idle_timeout is not None and idle_seconds > self.idle_timeout)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a watch ended: outcomes counted over this call, whether and why it ended early, what was there.

    Attributes:
      recorded: Outcomes of today's cases and programs in the store, whenever they were recorded.
      num_left: Evaluations that were not begun, or not ended, of the checkpoints that are known.
      suite_changed: Ended so that another watch begins with the suite as it is now.
      core_seconds: What its workers used.
      programs: Keys of those whose results count today.
      subjects: What was evaluated, or was before.
      cases: Of each variant, by its key.
      unread: Why, by its place, the newest checkpoint of a run could not be read: what was evaluated is older.
      unbound: Why, by its folder, a run was not evaluated with its `config.gin`.
    """

    outcomes: Mapping[Outcome, int]
    recorded: Mapping[Outcome, int]
    interrupted: bool
    over_budget: bool
    num_left: int
    suite_changed: bool
    core_seconds: float
    num_checkpoints: int
    behind: Mapping[str, int]
    programs: Collection[str] = ()
    subjects: Sequence[Subject] = ()
    cases: Mapping[str, Sequence[CaseInfo]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    unbound: Mapping[str, str] = field(default_factory=dict)
