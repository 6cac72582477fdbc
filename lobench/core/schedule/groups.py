"""Batching of queued work that one worker can compute together."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from lobench.core.schedule.events import Size
from lobench.core.schedule.queue import QueueEntry, WorkQueue
from lobench.core.schedule.workers import Worker

__all__ = ["Groups"]


class Groups:
    """Groups of alike work that a worker computes together.

    Only full groups are formed, since each other size would be a further program to compile.

    Args:
      size: Amount of work in a group. 1: no groups.
      troubled: Keys of work that lost a worker.
    """

    def __init__(self, size: int, troubled: Container[Any]) -> None:
        self._size, self._troubled = size, troubled
        self._apart: set[Any] = set()

    def companions(self, queue: WorkQueue, size: Size, entry: QueueEntry) -> list[QueueEntry]:
        """Takes the work to compute together with an entry out of the queue, and returns it. It may be empty."""
        if self._size == 1 or not self._may_share(entry):
            return []
        return queue.take_alike(size, entry, self._choose)

    def dissolve(self, worker: Worker) -> list[QueueEntry]:
        """Returns the work promised to a lost worker. If it computed a group, its members run alone from now on."""
        if worker.lease is not None and worker.lease.together > 1:
            self._apart.update(entry.key for entry in worker.promised)
        return worker.promised

    def _choose(self, alike: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
        sharing = [entry for entry in alike if self._may_share(entry)][: self._size - 1]
        return sharing if len(sharing) == self._size - 1 else ()

    def _may_share(self, entry: QueueEntry) -> bool:
        """Returns whether work may be in a group. Work that failed once runs alone, unaffected by other work."""
        troubled = not entry.rank.fresh or entry.key in self._apart or entry.key in self._troubled
        return not troubled and entry.work.alike is not None
