"""Messages between the worker pool and the workers of an evolution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lobench.extend import Codec, Exit, Message
from lobench_evolve.evolution_strategies import Update
from lobench_evolve.genome import Genome

__all__ = [
    "FROM_WORKER",
    "TO_WORKER",
    "Answer",
    "Begin",
    "Broken",
    "Evaluate",
    "Export",
    "Learn",
    "Rewind",
    "StateRequest",
    "ThetaUpdates",
    "ToEvolutionWorker",
    "Welcome",
    "WorkerTask",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaUpdates:
    """Updates of a theta that a worker has not received.

    Attributes:
      theta: Id of theta after the updates.
      state: State before the updates, in base64. None: the worker has it.
      updates: Updates to apply.
    """

    theta: int
    state: str | None
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learn(Message):
    """Genomes and updates that a worker needs for its next task.

    Attributes:
      forget: Ids of genomes that are not needed any more.
      genomes: Genomes that the worker lacks, parents first.
      theta_updates: Updates that the worker lacks. None if the task needs none.
    """

    forget: tuple[int, ...]
    genomes: tuple[Genome, ...]
    theta_updates: ThetaUpdates | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(Message):
    """Requests the fitness of members, as float32. `trials` are pairs of a genome's id and a seed."""

    trials: tuple[tuple[int, int], ...]
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Message):
    """Requests the initial state of evolution strategies."""

    seed: int
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind(Message):
    """Requests a state (base64) with its outer schedule reset to the first step."""

    state: str
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRequest(Message):
    """Requests the current state."""

    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Message):
    """Requests a genome's theta as a checkpoint."""

    genome: int
    outer_step: int
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome(Message):
    """First message of a worker that is ready.

    Attributes:
      provenance: Versions, device and flags, which must be equal for equal bits.
      pid: Process id of the worker.
    """

    provenance: Mapping[str, str]
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Message):
    """Result of a task. The kind of the task determines the encoding."""

    job: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Message):
    """Error of the configuration or of a task. Nothing is retried."""

    message: str


WorkerTask: TypeAlias = Evaluate | Begin | Rewind | StateRequest | Export
ToEvolutionWorker: TypeAlias = Learn | WorkerTask | Exit

TO_WORKER: Codec[ToEvolutionWorker] = Codec(Learn, Evaluate, Begin, Rewind, StateRequest, Export, Exit)
FROM_WORKER: Codec[Welcome | Answer | Broken] = Codec(Welcome, Answer, Broken)
