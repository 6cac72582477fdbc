"""Messages between the executor, its bridge and the slots. Messages of workers are passed on without decoding."""

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


# Messages from the executor to its bridge. `Join` is the first one.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan(Message):
    """Settings with which all slots start their workers.

    Attributes:
      sha256: Hash of the suite archive.
      suites: Names of the suites in the archive.
      layers: gin text bound before and after each case's own file. Its files are named as in the archive.
      serve: As in `WorkerConfig`.
      state_folder_token: File in the store's folder of states. A node that has this file sees the store, and saves
        states there.
      working_folder: Working folder of the chief, as in `Configure`.
      with_tests: As in `WorkerConfig`.
    """

    sha256: str
    suites: tuple[str, ...]
    layers: Layers
    serve: str
    state_folder_token: str = ""
    working_folder: str = ""
    with_tests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Message):
    """Cluster to join, and settings for it."""

    address: str
    insecure: bool
    silence_seconds: float
    plan: WorkerPlan
    suite_archive: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStart(Message):
    """Starts a worker in a new slot."""

    worker: int
    num_cpus: int
    num_gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward(Message):
    """A message for a worker, and the paths of the files that it mentions."""

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


# Messages from the bridge, or from a slot through the bridge.


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive(Message):
    """Heartbeat, sent about every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Message):
    """The cluster was joined. `address` is that of its head."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRefused(Message):
    """The cluster must not or cannot be used. Retries would fail, too."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable(Message):
    """The cluster cannot be reached at the moment."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(Message):
    """Last part of a worker's log."""

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
