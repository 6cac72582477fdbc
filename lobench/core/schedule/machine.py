"""Scheduler state machine, deterministic: no I/O, no clock, no random numbers.

`Machine.handle(event)` returns actions; equal events give equal actions, which tests check by replay. The state is
changed in place, because copying it for each event would cost more the longer the queue is.

Work is in one of four states. It is queued when it is added, and again when its worker is lost. It is leased to one
worker, or promised to a worker that computes it together with its lease. It has ended after an `Ended` action, and is
then removed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import Any

from lobench.core.schedule import events
from lobench.core.schedule.events import End, Returned, ScheduleAction, Size, Why, Work
from lobench.core.schedule.losses import Losses, Rules
from lobench.core.schedule.queue import QueueEntry, Rank, WorkQueue
from lobench.core.schedule.workers import RunningLease, Worker, Workers

__all__ = ["Durations", "Groups", "Machine"]


class Groups:
    """Groups of alike work that a worker computes together.

    Only full groups are formed, because every other size would be a further program to compile.

    Args:
      group_size: Amount of work in a group. 1: no groups.
      troubled_keys: Keys of work that lost a worker.
    """

    def __init__(self, group_size: int, troubled_keys: Container[Any]) -> None:
        self._size, self._troubled_keys = group_size, troubled_keys
        self._keys_to_run_alone: set[Any] = set()

    def companions(self, queue: WorkQueue, size: Size, entry: QueueEntry) -> list[QueueEntry]:
        """Takes the work to compute together with an entry out of the queue, and returns it. It may be empty."""
        if self._size == 1 or not self._may_share(entry):
            return []
        return queue.take_alike(size, entry, self._choose)

    def dissolve(self, worker: Worker) -> list[QueueEntry]:
        """Returns the work promised to a lost worker. If this was a group, its members run one by one from now on."""
        if worker.lease is not None and worker.lease.group_size > 1:
            self._keys_to_run_alone.update(entry.key for entry in worker.promised_entries)
        return worker.promised_entries

    def _choose(self, alike: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
        group_entries = [entry for entry in alike if self._may_share(entry)][: self._size - 1]
        return group_entries if len(group_entries) == self._size - 1 else ()

    def _may_share(self, entry: QueueEntry) -> bool:
        """Returns whether work may be in a group. Work that failed once runs alone, unaffected by other work."""
        is_troubled = (
            not entry.rank.is_first_try or entry.key in self._keys_to_run_alone or entry.key in self._troubled_keys
        )
        return not is_troubled and entry.work.alike is not None


class Durations:
    """Last duration of work per warm key, in seconds."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def estimate(self, work: Work) -> float:
        return self._seconds.get(work.warm_key, work.guess_seconds)

    def record(self, leased: RunningLease, event: Returned) -> None:
        """Records how long the work of a result took.

        This is the time since the lease if the work ran alone, and otherwise the time that the event states.
        """
        is_alone = leased.group_size == 1 and not leased.was_computed_earlier
        seconds = event.now - leased.started_at if is_alone else event.seconds
        if event.is_typical and seconds is not None:
            self._seconds[leased.work.warm_key] = seconds

    def record_timeout(self, work: Work) -> None:
        self._seconds[work.warm_key] = work.timeout_seconds


class Machine:
    """Scheduler that leases work to workers, and starts and ends workers.

    Args:
      max_cores: Number of cores that all workers may use together.
      max_gpus: Number of devices that all workers may use together; infinite if the executor decides.
      together: Largest amount of alike work that a worker computes together.
      deaths: Number of workers that died while doing work in earlier runs, by key.
      rules: Limits on deaths and failed starts.
    """

    def __init__(
        self,
        max_cores: int,
        *,
        max_gpus: float = math.inf,
        together: int = 1,
        deaths: Mapping[Any, int] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._rules = rules or Rules()
        self._workers, self._queue = Workers(max_cores, max_gpus), WorkQueue()
        self._max_width: float = max_cores
        self._losses = Losses(deaths or {}, self._rules)
        self._groups = Groups(together, self._losses)
        self._durations = Durations()
        self._works: dict[Any, Work] = {}  # work that has not ended
        self._dropped_keys: set[Any] = set()  # cancelled work that is leased or promised
        self._next_lease = 0
        self._now = 0.0
        self._last_tick = -math.inf
        self._is_draining = False
        self._actions: list[ScheduleAction] = []

    @property
    def is_draining(self) -> bool:
        """Whether no more work will be leased."""
        return self._is_draining

    @property
    def num_running(self) -> int:
        """Number of leases that have not ended."""
        return self._workers.num_busy()

    @property
    def num_workers(self) -> int:
        """Number of workers that were started and have not ended."""
        return len(self._workers)

    def work_keys(self) -> Set[Any]:
        """Returns the keys of work that has not ended."""
        return self._works.keys()

    @property
    def max_cores(self) -> int:
        """Number of cores that all workers may use together."""
        return self._workers.max_cores

    def is_idle(self, sizes: Iterable[Size]) -> bool:
        """Returns whether no work waits, and a worker is free or a worker of one of these sizes could be started."""
        if self._queue or self._workers.workers_with_promises():
            return False
        if self._workers.is_any_idle():
            return True
        return any(self._workers.has_room(self._fitting_size(size)) for size in sizes)

    def handle(self, event: events.ScheduleEvent) -> tuple[ScheduleAction, ...]:
        """Applies an event, places work, and returns the actions to take, in order."""
        return (*self.apply(event), *self.place_work())

    def apply(self, event: events.ScheduleEvent) -> tuple[ScheduleAction, ...]:
        """Applies an event without placing work, for callers with further events."""
        self._actions = []
        match event:
            case events.Add(works):
                self._add_work(works)
            case events.Drop(keys):
                self._drop_work(set(keys))
            case events.Forgive(keys):
                self._losses.clear_deaths(keys)
            case events.WorkerReady(worker, now):
                self._now = now
                self._losses.record_ready()  # counts even if the worker was ended meanwhile
                self._workers.set_ready(worker)
            case events.WorkerDied():
                self._worker_died(event)
            case events.Capacity():
                self._workers.set_machines(event)
                self._max_width = event.limit  # more than the widest machine of now, because a wider one may come
                for worker in self._workers.surplus_workers():
                    self._kill_worker(worker, "the machines have changed, and may have no room for it")
            case events.Returned():
                self._finish_lease(event)
            case events.Tick(now):
                self._tick(now)
            case events.Drain():
                self._is_draining = True
        return tuple(self._actions)

    def place_work(self) -> tuple[ScheduleAction, ...]:
        """Leases work that fits, and starts the workers that are needed."""
        self._actions = []
        if not self._is_draining:
            self._lease_fitting()
        return tuple(self._actions)

    def warm_up(self, size: Size, at_most: int | None = None) -> tuple[ScheduleAction, ...]:
        """Starts workers of a size before there is work for them, as many as there is room for.

        Args:
          size: Size of the workers.
          at_most: Largest number of workers of that size, including existing ones. None: no limit.
        """
        self._actions = []
        while not self._is_draining and self._workers.has_room(size):
            if at_most is not None and self._workers.num_of_size(size) >= at_most:
                break
            self._start_worker(size)
        return tuple(self._actions)

    def check(self) -> None:
        """Checks that the state is consistent. Used by tests after each event.

        Raises:
          AssertionError: The state is inconsistent.
        """
        self._workers.check()
        queued_keys = [entry.key for entry in self._queue]
        assigned_keys = [entry.key for entry in self._workers.assigned_entries()]
        key_counts = Counter([*queued_keys, *assigned_keys])
        assert not (duplicates := [key for key, count in key_counts.items() if count > 1]), (
            f"in two states: {duplicates}"
        )
        assert key_counts.keys() == self._works.keys(), (
            f"lost, or ended and kept: {key_counts.keys() ^ self._works.keys()}"
        )
        assert self._dropped_keys <= set(assigned_keys), "dropped, and neither leased nor promised"
        leases = [leased.lease for _, _, leased in self._workers.busy_workers()]
        assert len(set(leases)) == len(leases) and max(leases, default=-1) < self._next_lease, "a lease given twice"
        for number, worker, leased in self._workers.busy_workers():
            assert leased.started_at <= self._now, f"worker {number} was leased something in the future"
            assert leased.deadline >= self._last_tick, f"worker {number} is past its deadline, and was not ended"
            assert len(worker.promised_entries) < leased.group_size or leased.was_computed_earlier, (
                f"worker {number} was promised too much"
            )
            is_fitting = worker.size == self._fitting_size(leased.work.size) or self._workers.was_resized
            assert is_fitting, f"worker {number} has another size"

    # Work.

    def _add_work(self, works: Iterable[Work]) -> None:
        for work in works:
            if work.key in self._works:
                self._dropped_keys.discard(work.key)
                continue
            self._works[work.key] = work
            size = self._fitting_size(work.size)
            rank = Rank(1, work.rank, -size.num_cpus, -self._durations.estimate(work))
            self._queue.push(size, QueueEntry(rank, work.key, work))

    def _drop_work(self, keys: set[Any]) -> None:
        self._queue.remove(keys)
        assigned_keys = {entry.key for entry in self._workers.assigned_entries()}
        self._dropped_keys |= keys & assigned_keys
        for key in keys - assigned_keys:
            self._works.pop(key, None)

    def _requeue(self, entry: QueueEntry) -> None:
        if entry.key in self._dropped_keys:
            self._forget_work(entry.work)
        else:
            self._queue.push(self._fitting_size(entry.work.size), entry)

    def _retry_work(self, leased: RunningLease) -> None:
        """Queues work before all other work, so that a retry does not run alone at the end."""
        self._requeue(leased.entry._replace(rank=leased.entry.rank._replace(is_first_try=0)))

    def _end_work(self, work: Work, end: End, lease: int | None = None, message: str = "") -> None:
        self._forget_work(work)
        self._actions.append(events.Ended(work, end, lease, message))

    def _forget_work(self, work: Work) -> None:
        del self._works[work.key]
        self._dropped_keys.discard(work.key)

    def _fitting_size(self, size: Size) -> Size:
        return size if size.num_cpus <= self._max_width else size._replace(num_cpus=int(self._max_width))

    # Workers.

    def _worker_died(self, event: events.WorkerDied) -> None:
        self._now = event.now
        removed_worker = self._remove_worker(event.worker)
        if removed_worker is None:
            return
        if (
            not removed_worker.is_ready
            and not event.lost
            and (reason := self._losses.record_failed_start(event.message))
        ):
            self._actions.append(events.Fail(reason))
            self._is_draining = True
        if removed_worker.lease is not None:
            self._count_death(removed_worker.lease, event.message, lost=event.lost)

    def _count_death(self, leased: RunningLease, message: str, *, lost: bool) -> None:
        """Counts a death of the worker of this work, and retries the work or ends it as poisoned."""
        poison_reason = self._losses.record_death(leased.work.key, message, lost=lost)
        if not lost:
            self._actions.append(events.Death(leased.work, self._losses.num_deaths(leased.work.key)))
        if poison_reason:
            self._end_work(leased.work, End.POISONED, message=poison_reason)
        else:
            self._retry_work(leased)

    def _finish_lease(self, event: events.Returned) -> None:
        self._now = event.now
        worker = self._workers.get(event.worker)
        leased = worker.lease if worker is not None else None
        if worker is None or leased is None or leased.lease != event.lease:
            return  # the lease was taken back, so its result is not wanted any more
        self._workers.release(event.worker)
        worker.warm_keys.add(leased.work.warm_key)
        if event.replace_worker:
            self._kill_worker(event.worker, "it reported that it is broken")
        if event.is_void:
            self._retry_work(leased)
        else:
            self._durations.record(leased, event)
            self._end_work(leased.work, End.RETURNED, event.lease)

    def _tick(self, now: float) -> None:
        self._now = self._last_tick = now
        for number, leased in self._workers.overdue_leases(now):
            self._kill_worker(number, f"ran longer than {leased.deadline - leased.started_at:g} s")
            self._handle_overdue(leased)

    def _handle_overdue(self, leased: RunningLease) -> None:
        text = f"ran longer than {leased.work.timeout_seconds:g} s"
        if leased.group_size > 1:
            self._retry_work(leased)  # each alone, because any of them may be the one that hangs
        elif self._rules.is_deadline_death:
            self._count_death(leased, text, lost=False)
        else:
            self._durations.record_timeout(leased.work)
            self._end_work(leased.work, End.TIMEOUT, message=text)

    def _kill_worker(self, worker: int, reason: str) -> None:
        self._remove_worker(worker)
        self._actions.append(events.KillWorker(worker, reason))

    def _remove_worker(self, number: int) -> Worker | None:
        """Removes a worker. Work promised to it is queued again."""
        worker = self._workers.remove(number)
        for entry in self._groups.dissolve(worker) if worker is not None else ():
            self._requeue(entry)
        return worker

    # Placing work.

    def _lease_fitting(self) -> None:
        """Leases work that fits. Work is passed over only if a worker of its size exists or is starting."""
        for number in self._workers.workers_with_promises():
            worker = self._workers.get(number)
            assert worker is not None
            self._lease_work(number, worker.promised_entries.pop(0), why=Why.KEPT)
        handled_sizes: list[Size] = []
        while sizes := [size for size in self._queue.sizes() if size not in handled_sizes]:
            size = sizes[0]
            if fitting_workers := self._workers.idle_workers(size):
                self._lease_one(size, fitting_workers)
            elif self._make_room(size, may_kill=not handled_sizes):
                handled_sizes.append(size)
            else:
                break

    def _lease_one(self, size: Size, fitting: Sequence[int]) -> None:
        number, reason = fitting[0], Why.FIRST

        def choose(entries: Sequence[QueueEntry]) -> int:
            nonlocal number, reason
            number, index, reason = self._workers.best_pair(fitting, entries)
            return index

        entry = self._queue.take(size, choose)
        worker = self._workers.get(number)
        assert worker is not None
        worker.promised_entries += self._groups.companions(self._queue, size, entry)
        self._lease_work(
            number, entry, companions=tuple(companion.work for companion in worker.promised_entries), why=reason
        )

    def _lease_work(self, number: int, entry: QueueEntry, *, companions: tuple[Work, ...] = (), why: Why) -> None:
        group_size = 1 + len(companions)
        lease = self._next_lease
        self._next_lease += 1
        deadline = self._now + entry.work.timeout_seconds * group_size
        is_kept = why is Why.KEPT
        leased = RunningLease(
            lease=lease,
            entry=entry,
            started_at=self._now,
            deadline=deadline,
            group_size=group_size,
            was_computed_earlier=is_kept,
        )
        self._workers.lease(number, leased)
        self._actions.append(events.WorkLease(number, lease, entry.work, deadline, companions, why))

    def _make_room(self, size: Size, *, may_kill: bool) -> bool:
        """Starts workers of a size, and ends idle workers of other sizes if that makes room.

        Returns:
          Whether there is a worker of that size, which will run the waiting work.
        """
        for _ in range(self._queue.num_waiting(size) - self._workers.num_starting(size)):
            for number in self._workers.workers_in_the_way(size) if may_kill else ():
                self._kill_worker(number, "another size is needed")
            if not self._workers.has_room(size):
                break
            self._start_worker(size)
        return self._workers.num_of_size(size) > 0

    def _start_worker(self, size: Size) -> None:
        self._actions.append(events.StartWorker(self._workers.start(size), size))
