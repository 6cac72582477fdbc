"""What the crew and the workers of an evolution say to each other."""

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
    "Moved",
    "Rewind",
    "StateRequest",
    "Task",
    "ToWorker",
    "Welcome",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A theta that moves by updates, as far as a worker has not heard of it.

    Attributes:
      theta: Id of where it is after the updates.
      state: Where it was before them, in base64; None: where the worker has it.
    """

    theta: int
    state: str | None
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learn(Message):
    """What a worker must know for its next task.

    Attributes:
      forget: Genomes that are not needed any more.
      genomes: Those that it must know, parents first, as far as it does not.
    """

    forget: tuple[int, ...]
    genomes: tuple[Genome, ...]
    theta_path: Moved | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate(Message):
    """Asks for the fitness of members, float32 each; `trials` are (genome's id, seed)."""

    trials: tuple[tuple[int, int], ...]
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(Message):
    """Asks for the state of evolution strategies before their first step."""

    seed: int
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind(Message):
    """Asks for a state (base64) as it is, but for the outer schedule, which stands at its first step."""

    state: str
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRequest(Message):
    """Asks for the state where the course has led it."""

    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Export(Message):
    """Asks for a genome's theta as a checkpoint."""

    genome: int
    outer_step: int
    job: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome(Message):
    """The first word of a worker that can work.

    Attributes:
      provenance: What must be the same for the same bits.
    """

    provenance: Mapping[str, str]
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Message):
    """Answers a task."""

    job: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(Message):
    """The configuration cannot be used, or a task failed; nothing of it is tried again."""

    message: str


Task: TypeAlias = Evaluate | Begin | Rewind | StateRequest | Export
ToWorker: TypeAlias = Learn | Task | Exit

TO_WORKER: Codec[ToWorker] = Codec(Learn, Evaluate, Begin, Rewind, StateRequest, Export, Exit)
FROM_WORKER: Codec[Welcome | Answer | Broken] = Codec(Welcome, Answer, Broken)
