"""How long a schedule's workers take for checkpoints whose cases take given seconds: simulated time, real decisions."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence

from case_infos import case_info

from lobench.core.admission import every_checkpoint
from lobench.core.case import CaseInfo
from lobench.core.planner import (
    Action,
    CasesKnown,
    Event,
    Finished,
    History,
    Lease,
    Planner,
    StartWorker,
    SubjectSeen,
    WorkerReady,
)
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey

__all__ = ["MakespanWorld", "lower_bound"]


def lower_bound(seconds: Sequence[float], num_workers: int = 2) -> float:
    """Returns what no order can beat."""
    return max(max(seconds), sum(seconds) / num_workers)


class MakespanWorld:
    """Workers that start at once and never fail.

    Args:
      seconds: What each case takes.
      num_workers: Of one core each.
      compile_seconds: What a case takes more on a worker that has not run it.
      is_known: Whether the ledger knows the seconds beforehand; otherwise the first checkpoint shows them.
    """

    def __init__(
        self, seconds: Sequence[float], *, num_workers: int = 2, compile_seconds: float = 0.0, is_known: bool = False
    ) -> None:
        self._cases = tuple(_case(index) for index in range(len(seconds)))
        self._seconds = {case.key: value for case, value in zip(self._cases, seconds, strict=True)}
        self._compile_seconds = compile_seconds
        self._compiled: set[tuple[int, str]] = set()
        self._schedule = Planner(
            num_workers, every_checkpoint(""), History(durations=self._seconds if is_known else {})
        )
        self._queue: list[tuple[float, int, Event]] = []
        self._tickets = itertools.count()
        self._now = 0.0

    def run(self, positions: Iterable[int]) -> float:
        """Evaluates checkpoints that come together; returns the seconds until all are done."""
        began = self._now
        for position in positions:
            self._send(SubjectSeen(position, SubjectKey(f"{position:064x}", "")))
        while self._queue:
            self._now, _, event = heapq.heappop(self._queue)
            self._send(event)
        return self._now - began

    def _send(self, event: Event) -> None:
        for action in self._schedule.handle(event):
            self._take(action)

    def _take(self, action: Action) -> None:
        match action:
            case StartWorker(worker, _):
                self._at(self._now, CasesKnown(self._cases))
                self._at(self._now, WorkerReady(worker, self._now))
            case Lease(worker, lease, evaluation):
                key = evaluation.case_key
                first = 0.0 if (worker, key) in self._compiled else self._compile_seconds
                self._compiled.add((worker, key))
                end = self._now + first + self._seconds[key]
                self._at(end, Finished(worker, lease, Outcome.PASSED, end))

    def _at(self, when: float, event: Event) -> None:
        heapq.heappush(self._queue, (when, next(self._tickets), event))


def _case(index: int) -> CaseInfo:
    return case_info(
        f"case{index}", identity=f"{index:064x}", optimizer_hash="0" * 64, suite="simulated", num_inner_steps=1000
    )
