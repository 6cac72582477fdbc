"""What workers compile for later, beside what they run, where cores are free for that."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from lobench.core.schedule.queue import Entry, WorkQueue
from lobench.core.schedule.workers import Leased, Worker, Workers

__all__ = ["Ahead"]


class Ahead:
    """Who prepares what. Nothing rests on it: what was not prepared is compiled when it runs.

    Args:
      spare_cores: Cores of the machine beyond those that workers may take.
      troubled: Keys of works that lost a worker, kept by the machine.
    """

    def __init__(self, spare_cores: int, troubled: Container[Any]) -> None:
        self._spare_cores, self._troubled = spare_cores, troubled
        self._underway: dict[int, str] = {}  # warm keys by worker, one each
        self._refused: set[str] = set()

    def pick(self, workers: Workers, queue: WorkQueue, num_programs: int) -> Iterator[tuple[int, Entry]]:
        """Yields workers, and what each of them should compile now."""
        if not queue or not self._has_core(workers):
            return
        for number, worker, leased in workers.busy():
            if not self._has_core(workers):
                return
            if number in self._underway or len(worker.compiled) >= num_programs or not self._may_share(leased, worker):
                continue
            entry = queue.first(worker.size, lambda entry, w=worker, at=leased: self._is_wanted(entry, w, at))  # type: ignore[misc]
            if entry is not None:
                self._underway[number] = entry.work.warm_key
                yield number, entry

    def end(self, number: int, *, is_done: bool) -> str | None:
        """A worker is ready with what it prepared; returns its warm key, refused from now on where it failed."""
        warm_key = self._underway.pop(number, None)
        if warm_key is not None and not is_done:
            self._refused.add(warm_key)
        return warm_key

    def check(self, workers: Workers) -> None:
        """Raises AssertionError where what is prepared contradicts the workers."""
        assert all(workers.get(number) is not None for number in self._underway), "one that is gone prepares something"

    def _has_core(self, workers: Workers) -> bool:
        return workers.num_free_cores() + self._spare_cores > len(self._underway)

    def _may_share(self, leased: Leased, worker: Worker) -> bool:
        """What has gone wrong once runs alone: no other work may be to blame for its outcome.

        On a device nothing is compiled beside a run, since compiling there means measuring kernels; nor is a group's
        program, which has another number of thetas.
        """
        troubled = not leased.entry.rank.fresh or leased.work.key in self._troubled
        return not troubled and worker.size.num_gpus == 0 and leased.together == 1 and not worker.promised

    def _is_wanted(self, entry: Entry, worker: Worker, leased: Leased) -> bool:
        """Other threads than those of the present work would need another process."""
        key = entry.work.warm_key
        known = key in worker.compiled or key in self._refused or key == leased.work.warm_key
        return not known and entry.work.size.num_cpus == leased.work.size.num_cpus
