"""The scheduler's own picture of the workers: their sizes, what they hold, what they have compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lobench.core.case import CaseInfo
from lobench.core.schedule_events import EvaluationId, Size
from lobench.core.schedule_queue import Entry

__all__ = ["Leased", "Worker", "Workers"]

_NEARLY = 0.5  # of the longest: as long as that, a case that the worker has compiled goes first


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A queue's entry in a worker's hands since a time."""

    lease: int
    entry: Entry
    since: float

    @property
    def evaluation(self) -> EvaluationId:
        return self.entry.evaluation

    @property
    def case(self) -> CaseInfo:
        return self.entry.case

    @property
    def deadline(self) -> float:
        return self.since + self.case.timeout_seconds


@dataclass(slots=True, kw_only=True)
class Worker:
    """One worker; its size is fixed when it starts, since its cores and device are part of what fixes the bits."""

    size: Size
    ready: bool = False
    lease: Leased | None = None
    compiled: set[str] = field(default_factory=set)


class Workers:
    """The living ones, by number; a number is never used again."""

    def __init__(self, max_cores: int, max_gpus: float = math.inf) -> None:
        self.max_cores, self.max_gpus = max_cores, max_gpus
        self._workers: dict[int, Worker] = {}
        self._next = 0

    def start(self, size: Size) -> int:
        number, self._next = self._next, self._next + 1
        self._workers[number] = Worker(size=size)
        return number

    def get(self, number: int) -> Worker | None:
        return self._workers.get(number)

    def remove(self, number: int) -> Worker | None:
        return self._workers.pop(number, None)

    def busy(self) -> list[tuple[int, Worker, Leased]]:
        return [(number, worker, worker.lease) for number, worker in self._workers.items() if worker.lease is not None]

    def has_room(self, size: Size, gone: Sequence[int] = ()) -> bool:
        """Says whether one more of that size may be started, where some others are gone.

        What no machine has (yet) is waited for by one worker, so that the executor knows what is wanted.
        """
        staying = [worker.size for number, worker in self._workers.items() if number not in gone]
        if not self._is_possible(size):
            return size not in staying
        return self._fit([*staying, size])

    def surplus(self) -> list[int]:
        """Returns workers that never became ready and are more than there is room for, the last started first."""
        chosen: list[int] = []
        for number, worker in reversed(self._workers.items()):
            if self._fit([worker.size for other, worker in self._workers.items() if other not in chosen]):
                break
            if not worker.ready and self._is_possible(worker.size):
                chosen.append(number)
        return chosen

    def _is_possible(self, size: Size) -> bool:
        return size.num_cpus <= self.max_cores and size.num_gpus <= self.max_gpus

    def _fit(self, sizes: Sequence[Size]) -> bool:
        """Says whether those that can be there at all can be there together."""
        real = [size for size in sizes if self._is_possible(size)]
        return (
            sum(size.num_cpus for size in real) <= self.max_cores
            and math.fsum(size.num_gpus for size in real) <= self.max_gpus
        )

    def idle(self, size: Size | None = None) -> list[int]:
        """Returns those that are ready and hold nothing, of one size or of any."""
        return [
            number
            for number, worker in self._workers.items()
            if worker.ready and worker.lease is None and size in (None, worker.size)
        ]

    def count(self, size: Size) -> int:
        return sum(worker.size == size for worker in self._workers.values())

    def count_starting(self, size: Size) -> int:
        return sum(worker.size == size and not worker.ready for worker in self._workers.values())

    def in_the_way(self, size: Size) -> list[int]:
        """Returns workers of other sizes that hold nothing and whose end makes room for one of `size`.

        Empty where there is room already, or where ending them all would not make enough.
        """
        if self.has_room(size):
            return []
        chosen: list[int] = []
        for number, worker in self._workers.items():
            if worker.lease is None and worker.size != size:
                chosen.append(number)
                if self.has_room(size, chosen):
                    return chosen
        return []

    def best_pair(self, numbers: Sequence[int], entries: Sequence[Entry]) -> tuple[int, int]:
        """Picks a worker, and an entry of a queue's first few.

        Longest first, unless a worker has compiled one that is nearly as long: compiling again costs more.

        Args:
          numbers: Workers that could take any of the entries; one at least.
          entries: In the queue's order; one at least.
        Returns:
          A worker's number and an index into `entries`.
        """
        head = entries[0].rank
        for index, (rank, _, case) in enumerate(entries):
            if rank[:2] != head[:2] or rank.shortness > _NEARLY * head.shortness:
                break
            for number in numbers:
                if case.key in self._workers[number].compiled:
                    return number, index
        return min(numbers, key=lambda number: len(self._workers[number].compiled)), 0
