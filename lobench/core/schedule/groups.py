"""Batching of queued work that one worker can compute together."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from lobench.core.schedule.events import Size
from lobench.core.schedule.queue import QueueEntry, WorkQueue
from lobench.core.schedule.workers import Worker

__all__ = ["Groups"]


class Groups:
    """Forms full groups only: the number is compiled in, so any other would be a program more.

    Args:
      size: Works of a group; 1: each alone.
      troubled: Keys of works that lost a worker, kept by the machine.
    """

    def __init__(self, size: int, troubled: Container[Any]) -> None:
        self._size, self._troubled = size, troubled
        self._apart: set[Any] = set()

    def companions(self, queue: WorkQueue, size: Size, entry: QueueEntry) -> list[QueueEntry]:
        """Takes from the queue what is to be computed with an entry that was taken from it; maybe nothing."""
        if self._size == 1 or not self._may_share(entry):
            return []
        return queue.take_alike(size, entry, self._choose)

    def dissolve(self, worker: Worker) -> list[QueueEntry]:
        """Returns what a lost worker was promised; where it was computing the group, each runs alone then."""
        if worker.lease is not None and worker.lease.together > 1:
            self._apart.update(entry.key for entry in worker.promised)
        return worker.promised

    def _choose(self, alike: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
        sharing = [entry for entry in alike if self._may_share(entry)][: self._size - 1]
        return sharing if len(sharing) == self._size - 1 else ()

    def _may_share(self, entry: QueueEntry) -> bool:
        """What has gone wrong once runs alone: no other work may be to blame for its outcome."""
        troubled = not entry.rank.fresh or entry.key in self._apart or entry.key in self._troubled
        return not troubled and entry.work.alike is not None
