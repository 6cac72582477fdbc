"""What the executor, its bridge and the slots say to each other. What workers say and hear is inside, unopened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lobench.extend import Codec, Layers, Message
from lobench.hookspecs import ExecutorCapacity, Notice, WorkerExited, WorkerMessage

__all__ = [
    "FROM_BRIDGE",
    "TO_BRIDGE",
    "Alive",
    "ClusterRefused",
    "Forward",
    "FromBridge",
    "Join",
    "Joined",
    "Kill",
    "Leave",
    "Log",
    "SlotStart",
    "ToBridge",
    "Unreachable",
    "WorkerPlan",
]


# From the executor to its bridge, `Join` first.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan(Message):
    """What every slot starts its worker with.

    Attributes:
      sha256: Of the parcel.
      suites: Their names in the parcel.
      layers: gin text around the cases, the files by their names in the parcel.
      serve: As `WorkerConfig`.
      state_mark: In the store's folder of states: a node that has this file sees the store, and saves there.
      working_folder: As `Configure`: the chief's.
    """

    sha256: str
    suites: tuple[str, ...]
    layers: Layers
    serve: str
    state_mark: str = ""
    working_folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Message):
    """Which cluster to join, and what to do there."""

    address: str
    insecure: bool
    silence_seconds: float
    plan: WorkerPlan
    parcel: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStart(Message):
    """Starts a worker in a slot of its own."""

    worker: int
    num_cpus: int
    num_gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward(Message):
    """A message for a worker, and the files that it names."""

    worker: int
    files: tuple[str, ...]
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(Message):
    """Ends a worker and its slot."""

    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(Message):
    """Ends the bridge."""


# From the bridge, or from a slot through it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(Message):
    """Said every second or so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Message):
    """The cluster is joined; `address` is its head's."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRefused(Message):
    """The cluster must not, or cannot, be used; to try again is in vain."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable(Message):
    """The cluster is not there now."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Message):
    """The end of a worker's log."""

    worker: int
    tail: bytes


ToBridge: TypeAlias = SlotStart | Forward | Kill | Leave
FromBridge: TypeAlias = (
    Alive | Joined | ClusterRefused | Unreachable | Log | WorkerMessage | WorkerExited | Notice | ExecutorCapacity
)

TO_BRIDGE: Codec[ToBridge] = Codec(SlotStart, Forward, Kill, Leave)
FROM_BRIDGE: Codec[FromBridge] = Codec(
    Alive, Joined, ClusterRefused, Unreachable, Log, WorkerMessage, WorkerExited, Notice, ExecutorCapacity
)
