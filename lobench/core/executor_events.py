"""Executor events: a worker's message, a worker's exit, a change of capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lobench.core.codec import Message

__all__ = ["ExecutorCapacity", "ExecutorEvent", "Notice", "WorkerExited", "WorkerMessage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMessage(Message):
    """What a worker said, as it said it: an executor carries it and does not open it."""

    worker: int
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExited(Message):
    """A worker is gone, which its executor says for it; nothing more is heard of it.

    Attributes:
      message: Why, in one line.
      lost: Its machine is to blame, or what lies between; it says nothing of what the worker did.
      is_oom: The system killed it for want of memory.
    """

    worker: int
    message: str
    lost: bool = False
    is_oom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Message):
    """A line to be shown to people."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorCapacity(Message):
    """What there is now, where that changes.

    Attributes:
      machines: Cores and devices of each.
      limit: Cores that the user named for all workers together; None: as many as there are.
    """

    machines: tuple[tuple[float, float], ...]
    limit: float | None = None


ExecutorEvent: TypeAlias = WorkerMessage | WorkerExited | Notice | ExecutorCapacity
