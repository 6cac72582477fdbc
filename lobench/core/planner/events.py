"""Planner events and actions, evaluations and history.

Events and actions that concern only workers belong to the scheduler (`lobench.core.schedule`) and pass through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lobench.core.case import CaseInfo
from lobench.core.history import EvaluationId, History
from lobench.core.result import Outcome
from lobench.core.schedule import (
    Capacity,
    Drain,
    Fail,
    KillWorker,
    Size,
    StartWorker,
    Tick,
    Why,
    WorkerDied,
    WorkerReady,
)
from lobench.core.subject import SubjectKey

__all__ = [
    "Action",
    "Admit",
    "Capacity",
    "CasesKnown",
    "CommandEnded",
    "CommandId",
    "Done",
    "Drain",
    "EvaluationId",
    "Event",
    "Fail",
    "FinishCheckpoint",
    "Finished",
    "Forget",
    "History",
    "KillWorker",
    "Lease",
    "LeaseCommand",
    "Record",
    "RecordDeath",
    "RecordSplit",
    "RemainingWork",
    "Reopen",
    "RunCommands",
    "RunEnded",
    "Size",
    "Skip",
    "StartWorker",
    "SubjectSeen",
    "Tick",
    "WorkerDied",
    "WorkerReady",
]


@dataclass(frozen=True, slots=True)
class CommandId:
    """Identity of a session of a command. It is ordered before all evaluations."""

    method: str
    session: int

    def __lt__(self, other: object) -> bool:
        return not isinstance(other, CommandId) or (self.method, self.session) < (other.method, other.session)

    def __gt__(self, other: object) -> bool:
        return isinstance(other, CommandId) and (self.method, self.session) > (other.method, other.session)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """Summary of the remaining work, for progress displays.

    Attributes:
      evaluations: Number of missing evaluations of admitted checkpoints, by program.
      num_admitted: Number of admitted checkpoints with missing evaluations.
      num_waiting: Number of checkpoints that the policy has not decided on.
      num_cores: Number of cores that all workers may use together.
    """

    evaluations: Mapping[str, int] = field(default_factory=dict)
    num_admitted: int = 0
    num_waiting: int = 0
    num_cores: int = 1


# Events.


@dataclass(frozen=True, slots=True)
class CasesKnown:
    """The cases of a variant are known. Ignored if they were known before."""

    cases: tuple[CaseInfo, ...]
    variant: str = ""


@dataclass(frozen=True, slots=True)
class SubjectSeen:
    position: int
    subject: SubjectKey


@dataclass(frozen=True, slots=True)
class RunCommands:
    """Commands to run, each with its cores and devices. They start before evaluations, because they take longest."""

    commands: tuple[tuple[CommandId, Size], ...]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """No further checkpoint will come."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A worker has finished a lease.

    Attributes:
      seconds: Duration of the evaluation, or its share if others were computed with it. None: unknown.
      is_void: Whether the evaluation did not take place (its theta could not be read) and is to be leased again.
    """

    worker: int
    lease: int
    outcome: Outcome
    now: float
    message: str = ""
    replace_worker: bool = False
    seconds: float | None = None
    is_void: bool = False


Event: TypeAlias = (
    CasesKnown | SubjectSeen | RunCommands | RunEnded | WorkerReady | WorkerDied | Finished | Tick | Drain | Capacity
)


# Actions.


@dataclass(frozen=True, slots=True)
class Lease:
    """Hand an evaluation to a worker.

    Attributes:
      companions: Evaluations that differ in theta only. The worker computes them together with this one and keeps their
        results, since they are leased to it next.
    """

    worker: int
    lease: int
    evaluation: EvaluationId
    case: CaseInfo
    deadline: float
    companions: tuple[EvaluationId, ...] = ()
    why: Why = Why.FIRST


@dataclass(frozen=True, slots=True)
class LeaseCommand:
    """Run a command in a worker's slot."""

    worker: int
    lease: int
    command: CommandId


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """A command has ended.

    Attributes:
      message: Reason of a failure; "" if it succeeded.
    """

    command: CommandId
    message: str


@dataclass(frozen=True, slots=True)
class Record:
    """Record an outcome in the ledger.

    Attributes:
      lease: Lease that returned the payload; None without a payload.
    """

    evaluation: EvaluationId
    case: CaseInfo
    outcome: Outcome
    lease: int | None
    message: str


@dataclass(frozen=True, slots=True)
class RecordSplit:
    evaluation: EvaluationId


@dataclass(frozen=True, slots=True)
class RecordDeath:
    """A worker died with the evaluation, for the `count`-th time."""

    evaluation: EvaluationId
    count: int = 1


@dataclass(frozen=True, slots=True)
class Admit:
    position: int


@dataclass(frozen=True, slots=True)
class Skip:
    position: int


@dataclass(frozen=True, slots=True)
class Reopen:
    """Continue a checkpoint that an earlier run finished or skipped, because some of its evaluations are missing."""

    position: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Discard outcomes that are to be replaced."""

    evaluations: tuple[EvaluationId, ...]


@dataclass(frozen=True, slots=True)
class FinishCheckpoint:
    position: int


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""


Action: TypeAlias = (
    StartWorker
    | KillWorker
    | Lease
    | LeaseCommand
    | CommandEnded
    | Record
    | RecordSplit
    | RecordDeath
    | Admit
    | Skip
    | Reopen
    | Forget
    | FinishCheckpoint
    | Fail
    | Done
)
