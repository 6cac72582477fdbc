"""Who runs what, and when: the chief's decisions as a deterministic machine without I/O, clock or chance.

`Schedule.handle(event)` returns actions; the same events give the same actions. It changes itself in place instead of
returning a new state, because a copy for each of ten thousand results would make the chief slower the longer its queue
is; that equal histories decide equally is tested by replay.

An evaluation is (theta's sha256, case, seed block). Only a `Record` action makes an outcome official.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lobench.core.backlog import Backlog
from lobench.core.case import CaseInfo
from lobench.core.plan import Plan
from lobench.core.result import Outcome
from lobench.core.schedule.ahead import Ahead
from lobench.core.schedule.durations import Durations
from lobench.core.schedule.events import (
    Action,
    Admit,
    Capacity,
    CasesKnown,
    CheckpointSeen,
    Done,
    Drain,
    EvaluationId,
    Event,
    Fail,
    FinishCheckpoint,
    Finished,
    Forget,
    History,
    KillWorker,
    Lease,
    Policy,
    Prepare,
    Prepared,
    Record,
    RecordDeath,
    RecordSplit,
    Reopen,
    RunEnded,
    Size,
    StartWorker,
    Tick,
    WorkerDied,
    WorkerReady,
)
from lobench.core.schedule.groups import Groups
from lobench.core.schedule.losses import Losses
from lobench.core.schedule.queue import Entry, Rank, WorkQueue
from lobench.core.schedule.workers import Leased, Worker, Workers

__all__ = ["Schedule"]


class Schedule:
    """The machine.

    Args:
      max_cores: Cores that workers may take together.
      max_gpus: Devices that they may take together; infinite where the executor knows better.
      policy: Which waiting checkpoints are admitted.
      history: What the ledger knows.
      together: Checkpoints that a worker may compute together.
      spare_cores: Cores of the machine beyond `max_cores`, for compiling ahead.
    """

    def __init__(
        self,
        max_cores: int,
        policy: Policy,
        history: History | None = None,
        *,
        max_gpus: float = math.inf,
        together: int = 1,
        spare_cores: int = 0,
    ) -> None:
        history = history or History()
        self._backlog, self._workers = Backlog(policy, history), Workers(max_cores, max_gpus)
        self._widest: float = max_cores
        self._plan = Plan(history)
        self._losses = Losses(history.deaths)
        self._groups = Groups(together, self._losses)
        self._ahead = Ahead(spare_cores, self._losses)
        self._durations = Durations(history.durations)
        self._cases: tuple[CaseInfo, ...] | None = None
        self._open: dict[str, set[int]] = {}  # admitted, unfinished positions by sha256
        self._retried: set[str] = set()  # thetas of which something is tried again
        self._outstanding: dict[str, set[EvaluationId]] = {}
        self._queue = WorkQueue()
        self._next_lease = 0
        self._now = 0.0
        self._draining = self._done = False
        self._actions: list[Action] = []

    def handle(self, event: Event) -> tuple[Action, ...]:
        """Takes one event and returns what is to be done, in order."""
        self._actions = []
        match event:
            case CasesKnown(cases):
                self._know_cases(cases)
            case CheckpointSeen(position, checkpoint):
                if self._backlog.see(position, checkpoint):
                    self._open_position(position)
            case RunEnded():
                self._backlog.has_ended = True
            case WorkerReady(worker, now):
                self._ready(worker, now)
            case WorkerDied():
                self._died(event)
            case Capacity():
                self._workers.resize(event)
                self._widest = event.limit  # no machine's: of those that come, one may be wide enough
                for worker in self._workers.surplus():
                    self._kill(worker, "the machines are others, and may have no room for it")
            case Finished():
                self._finish(event)
            case Prepared(worker, is_done):
                self._prepared(worker, is_done)
            case Tick(now):
                self._tick(now)
            case Drain():
                self._draining = True
        self._admit()
        self._place()
        self._prepare()
        self._check_done()
        return tuple(self._actions)

    @property
    def num_left(self) -> int:
        """Evaluations without an outcome, of what was admitted and what waits; at least one for each theta of these."""
        thetas = {*self._open, *self._backlog.waiting()}
        if self._cases is None:
            return len(thetas)
        return sum(1 for sha256 in thetas for _ in self._plan.missing(sha256, self._cases))

    # Checkpoints.

    def _know_cases(self, cases: tuple[CaseInfo, ...]) -> None:
        if self._cases is not None:
            return
        self._cases = cases
        for sha256 in list(self._open):
            self._expand(sha256)

    def _open_position(self, position: int) -> None:
        sha256 = self._backlog.sha256(position)
        self._open.setdefault(sha256, set()).add(position)
        if self._cases is not None:
            self._expand(sha256)

    def _expand(self, sha256: str) -> None:
        """Queues what a theta still needs; one that needs nothing is finished at once."""
        assert self._cases is not None
        if retried := self._plan.retried(sha256, self._cases):
            self._plan.forget(retried)
            self._losses.forget(retried)
            self._retried.add(sha256)
            self._actions.append(Forget(tuple(retried)))
        if sha256 not in self._outstanding:
            outstanding = self._outstanding[sha256] = set()
            position = min(self._open[sha256])
            for evaluation, case in self._plan.missing(sha256, self._cases):
                self._queue_evaluation(outstanding, position, evaluation, case)
        self._finish_if_complete(sha256)

    def _queue_evaluation(
        self, outstanding: set[EvaluationId], position: int, evaluation: EvaluationId, case: CaseInfo
    ) -> None:
        outstanding.add(evaluation)
        size = self._size_of(case)
        rank = Rank(1, position, -size.num_cpus, -self._durations.estimate(evaluation, case))
        self._queue.push(size, Entry(rank, evaluation, case))

    def _finish_if_complete(self, sha256: str) -> None:
        if self._outstanding.get(sha256):
            return
        for position in sorted(self._open.pop(sha256, ())):
            self._backlog.finish(position)
            self._actions.append(FinishCheckpoint(position))
        self._outstanding.pop(sha256, None)

    def _admit(self) -> None:
        if not self._backlog.has_waiting or self._draining:
            return
        for action in self._backlog.decide(idle=self._is_idle()):
            self._actions.append(action)
            if isinstance(action, Admit):
                self._open_position(action.position)
        if self._cases is not None:
            for position, is_chosen in self._backlog.take_replans():
                self._replan(position, self._cases, is_chosen=is_chosen)

    def _replan(self, position: int, cases: tuple[CaseInfo, ...], *, is_chosen: bool) -> None:
        """Takes up again what an earlier start was through with, where something of today's plan is missing."""
        sha256 = self._backlog.sha256(position)
        is_retried = sha256 in self._retried or self._plan.retried(sha256, cases)
        if is_retried or (is_chosen and any(True for _ in self._plan.missing(sha256, cases))):
            self._backlog.reopen(position)
            self._actions.append(Reopen(position))
            self._open_position(position)

    def _is_idle(self) -> bool:
        """Whether nothing is queued and a worker is free, or could be started: after a deadline there may be none."""
        if self._queue or self._workers.promised():
            return False
        if self._workers.idle():
            return True
        return any(self._workers.has_room(self._size_of(case)) for case in self._cases or ())

    # Workers.

    def _ready(self, worker: int, now: float) -> None:
        self._now = now
        self._losses.started()  # also by one that was ended meanwhile
        self._workers.set_ready(worker)

    def _died(self, event: WorkerDied) -> None:
        self._now = event.now
        beside = self._ahead.end(event.worker, is_done=False)
        dead = self._remove(event.worker)
        if dead is None:
            return
        if not dead.ready and not event.lost and (reason := self._losses.failed_start(event.message)):
            self._actions.append(Fail(reason))
            self._draining = True
        if (leased := dead.lease) is None:
            return
        if not event.lost and beside not in (None, leased.case.key):
            return self._retry(leased)  # alone: which of the two killed it is not known
        if not event.lost:
            self._actions.append(RecordDeath(leased.evaluation))
        if reason := self._losses.died(leased.evaluation, event.message, lost=event.lost):
            self._record(leased, Outcome.POISONED, None, reason)
        else:
            self._retry(leased)

    def _retry(self, leased: Leased) -> None:
        """Queues it first: the rest must not wait for a retry at the very end."""
        retry = leased.entry._replace(rank=leased.entry.rank._replace(fresh=0))
        self._queue.push(self._size_of(leased.case), retry)

    def _finish(self, event: Finished) -> None:
        self._now = event.now
        worker = self._workers.get(event.worker)
        leased = worker.lease if worker is not None else None
        if worker is None or leased is None or leased.lease != event.lease:
            return  # a lease that was taken back: its result is not wanted any more
        self._workers.release(event.worker)
        worker.compiled.add(leased.case.key)
        if event.replace_worker:
            self._kill(event.worker, "its pytest session broke")
        if event.is_void:
            self._retry(leased)
        elif event.outcome is Outcome.OOM and self._may_split(leased):
            self._split(leased)
        else:
            self._durations.learn(leased, event)
            self._record(leased, event.outcome, event.lease, event.message)

    def _may_split(self, leased: Leased) -> bool:
        """A whole block is halved once; a half is not halved again."""
        return leased.evaluation.block.size > 1 and leased.evaluation.block in leased.case.blocks()

    def _split(self, leased: Leased) -> None:
        evaluation = leased.evaluation
        self._plan.split(evaluation)
        self._actions.append(RecordSplit(evaluation))
        outstanding = self._outstanding[evaluation.sha256]
        outstanding.discard(evaluation)
        for half, case in self._plan.missing_of(evaluation, leased.case):
            self._queue_evaluation(outstanding, leased.entry.rank.position, half, case)

    def _tick(self, now: float) -> None:
        self._now = now
        for number, _, leased in self._workers.busy():
            if now > leased.deadline:
                beside = self._ahead.end(number, is_done=False)
                self._kill(number, "deadline")
                if leased.together > 1 or beside not in (None, leased.case.key):
                    self._retry(leased)  # alone: which of them hangs is not known
                    continue
                self._durations.timed_out(leased.case)
                text = f"ran longer than {leased.case.timeout_seconds:g} s"
                self._record(leased, Outcome.TIMEOUT, None, text)

    def _record(self, leased: Leased, outcome: Outcome, lease: int | None, message: str) -> None:
        self._plan.record(leased.evaluation)
        self._actions.append(Record(leased.evaluation, leased.case, outcome, lease, message))
        self._outstanding[leased.evaluation.sha256].discard(leased.evaluation)
        self._finish_if_complete(leased.evaluation.sha256)

    def _kill(self, worker: int, reason: str) -> None:
        self._remove(worker)
        self._actions.append(KillWorker(worker, reason))

    def _remove(self, number: int) -> Worker | None:
        """Forgets a worker; what it was promised waits again."""
        worker = self._workers.remove(number)
        self._ahead.end(number, is_done=True)
        for entry in self._groups.dissolve(worker) if worker is not None else ():
            self._queue.push(self._size_of(entry.case), entry)
        return worker

    # Placing work.

    def _size_of(self, case: CaseInfo) -> Size:
        return Size(int(min(case.num_cpus, self._widest)), case.num_gpus)

    def _place(self) -> None:
        """Leases what fits. What waits for room is overtaken only where a worker of its size will come to it."""
        if self._draining or self._is_complete():
            return
        for number in self._workers.promised():
            worker = self._workers.get(number)
            assert worker is not None
            self._lease(number, worker.promised.pop(0), is_kept=True)
        sized: list[Size] = []
        while sizes := [size for size in self._queue.sizes() if size not in sized]:
            size = sizes[0]
            if fitting := self._workers.idle(size):
                self._lease_one(size, fitting)
            elif self._make_room(size, may_kill=not sized):
                sized.append(size)
            else:
                break
        # At the first checkpoint workers of one core warm up; it is they who report the cases. One is enough to find
        # that nothing is missing of what earlier starts were through with.
        while self._cases is None and self._backlog.num_seen and self._workers.has_room(Size(1)):
            if not (self._open or self._backlog.has_fresh) and self._workers.count(Size(1)):
                break
            self._start(Size(1))

    def _lease_one(self, size: Size, fitting: Sequence[int]) -> None:
        number = fitting[0]

        def choose(entries: Sequence[Entry]) -> int:
            nonlocal number
            number, index = self._workers.best_pair(fitting, entries)
            return index

        entry = self._queue.take(size, choose)
        worker = self._workers.get(number)
        assert worker is not None
        worker.promised += self._groups.companions(self._queue, size, entry)
        self._lease(number, entry, companions=tuple(other.evaluation for other in worker.promised))

    def _lease(
        self, number: int, entry: Entry, *, companions: tuple[EvaluationId, ...] = (), is_kept: bool = False
    ) -> None:
        together = 1 + len(companions)
        leased = Leased(lease=self._next_lease, entry=entry, since=self._now, together=together, is_kept=is_kept)
        self._workers.lease(number, leased)
        self._next_lease += 1
        self._actions.append(Lease(number, leased.lease, entry.evaluation, entry.case, leased.deadline, companions))

    def _make_room(self, size: Size, *, may_kill: bool) -> bool:
        """Starts workers of a size, ending idle ones of other sizes where that makes the room.

        Returns:
          Whether there is a worker of that size, so that what waits for one will be served.
        """
        for _ in range(self._queue.count(size) - self._workers.count_starting(size)):
            for number in self._workers.in_the_way(size) if may_kill else ():
                self._kill(number, "another size is needed")
            if not self._workers.has_room(size):
                break
            self._start(size)
        return self._workers.count(size) > 0

    def _prepare(self) -> None:
        if not self._draining:
            for number, entry in self._ahead.pick(self._workers, self._queue, len(self._cases or ())):
                self._actions.append(Prepare(number, entry.evaluation))

    def _prepared(self, number: int, is_done: bool) -> None:
        case_key = self._ahead.end(number, is_done=is_done)
        worker = self._workers.get(number)
        if worker is not None and case_key is not None and is_done:
            worker.compiled.add(case_key)

    def _start(self, size: Size) -> None:
        self._actions.append(StartWorker(self._workers.start(size), size))

    def _check_done(self) -> None:
        if self._done:
            return
        if not self._workers.num_busy() and (self._draining or self._is_complete()):
            self._done = True
            self._actions.append(Done())

    def _is_complete(self) -> bool:
        return self._backlog.has_ended and not self._backlog.has_waiting and not self._open
