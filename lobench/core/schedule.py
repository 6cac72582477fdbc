"""Who runs what, and when: the chief's decisions as a deterministic machine without I/O, clock or chance.

`Schedule.handle(event)` returns actions; the same events give the same actions. It changes itself in place instead of
returning a new state, because a copy for each of ten thousand results would make the chief slower the longer its queue
is; that equal histories decide equally is tested by replay.

An evaluation is (theta's sha256, case, seed block). Only a `Record` action makes an outcome official.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Outcome
from lobench.core.schedule_events import (
    Action,
    Admit,
    CasesKnown,
    CheckpointSeen,
    Done,
    Drain,
    EvaluationId,
    Event,
    Fail,
    FinishCheckpoint,
    Finished,
    History,
    KillWorker,
    Lease,
    Policy,
    Record,
    RecordDeath,
    RecordSplit,
    RunEnded,
    Skip,
    StartWorker,
    Tick,
    WorkerDied,
    WorkerReady,
)

__all__ = [
    "Action",
    "Admit",
    "CasesKnown",
    "CheckpointSeen",
    "Done",
    "Drain",
    "EvaluationId",
    "Event",
    "Fail",
    "FinishCheckpoint",
    "Finished",
    "History",
    "KillWorker",
    "Lease",
    "Policy",
    "Record",
    "RecordDeath",
    "RecordSplit",
    "RunEnded",
    "Schedule",
    "Skip",
    "StartWorker",
    "Tick",
    "WorkerDied",
    "WorkerReady",
]

_MAX_DEATHS = 2  # of one evaluation's workers: then the case is poison
_MAX_FAILED_STARTS = 3  # in a row: then no worker will ever be ready
_AFFINITY_WINDOW = 16  # how far down the queue a case is looked for that the worker has compiled


@dataclass(slots=True)
class _Worker:
    num_cpus: int
    ready: bool = False
    lease: _Leased | None = None
    compiled: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Leased:
    lease: int
    evaluation: EvaluationId
    case: CaseInfo
    deadline: float
    priority: tuple[float, ...]


class Schedule:
    """The machine.

    Args:
      max_cores: Cores that workers may take together.
      policy: Which waiting checkpoints are admitted.
      history: What the ledger knows.
    """

    def __init__(self, max_cores: int, policy: Policy, history: History | None = None) -> None:
        history = history or History()
        self._max_cores, self._policy = max_cores, policy
        self._recorded = set(history.recorded)
        self._splits = set(history.splits)
        self._deaths = dict(history.deaths)
        self._admissions = dict(history.admissions)
        self._finished = set(history.finished)
        self._durations = dict(history.durations)
        self._cases: tuple[CaseInfo, ...] | None = None
        self._checkpoints: dict[int, Checkpoint] = {}
        self._waiting: list[int] = []
        self._open: dict[str, set[int]] = {}  # admitted, unfinished positions by sha256
        self._outstanding: dict[str, set[EvaluationId]] = {}
        self._queue: list[tuple[tuple[float, ...], EvaluationId, CaseInfo]] = []
        self._workers: dict[int, _Worker] = {}
        self._next_worker = self._next_lease = 0
        self._failed_starts = 0
        self._now = 0.0
        self._ended = self._draining = self._done = False
        self._actions: list[Action] = []

    def handle(self, event: Event) -> tuple[Action, ...]:
        """Takes one event and returns what is to be done, in order."""
        self._actions = []
        match event:
            case CasesKnown(cases):
                self._know_cases(cases)
            case CheckpointSeen(position, checkpoint):
                self._see(position, checkpoint)
            case RunEnded():
                self._ended = True
            case WorkerReady(worker, now):
                self._ready(worker, now)
            case WorkerDied(worker, now, message):
                self._died(worker, now, message)
            case Finished():
                self._finish(event)
            case Tick(now):
                self._tick(now)
            case Drain():
                self._draining = True
        self._admit()
        self._place()
        self._check_done()
        return tuple(self._actions)

    # Checkpoints.

    def _know_cases(self, cases: tuple[CaseInfo, ...]) -> None:
        if self._cases is not None:
            return
        self._cases = cases
        for sha256 in list(self._open):
            self._expand(sha256)

    def _see(self, position: int, checkpoint: Checkpoint) -> None:
        if position in self._checkpoints:
            return
        self._checkpoints[position] = checkpoint
        if position in self._finished or self._admissions.get(position) == "skipped":
            return
        if self._admissions.get(position) == "admitted":
            self._open_position(position)
        else:
            self._waiting.append(position)

    def _open_position(self, position: int) -> None:
        sha256 = self._checkpoints[position].sha256
        self._open.setdefault(sha256, set()).add(position)
        if self._cases is not None:
            self._expand(sha256)

    def _expand(self, sha256: str) -> None:
        """Queues what a theta still needs; one that needs nothing is finished at once."""
        assert self._cases is not None
        if sha256 not in self._outstanding:
            outstanding = self._outstanding[sha256] = set()
            position = min(self._open[sha256])
            for case in self._cases:
                for block in case.blocks():
                    self._queue_block(outstanding, position, EvaluationId(sha256, case.key, block), case)
        self._finish_if_complete(sha256)

    def _queue_block(
        self, outstanding: set[EvaluationId], position: int, evaluation: EvaluationId, case: CaseInfo
    ) -> None:
        if evaluation in self._splits:
            for half in evaluation.block.halves():
                self._queue_block(outstanding, position, EvaluationId(evaluation.sha256, case.key, half), case)
        elif evaluation not in self._recorded:
            outstanding.add(evaluation)
            priority = (1.0, float(position), -self._estimate(evaluation, case))
            heapq.heappush(self._queue, (priority, evaluation, case))

    def _estimate(self, evaluation: EvaluationId, case: CaseInfo) -> float:
        """Seconds, from recorded durations; without one, a guess in which only the order matters."""
        guess = 1e-3 * case.num_inner_steps * evaluation.block.size
        return self._durations.get(case.key, guess)

    def _finish_if_complete(self, sha256: str) -> None:
        if self._outstanding.get(sha256):
            return
        for position in sorted(self._open.pop(sha256, ())):
            self._finished.add(position)
            self._actions.append(FinishCheckpoint(position))
        self._outstanding.pop(sha256, None)

    def _admit(self) -> None:
        """Asks the policy; positions below the newest may only be skipped, the newest may also be the last of all."""
        if not self._waiting or self._draining:
            return
        ready = [worker for worker in self._workers.values() if worker.ready and worker.lease is None]
        idle = bool(ready) and not self._queue
        self._waiting.sort()
        run, skip = self._policy.admit(tuple(self._waiting), idle=idle, last=self._ended)
        for position in (*skip, *run):
            self._waiting.remove(position)
        for position in skip:
            self._admissions[position] = "skipped"
            self._actions.append(Skip(position))
        for position in run:
            self._admissions[position] = "admitted"
            self._actions.append(Admit(position))
            self._open_position(position)

    # Workers.

    def _ready(self, worker: int, now: float) -> None:
        self._now = now
        if worker in self._workers:
            self._workers[worker].ready = True
            self._failed_starts = 0

    def _died(self, worker: int, now: float, message: str) -> None:
        self._now = now
        lost = self._workers.pop(worker, None)
        if lost is None:
            return
        if not lost.ready:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS:
                self._actions.append(
                    Fail(f"{self._failed_starts} workers in a row died before they were ready: {message}")
                )
                self._draining = True
        leased = lost.lease
        if leased is None:
            return
        deaths = self._deaths[leased.evaluation] = self._deaths.get(leased.evaluation, 0) + 1
        self._actions.append(RecordDeath(leased.evaluation))
        if deaths >= _MAX_DEATHS:
            text = f"its worker died {deaths} times; the last one: {message}"
            self._record(leased, Outcome.POISONED, None, text)
        else:
            # First in the queue: the rest must not wait for a retry at the very end.
            heapq.heappush(self._queue, ((0.0, *leased.priority[1:]), leased.evaluation, leased.case))

    def _finish(self, event: Finished) -> None:
        self._now = event.now
        worker = self._workers.get(event.worker)
        leased = worker.lease if worker is not None else None
        if worker is None or leased is None or leased.lease != event.lease:
            return  # a lease that was taken back: its result is not wanted any more
        worker.lease = None
        worker.compiled.add(leased.case.key)
        if event.replace_worker:
            self._kill(event.worker, "its pytest session broke")
        if event.outcome is Outcome.OOM and self._may_split(leased):
            self._split(leased)
        else:
            self._record(leased, event.outcome, event.lease, event.message)

    def _may_split(self, leased: _Leased) -> bool:
        """A whole block is halved once; a half is not halved again."""
        return leased.evaluation.block.size > 1 and leased.evaluation.block in leased.case.blocks()

    def _split(self, leased: _Leased) -> None:
        evaluation = leased.evaluation
        self._splits.add(evaluation)
        self._actions.append(RecordSplit(evaluation))
        outstanding = self._outstanding[evaluation.sha256]
        outstanding.discard(evaluation)
        self._queue_block(outstanding, int(leased.priority[1]), evaluation, leased.case)

    def _tick(self, now: float) -> None:
        self._now = now
        for number, worker in list(self._workers.items()):
            leased = worker.lease
            if leased is not None and now > leased.deadline:
                self._kill(number, "deadline")
                text = f"ran longer than {leased.case.timeout_seconds:g} s"
                self._record(leased, Outcome.TIMEOUT, None, text)

    def _record(self, leased: _Leased, outcome: Outcome, lease: int | None, message: str) -> None:
        self._recorded.add(leased.evaluation)
        self._actions.append(Record(leased.evaluation, leased.case, outcome, lease, message))
        self._outstanding[leased.evaluation.sha256].discard(leased.evaluation)
        self._finish_if_complete(leased.evaluation.sha256)

    def _kill(self, worker: int, reason: str) -> None:
        del self._workers[worker]
        self._actions.append(KillWorker(worker, reason))

    # Placing work.

    def _cores_of(self, case: CaseInfo) -> int:
        return min(case.num_cpus, self._max_cores)

    def _free_cores(self) -> int:
        return self._max_cores - sum(worker.num_cpus for worker in self._workers.values())

    def _place(self) -> None:
        if self._draining or (self._ended and not self._queue and not self._waiting):
            return
        while self._queue and self._lease_one():
            pass
        if self._queue:
            self._make_room(self._cores_of(self._queue[0][2]))
        # At the first checkpoint workers of one core warm up; it is they who report the cases.
        while self._cases is None and self._checkpoints and self._free_cores() > 0:
            self._start(1)

    def _lease_one(self) -> bool:
        """Leases the first evaluation that an idle worker fits; nothing overtakes one that waits for room."""
        head_cores = self._cores_of(self._queue[0][2])
        idle = {number: worker for number, worker in self._workers.items() if worker.ready and worker.lease is None}
        fitting = [number for number in idle if idle[number].num_cpus == head_cores]
        if not fitting:
            return False
        window = heapq.nsmallest(_AFFINITY_WINDOW, self._queue)
        group = window[0][0][:2]
        same = [entry for entry in window if entry[0][:2] == group and self._cores_of(entry[2]) == head_cores]
        number, entry = self._best_pair(fitting, same)
        if entry == self._queue[0]:
            heapq.heappop(self._queue)
        else:
            self._queue.remove(entry)
            heapq.heapify(self._queue)
        priority, evaluation, case = entry
        leased = _Leased(self._next_lease, evaluation, case, self._now + case.timeout_seconds, priority)
        self._next_lease += 1
        self._workers[number].lease = leased
        self._actions.append(Lease(number, leased.lease, evaluation, case, leased.deadline))
        return True

    def _best_pair(
        self, fitting: Sequence[int], entries: Sequence[tuple[tuple[float, ...], EvaluationId, CaseInfo]]
    ) -> tuple[int, tuple[tuple[float, ...], EvaluationId, CaseInfo]]:
        """Longest first, unless a worker has compiled one that is nearly as long: compiling again costs more."""
        longest = -entries[0][0][2]
        for entry in entries:
            if -entry[0][2] < 0.5 * longest:
                break
            for number in fitting:
                if entry[2].key in self._workers[number].compiled:
                    return number, entry
        return min(fitting, key=lambda number: len(self._workers[number].compiled)), entries[0]

    def _make_room(self, cores: int) -> None:
        """Starts a worker of that size where the cores are there, or idle workers of other sizes can be ended."""
        if any(worker.num_cpus == cores and not worker.ready for worker in self._workers.values()):
            return
        for number, worker in list(self._workers.items()):
            if self._free_cores() >= cores:
                break
            if worker.lease is None and worker.num_cpus != cores:
                self._kill(number, "another size is needed")
        waiting = len(self._queue)
        while waiting > 0 and self._free_cores() >= cores:
            self._start(cores)
            waiting -= 1

    def _start(self, cores: int) -> None:
        self._workers[self._next_worker] = _Worker(num_cpus=cores)
        self._actions.append(StartWorker(self._next_worker, cores))
        self._next_worker += 1

    def _check_done(self) -> None:
        if self._done:
            return
        busy = any(worker.lease is not None for worker in self._workers.values())
        complete = self._ended and not self._waiting and not self._open
        if not busy and (self._draining or complete):
            self._done = True
            self._actions.append(Done())
