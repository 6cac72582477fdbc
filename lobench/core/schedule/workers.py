"""Scheduler's view of the workers: sizes, leases, compiled programs."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lobench.core.schedule.events import Capacity, Size, Why, Work
from lobench.core.schedule.placement import has_place
from lobench.core.schedule.queue import QueueEntry

__all__ = ["RunningLease", "Worker", "Workers"]

_WARM_FRACTION = 0.5  # work that is warm on a worker goes first if it takes this fraction of the longest work, or more


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLease:
    """A lease of queued work to a worker.

    Attributes:
      lease: Number of the lease.
      entry: Entry of the queue.
      started_at: Time of the lease.
      deadline: Time after which the worker is ended.
      group_size: Amount of work that the worker computes for this lease, including promised work.
      was_computed_earlier: Whether the worker computed the work together with an earlier lease.
    """

    lease: int
    entry: QueueEntry
    started_at: float
    deadline: float
    group_size: int = 1
    was_computed_earlier: bool = False

    @property
    def work(self) -> Work:
        return self.entry.work


@dataclass(slots=True, kw_only=True)
class Worker:
    """State of one worker. Its size is fixed when it starts, since cores and devices affect the bits of results.

    Attributes:
      warm_keys: Warm keys of the work that it has run.
      promised_entries: Work that it computes together with its lease, and that is leased to it next.
    """

    size: Size
    is_ready: bool = False
    lease: RunningLease | None = None
    warm_keys: set[str] = field(default_factory=set)
    promised_entries: list[QueueEntry] = field(default_factory=list)


class Workers:
    """Workers by number. A number is never used again.

    Queries made at each event (idle workers, room for another) do not take longer with more workers.
    """

    def __init__(self, max_cores: int, max_gpus: float = math.inf) -> None:
        self.max_cores, self.max_gpus = max_cores, max_gpus
        self.was_resized = False
        self._machines: Counter[Size] = Counter()  # empty: a single machine with all cores and devices
        self._workers: dict[int, Worker] = {}
        self._next_number = 0
        self._sizes: Counter[Size] = Counter()
        self._starting_sizes: Counter[Size] = Counter()
        self._idle_workers: dict[Size, list[int]] = {}  # by number
        self._promised_workers: set[int] = set()  # idle workers with promised work
        self._busy_leases: dict[int, RunningLease] = {}  # by lease
        self._earliest_deadline = math.inf  # lower bound of all deadlines
        self._room_by_size: dict[Size, bool] = {}  # answers of `has_room` since workers or machines changed

    def set_machines(self, capacity: Capacity) -> None:
        """Sets the machines.

        If the cluster can grow, more workers may be requested than fit now, up to `capacity.limit` cores.
        """
        self._room_by_size.clear()
        self._machines = Counter(capacity.machines)
        self.was_resized = True
        if capacity.limit < math.inf:
            self.max_cores = int(capacity.limit)
            self.max_gpus = math.inf
        else:
            self.max_cores = max(sum(machine.num_cpus for machine in capacity.machines), 1)
            self.max_gpus = math.fsum(machine.num_gpus for machine in capacity.machines)

    def __len__(self) -> int:
        return len(self._workers)

    def check(self) -> None:
        """Checks that all counts are consistent. Used by tests.

        Raises:
          AssertionError: A count is inconsistent.
        """
        ready_workers = {number: worker for number, worker in self._workers.items() if worker.is_ready}
        busy_workers = {number: worker.lease for number, worker in ready_workers.items() if worker.lease is not None}
        assert self._busy_leases == busy_workers, "busy are those that hold a lease; only one that is ready does"
        assert list(self._busy_leases.values()) == sorted(
            busy_workers.values(), key=lambda held_lease: held_lease.lease
        ), "they go by lease"
        assert all(leased.deadline >= self._earliest_deadline for leased in busy_workers.values()), (
            "a deadline would be missed"
        )
        idle_workers = {number: worker for number, worker in ready_workers.items() if worker.lease is None}
        numbers_by_size: dict[Size, list[int]] = {}
        for number, worker in sorted(idle_workers.items()):
            numbers_by_size.setdefault(worker.size, []).append(number)
        idle_of_size = {size: numbers for size, numbers in self._idle_workers.items() if numbers}
        assert idle_of_size == numbers_by_size, "idle are those that are ready and hold none"
        assert self._promised_workers == {
            number for number, worker in idle_workers.items() if worker.promised_entries
        }, "promised, and unknown"
        assert +self._sizes == Counter(worker.size for worker in self._workers.values()), "sizes are miscounted"
        assert self._room_by_size == {size: self._finds_room(size) for size in self._room_by_size}, (
            "the recorded room is wrong"
        )
        starting_sizes = Counter(worker.size for worker in self._workers.values() if not worker.is_ready)
        assert +self._starting_sizes == starting_sizes, "starting workers are miscounted"
        assert not any(worker.promised_entries for worker in self._workers.values() if not worker.is_ready), (
            "promised too early"
        )
        if not self.was_resized:  # workers of removed machines stay until their deaths are reported
            possible_sizes = [worker.size for worker in self._workers.values() if self._is_possible(worker.size)]
            num_cores = sum(size.num_cpus for size in possible_sizes)
            num_devices = math.fsum(size.num_gpus for size in possible_sizes)
            assert num_cores <= self.max_cores, f"{num_cores} cores of {self.max_cores}"
            assert num_devices <= self.max_gpus, f"{num_devices} devices of {self.max_gpus}"

    def start(self, size: Size) -> int:
        self._room_by_size.clear()
        number, self._next_number = self._next_number, self._next_number + 1
        self._workers[number] = Worker(size=size)
        self._sizes[size] += 1
        self._starting_sizes[size] += 1
        return number

    def get(self, number: int) -> Worker | None:
        return self._workers.get(number)

    def set_ready(self, number: int) -> None:
        """Marks a worker ready. Ignored if the worker has ended."""
        worker = self._workers.get(number)
        if worker is not None and not worker.is_ready:
            self._room_by_size.clear()
            worker.is_ready = True
            self._starting_sizes[worker.size] -= 1
            self._mark_idle(number, worker)

    def lease(self, number: int, leased: RunningLease) -> None:
        worker = self._workers[number]
        self._mark_busy(number, worker)
        worker.lease = self._busy_leases[number] = leased
        self._earliest_deadline = min(self._earliest_deadline, leased.deadline)

    def release(self, number: int) -> None:
        worker = self._workers[number]
        worker.lease = None
        del self._busy_leases[number]
        self._mark_idle(number, worker)

    def _mark_idle(self, number: int, worker: Worker) -> None:
        bisect.insort(self._idle_workers.setdefault(worker.size, []), number)
        if worker.promised_entries:
            self._promised_workers.add(number)

    def _mark_busy(self, number: int, worker: Worker) -> None:
        idle_numbers = self._idle_workers[worker.size]
        del idle_numbers[bisect.bisect_left(idle_numbers, number)]
        self._promised_workers.discard(number)

    def remove(self, number: int) -> Worker | None:
        worker = self._workers.pop(number, None)
        if worker is not None:
            self._room_by_size.clear()
            self._sizes[worker.size] -= 1
            self._starting_sizes[worker.size] -= not worker.is_ready
            if worker.lease is not None:
                del self._busy_leases[number]
            elif worker.is_ready:
                self._mark_busy(number, worker)
        return worker

    def num_busy(self) -> int:
        return len(self._busy_leases)

    def busy_workers(self) -> list[tuple[int, Worker, RunningLease]]:
        return [(number, self._workers[number], leased) for number, leased in self._busy_leases.items()]

    def overdue_leases(self, now: float) -> list[tuple[int, RunningLease]]:
        """Returns the leases past their deadline, oldest first."""
        if now <= self._earliest_deadline:
            return []
        self._earliest_deadline = min((leased.deadline for leased in self._busy_leases.values()), default=math.inf)
        return [(number, leased) for number, leased in self._busy_leases.items() if now > leased.deadline]

    def assigned_entries(self) -> Iterator[QueueEntry]:
        """Yields all work that is leased or promised."""
        for worker in self._workers.values():
            if worker.lease is not None:
                yield worker.lease.entry
            yield from worker.promised_entries

    def has_room(self, size: Size) -> bool:
        """Returns whether one more worker of a size may be started.

        If no machine is large enough yet, one worker may be requested, so that the executor knows the needed size.
        """
        if (is_free := self._room_by_size.get(size)) is None:
            is_free = self._room_by_size[size] = self._finds_room(size)
        return is_free

    def _finds_room(self, size: Size) -> bool:
        if not self._is_possible(size):
            return not self._sizes[size]
        return self._workers_fit(self._sizes, self._starting_sizes, size)

    def surplus_workers(self) -> list[int]:
        """Returns starting workers for which there may no longer be room, the latest first."""
        staying_sizes = self._sizes.copy()
        starting_sizes = self._starting_sizes.copy()
        surplus_workers = []
        for number, worker in reversed(self._workers.items()):
            if self._workers_fit(staying_sizes, starting_sizes):
                break
            if not worker.is_ready and self._is_possible(worker.size):
                surplus_workers.append(number)
                staying_sizes[worker.size] -= 1
                starting_sizes[worker.size] -= 1
        return surplus_workers

    def _is_possible(self, size: Size) -> bool:
        machines = self._machines or (Size(self.max_cores, self.max_gpus),)
        return any(size.num_cpus <= machine.num_cpus and size.num_gpus <= machine.num_gpus for machine in machines)

    def _workers_fit(self, sizes: Counter[Size], starting: Counter[Size], extra_size: Size | None = None) -> bool:
        """Returns whether all workers of possible sizes, and a worker of `extra_size`, fit on the machines together."""
        placed_sizes = Counter({size: count for size, count in sizes.items() if count and self._is_possible(size)})
        if extra_size is not None:
            placed_sizes[extra_size] += 1
        if (
            sum(count * size.num_cpus for size, count in placed_sizes.items()) > self.max_cores
            or math.fsum(count * size.num_gpus for size, count in placed_sizes.items()) > self.max_gpus
        ):
            return False
        # The executor places workers. Workers of a single size are never in each other's way.
        return len(placed_sizes) < 2 or all(
            has_place(self._machines, placed_sizes, size)
            for size in placed_sizes
            if starting[size] or size == extra_size
        )

    def is_any_idle(self) -> bool:
        """Returns whether any worker is ready and has no lease."""
        return any(self._idle_workers.values())

    def idle_workers(self, size: Size) -> Sequence[int]:
        """Returns the ready workers of a size without a lease, oldest first."""
        return self._idle_workers.get(size, ())

    def workers_with_promises(self) -> list[int]:
        """Returns the workers without a lease that have promised work, oldest first."""
        return sorted(self._promised_workers)

    def num_of_size(self, size: Size) -> int:
        return self._sizes[size]

    def num_starting(self, size: Size) -> int:
        return self._starting_sizes[size]

    def workers_in_the_way(self, size: Size) -> list[int]:
        """Returns workers of other sizes without a lease that must end to make room for a worker of `size`.

        Empty if there is room already, or if there would not be enough even if all of them ended.
        """
        if self.has_room(size) or not any(count for other_size, count in self._sizes.items() if other_size != size):
            return []
        staying_sizes = self._sizes.copy()
        starting_sizes = self._starting_sizes.copy()
        ending_workers: list[int] = []
        for number, worker in self._workers.items():
            if worker.lease is None and worker.size != size:
                ending_workers.append(number)
                staying_sizes[worker.size] -= 1
                starting_sizes[worker.size] -= not worker.is_ready
                if self._workers_fit(staying_sizes, starting_sizes, size):
                    return ending_workers
        return []

    def best_pair(self, numbers: Sequence[int], entries: Sequence[QueueEntry]) -> tuple[int, int, Why]:
        """Returns the best worker for one of the first entries of a queue.

        The longest work goes first, unless a worker has compiled the program of work that is nearly as long, because
        compiling again costs more.

        Args:
          numbers: Workers that can run any of the entries; at least one.
          entries: First entries of the queue, in order; at least one.
        Returns:
          The number of the worker, an index into `entries`, and the reason.
        """
        first_rank = entries[0].rank
        reason = Why.FIRST if first_rank.is_first_try else Why.AGAIN
        for index, (rank, _, work) in enumerate(entries):
            if rank[:2] != first_rank[:2] or rank.shortness > _WARM_FRACTION * first_rank.shortness:
                break
            for number in numbers:
                if work.warm_key in self._workers[number].warm_keys:
                    return number, index, Why.WARM if index else reason
        return min(numbers, key=lambda number: len(self._workers[number].warm_keys)), 0, reason
