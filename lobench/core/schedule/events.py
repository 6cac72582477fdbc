"""What the scheduler is told and what it asks for: evaluations, history, events and actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Outcome

__all__ = [
    "Action",
    "Admit",
    "Capacity",
    "CasesKnown",
    "CheckpointSeen",
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
    "Policy",
    "Prepare",
    "Prepared",
    "Record",
    "RecordDeath",
    "RecordSplit",
    "Reopen",
    "RunEnded",
    "Size",
    "Skip",
    "StartWorker",
    "Tick",
    "WorkerDied",
    "WorkerReady",
]


class Size(NamedTuple):
    """What a worker takes of a machine, fixed when it starts."""

    num_cpus: int
    num_gpus: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class EvaluationId:
    """(theta, `CaseInfo.key`, seed block)."""

    sha256: str
    case_key: str
    block: SeedBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a restarted chief knows from its ledger.

    Attributes:
      recorded: Evaluations with an outcome.
      retried: Those of them that are to be tried again (`--retry-errors`).
      splits: Evaluations that ran out of memory and were halved.
      deaths: Workers lost, by evaluation.
      admissions: Decisions by position; a position that waits is not in it.
      finished: Positions whose evaluations all have an outcome.
      durations: Seconds that a seed block took, by case key.
    """

    recorded: Set[EvaluationId] = frozenset()
    retried: Set[EvaluationId] = frozenset()
    splits: Set[EvaluationId] = frozenset()
    deaths: Mapping[EvaluationId, int] = field(default_factory=dict)
    admissions: Mapping[int, Literal["admitted", "skipped"]] = field(default_factory=dict)
    finished: Set[int] = frozenset()
    durations: Mapping[str, float] = field(default_factory=dict)


class Policy(Protocol):
    """Shape of an admission policy."""

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]: ...


# Events.


@dataclass(frozen=True, slots=True)
class CasesKnown:
    cases: tuple[CaseInfo, ...]


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    position: int
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class RunEnded:
    """No further checkpoint will come."""


@dataclass(frozen=True, slots=True)
class WorkerReady:
    worker: int
    now: float


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """`lost` says that its machine went away, which is no evidence against the case that it ran."""

    worker: int
    now: float
    message: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Capacity:
    """Machines came or went: these are what there is from now on.

    Attributes:
      machines: A worker is on one of them.
      limit: Cores that workers may take together, and one worker may, however many its case asks for. As many are asked
        for, also where there are fewer.
    """

    machines: tuple[Size, ...]
    limit: float = math.inf


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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A worker is through with what it was to prepare; `is_done` says whether it has compiled it."""

    worker: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class Tick:
    now: float


@dataclass(frozen=True, slots=True)
class Drain:
    """Lease nothing more; what runs may end."""


Event: TypeAlias = (
    CasesKnown | CheckpointSeen | RunEnded | WorkerReady | WorkerDied | Finished | Prepared | Tick | Drain | Capacity
)


# Actions.


@dataclass(frozen=True, slots=True)
class StartWorker:
    worker: int
    size: Size


@dataclass(frozen=True, slots=True)
class KillWorker:
    worker: int
    reason: str


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


@dataclass(frozen=True, slots=True)
class Prepare:
    """The worker compiles the evaluation's case beside what it runs, since it is likely to be leased that next."""

    worker: int
    evaluation: EvaluationId


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
    evaluation: EvaluationId


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
class Fail:
    """Workers do not start."""

    message: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing is left to do."""


Action: TypeAlias = (
    StartWorker
    | KillWorker
    | Lease
    | Prepare
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
