"""What a watch is told, tells and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lobench.core.case import CaseInfo
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.hookspecs import EvaluationFinished

__all__ = ["ERRORS", "Ending", "Progress", "WatchOptions"]

# Outcomes that another try may change, and that make a watch's exit code 3.
ERRORS = (Outcome.ERROR, Outcome.TIMEOUT, Outcome.OOM, Outcome.POISONED, Outcome.EXPIRED)


class Progress(Protocol):
    """What a watch tells while it runs; the command line shows it."""

    def say(self, line: str) -> None: ...

    def cases(self, cases: Sequence[CaseInfo]) -> None: ...

    def admitted(self, subject: Subject) -> None: ...

    def step(self, lease: int, step: int) -> None: ...

    def leased(self, lease: int, subject: Subject, case: CaseInfo) -> None: ...

    def finished(self, event: EvaluationFinished, lease: int | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """How a watch goes on and ends.

    Attributes:
      once: Evaluate what is there, then end.
      until_step: End once a checkpoint of this outer step or a later one was evaluated.
      idle_timeout: End after so many seconds without a new checkpoint.
      together: Checkpoints that a worker may compute together.
      spare_cores: Cores of this machine that workers do not take, where those are processes of this machine.
      elsewhere: Whether workers may be on other machines.
      replan: Whether what earlier starts were through with is planned anew; an edited suite counts from the next
        checkpoint on.
      retry_errors: Try again what of today's plan ended in an error, a timeout, out of memory, poisoned or expired.
      max_core_hours: Begin nothing more once workers have held so many in this call; what runs may end.
      experiment, trial, session: Columns of the ledger.
    """

    once: bool = False
    until_step: int | None = None
    idle_timeout: float | None = None
    together: int = 1
    spare_cores: int = 0
    elsewhere: bool = False
    replan: bool = True
    retry_errors: bool = False
    max_core_hours: float | None = None
    experiment: str = ""
    trial: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a watch ended: outcomes counted over this call, whether and why it ended early, what was there.

    Attributes:
      recorded: Outcomes of today's cases and programs in the store, whenever they were recorded.
      num_left: Evaluations that were not begun, or not ended, of the checkpoints that are known.
      suite_changed: Ended so that another watch begins with the suite as it is now.
      core_seconds: What its workers used.
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
