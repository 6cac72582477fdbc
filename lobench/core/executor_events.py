"""Executor events: a worker's message, a worker's exit, a change of capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lobench.core.codec import Message

__all__ = ["ExecutorCapacity", "ExecutorEvent", "Notice", "WorkerExited", "WorkerMessage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMessage(Message):
    """An encoded message of a worker. Executors pass it on without decoding it.

    >>> WorkerMessage(worker=3, message=b"...").worker
    3
    """

    worker: int
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExited(Message):
    """Exit of a worker, reported by its executor. It is the last event of this worker.

    Attributes:
      message: Cause, in one line.
      lost: Whether the machine or the connection failed, so that the worker's job is not to blame.
      is_oom: Whether the system killed the worker because memory ran out.

    >>> WorkerExited(worker=3, message="killed by signal 9", is_oom=True).lost
    False
    """

    worker: int
    message: str
    lost: bool = False
    is_oom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Message):
    """A line of text for people.

    >>> Notice(message="2 of 4 nodes are ready").message
    '2 of 4 nodes are ready'
    """

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorCapacity(Message):
    """Machines that are available now. Sent whenever they change.

    Attributes:
      machines: (cores, devices) of each machine.
      limit: Largest number of cores for all workers together, as set by the user; None: no limit.

    >>> ExecutorCapacity(machines=((4.0, 0.0), (4.0, 1.0))).limit is None
    True
    """

    machines: tuple[tuple[float, float], ...]
    limit: float | None = None


ExecutorEvent: TypeAlias = WorkerMessage | WorkerExited | Notice | ExecutorCapacity
