"""Planner events and actions, evaluations and history.

What concerns workers alone is the scheduler's own (`lobench.core.schedule`) and passes through.
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
    "Left",
    "Record",
    "RecordDeath",
    "RecordSplit",
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
    """A session of a method that is a command. Among evaluations it is the first."""

    method: str
    session: int

    def __lt__(self, other: object) -> bool:
        return not isinstance(other, CommandId) or (self.method, self.session) < (other.method, other.session)

    def __gt__(self, other: object) -> bool:
        return isinstance(other, CommandId) and (self.method, self.session) > (other.method, other.session)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is to be done yet, for people.

    Attributes:
      evaluations: Of what was admitted, how many have no outcome, by the program that computes them.
      num_admitted: Checkpoints that these are of.
      num_waiting: Checkpoints on which the policy has not had its word.
      num_cores: What workers may take together.
    """

    evaluations: Mapping[str, int] = field(default_factory=dict)
    num_admitted: int = 0
    num_waiting: int = 0
    num_cores: int = 1


# Events.


@dataclass(frozen=True, slots=True)
class CasesKnown:
    """The cases of a variant, by its key; what is said of one that is known already changes nothing."""

    cases: tuple[CaseInfo, ...]
    variant: str = ""


@dataclass(frozen=True, slots=True)
class SubjectSeen:
    position: int
    subject: SubjectKey


@dataclass(frozen=True, slots=True)
class RunCommands:
    """Commands to be run beside the evaluations, by what each takes of a machine; they take long, and go first."""

    commands: tuple[tuple[CommandId, Size], ...]


@dataclass(frozen=True, slots=True)
class RunEnded:
    """No further checkpoint will come."""


@dataclass(frozen=True, slots=True)
class Finished:
    """`seconds` is what the evaluation itself took, its share where others were computed with it; None: not known.

    `is_void` says that it tells nothing of the evaluation, which waits again: its theta could not be read, say.
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
    """`companions` differ from the evaluation in theta alone: the worker computes them with it and keeps what it gets,
    since it will be leased them next."""

    worker: int
    lease: int
    evaluation: EvaluationId
    case: CaseInfo
    deadline: float
    companions: tuple[EvaluationId, ...] = ()
    why: Why = Why.FIRST


@dataclass(frozen=True, slots=True)
class LeaseCommand:
    """A worker's slot is the command's."""

    worker: int
    lease: int
    command: CommandId


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """`message` is "" where it ended as it should."""

    command: CommandId
    message: str


@dataclass(frozen=True, slots=True)
class Record:
    """`lease` says which worker's payload belongs to it; None where there is none."""

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
    """A checkpoint that an earlier start finished or skipped lacks evaluations of today's plan: it goes on."""

    position: int


@dataclass(frozen=True, slots=True)
class Forget:
    """These outcomes are to be replaced; they count no more."""

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
