"""Trial: one session of training, which starts from the checkpoint of an earlier trial."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from lobench import LobenchError
from lobench.extend import Value

__all__ = ["ARTIFACTS", "TERMINAL", "Artifact", "Outline", "Refusal", "Refused", "State", "StudyTrial"]


class State(enum.StrEnum):
    """State of a trial.

    REQUESTED -> ACTIVE -> (STOPPING ->) AWAITING_FITNESS -> SUCCEEDED | INFEASIBLE. A lost lease leads back to
    REQUESTED.
    """

    REQUESTED = "requested"
    ACTIVE = "active"
    STOPPING = "stopping"
    AWAITING_FITNESS = "awaiting_fitness"
    SUCCEEDED = "succeeded"
    INFEASIBLE = "infeasible"


TERMINAL = frozenset({State.SUCCEEDED, State.INFEASIBLE})


class Refusal(enum.StrEnum):
    """Reason for which a request is refused. A refused request changes nothing."""

    NOT_FOUND = "not found"
    STALE = "stale"
    CONFLICT = "conflict"
    INVALID = "invalid"


class Refused(LobenchError):
    """A request that does not fit the state of the study."""

    def __init__(self, refusal: Refusal, what: str, *, where: str = "", got: str = "", expected: str = "") -> None:
        super().__init__(what, where=where, got=got, expected=expected)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file or folder with its sha256: of theta's content for a checkpoint, of the bytes for a trainer's state."""

    uri: str
    sha256: str


ARTIFACTS = ("warm_checkpoint", "warm_state", "checkpoint", "train_state")  # fields of a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Fields of a trial that decisions about other trials read, without decoding the rest of its row.

    Attributes:
      slot: Position in the population, 0 to N-1, inherited from the initiator.
      attempt: Number of lost leases. Late completions of earlier attempts are refused.
      fitness: Oriented fitness; None unless SUCCEEDED.
    """

    id: int
    state: State = State.REQUESTED
    generation: int = 0
    slot: int = 0
    attempt: int = 0
    fitness: tuple[float, ...] | None = None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTrial(Outline):
    """Row of the trial table: one field per column of the database, and per key of `lobench pbt export`.

    Attributes:
      parent_ids: Winner first, then the loser if crossover took one of its values. Empty: from scratch.
      params: Values of the active parameters, by gin path.
      start_step, n_steps: First outer step, and number of outer steps.
      checkpoint, train_state: Results of the training: theta, and further state that the trainer needs to continue.
      metrics: Reported metrics; None before, and for an infeasible trial.
      completed_seq: Position in the order in which trials ended, from 1.
      has_child: Whether it has initiated its child.
      is_kept: Whether the store still has its checkpoint.
    """

    initiator_id: int | None = None
    opponent_id: int | None = None
    parent_ids: tuple[int, ...] = ()
    params: Mapping[str, Value] = field(default_factory=dict)
    start_step: int = 0
    n_steps: int = 0
    warm_checkpoint: Artifact | None = None
    warm_state: Artifact | None = None
    checkpoint: Artifact | None = None
    train_state: Artifact | None = None
    seed: int = 0
    worker_id: str = ""
    lease_deadline: float | None = None
    fitness_deadline: float | None = None
    metrics: Mapping[str, float] | None = None
    reason: str = ""
    completed_seq: int | None = None
    has_child: bool = False
    is_kept: bool = False

    @property
    def end_step(self) -> int:
        return self.start_step + self.n_steps
