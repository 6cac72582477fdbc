"""The scheduler's own picture of the workers: their sizes, what they hold, what they have compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lobench.core.case import CaseInfo
from lobench.core.schedule_events import EvaluationId
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
    """One worker; its cores are fixed when it starts, since they are part of what fixes the bits."""

    num_cpus: int
    ready: bool = False
    lease: Leased | None = None
    compiled: set[str] = field(default_factory=set)


class Workers:
    """The living ones, by number; a number is never used again."""

    def __init__(self, max_cores: int) -> None:
        self.max_cores = max_cores
        self._workers: dict[int, Worker] = {}
        self._next = 0

    def start(self, num_cpus: int) -> int:
        number, self._next = self._next, self._next + 1
        self._workers[number] = Worker(num_cpus=num_cpus)
        return number

    def get(self, number: int) -> Worker | None:
        return self._workers.get(number)

    def remove(self, number: int) -> Worker | None:
        return self._workers.pop(number, None)

    def busy(self) -> list[tuple[int, Worker, Leased]]:
        return [(number, worker, worker.lease) for number, worker in self._workers.items() if worker.lease is not None]

    def free_cores(self) -> int:
        return self.max_cores - sum(worker.num_cpus for worker in self._workers.values())

    def surplus(self) -> list[int]:
        """Returns workers that never became ready and are more than the cores allow, the last started first."""
        missing, chosen = -self.free_cores(), []
        for number, worker in reversed(self._workers.items()):
            if missing > 0 and not worker.ready:
                chosen.append(number)
                missing -= worker.num_cpus
        return chosen

    def idle(self, num_cpus: int | None = None) -> list[int]:
        """Returns those that are ready and hold nothing, of one size or of any."""
        return [
            number
            for number, worker in self._workers.items()
            if worker.ready and worker.lease is None and num_cpus in (None, worker.num_cpus)
        ]

    def count(self, num_cpus: int) -> int:
        return sum(worker.num_cpus == num_cpus for worker in self._workers.values())

    def count_starting(self, num_cpus: int) -> int:
        return sum(worker.num_cpus == num_cpus and not worker.ready for worker in self._workers.values())

    def in_the_way(self, num_cpus: int) -> list[int]:
        """Returns workers of other sizes that hold nothing and whose end makes room for one of `num_cpus`.

        Empty where there is room already, or where ending them all would not make enough.
        """
        missing = num_cpus - self.free_cores()
        chosen: list[int] = []
        for number, worker in self._workers.items():
            if missing > 0 and worker.lease is None and worker.num_cpus != num_cpus:
                chosen.append(number)
                missing -= worker.num_cpus
        return chosen if missing <= 0 else []

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
