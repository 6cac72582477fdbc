"""Which waiting evaluations a worker may compute together."""

from __future__ import annotations

from collections.abc import Container, Sequence

from lobench.core.schedule.events import EvaluationId, Size
from lobench.core.schedule.queue import Entry, WorkQueue
from lobench.core.schedule.workers import Worker

__all__ = ["Groups"]


class Groups:
    """Forms full groups only: the number is compiled in, so any other would be a program more.

    Args:
      size: Evaluations of a group; 1: each alone.
      troubled: Evaluations that lost a worker, kept by the schedule.
    """

    def __init__(self, size: int, troubled: Container[EvaluationId]) -> None:
        self._size, self._troubled = size, troubled
        self._apart: set[EvaluationId] = set()

    def companions(self, queue: WorkQueue, size: Size, entry: Entry) -> list[Entry]:
        """Takes from the queue what is to be computed with an entry that was taken from it; maybe nothing."""
        if self._size == 1 or not self._may_share(entry):
            return []
        return queue.take_alike(size, entry, self._choose)

    def dissolve(self, worker: Worker) -> list[Entry]:
        """Returns what a lost worker was promised; where it was computing the group, each runs alone then."""
        if worker.lease is not None and worker.lease.together > 1:
            self._apart.update(entry.evaluation for entry in worker.promised)
        return worker.promised

    def _choose(self, alike: Sequence[Entry]) -> Sequence[Entry]:
        sharing = [entry for entry in alike if self._may_share(entry)][: self._size - 1]
        return sharing if len(sharing) == self._size - 1 else ()

    def _may_share(self, entry: Entry) -> bool:
        """What has gone wrong once, or half of a block, runs alone: no other theta may be to blame for its outcome."""
        evaluation = entry.evaluation
        troubled = not entry.rank.fresh or evaluation in self._apart or evaluation in self._troubled
        return not troubled and evaluation.block in entry.case.blocks()
