"""What the chief makes of a worker's words."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from stores import curves

from lobench.core.planner import Size
from lobench.core.result import Outcome
from lobench.engine.chief.hands import WatchWorkers, finished_of
from lobench.engine.workers.pool import Message

VALUES = {"lease": 3, "outcome": "passed", "message": "", "replace": False}
PAYLOAD = curves({"train/loss": [1.0, 0.5]}).to_payload()


def test_a_result_is_read_with_its_curves() -> None:
    event, found = finished_of(Message(worker=1, kind="result", values=VALUES, payload=PAYLOAD), 2.0)
    assert (event.worker, event.lease, event.outcome, event.replace_worker) == (1, 3, Outcome.PASSED, False)
    assert found is not None and event.seconds == found.compile_seconds + found.wall_seconds == 0.5


@pytest.mark.parametrize("length", [1, 4, 7, 40, len(PAYLOAD) - 1])
def test_a_result_that_cannot_be_read_is_an_error_and_the_worker_is_replaced(length: int) -> None:
    event, found = finished_of(Message(worker=1, kind="result", values=VALUES, payload=PAYLOAD[:length]), 2.0)
    assert found is None and event.outcome is Outcome.ERROR and event.replace_worker
    assert "its worker's result cannot be read" in event.message


class Silent:
    """An executor whose workers take what they are sent and say nothing but what is put into `said`."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.killed: list[int] = []

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None: ...

    def send(self, worker: int, kind: str, **values: Any) -> None: ...

    def kill(self, worker: int) -> None:
        self.killed.append(worker)

    def wait(self, timeout: float) -> Sequence[Message]:
        return self.said

    def close(self) -> None: ...


def test_what_a_worker_has_is_counted_not_what_its_case_would_like(tmp_path: Path) -> None:
    """A case of eight cores gets the two that this machine has."""
    wakeup, _ = Pipe()
    workers = WatchWorkers(
        make_executor=lambda _: Silent(), wakeup=wakeup, logs=tmp_path, max_core_seconds=math.inf, say=print
    )
    workers.start(3, Size(2))
    before = time.monotonic()
    workers.run(3, lease=0)
    running = time.monotonic()
    while time.monotonic() == running:
        pass
    at_least = time.monotonic() - running
    workers.kill(3)
    assert 2 * at_least <= workers.core_seconds <= 2 * (time.monotonic() - before)
    workers.close()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("result", {"lease": 3}),
        ("result", {**VALUES, "outcome": "splendid"}),
        ("result", {**VALUES, "lease": "3"}),
        ("progress", {"lease": 3, "step": None}),
        ("ready", {"cases": {}}),
        ("ready", {"cases": [{"name": "a"}]}),
        ("ready", {"cases": ["a"]}),
        ("failed", {}),
        ("prepared", {}),
    ],
)
def test_a_message_without_what_belongs_to_it_is_its_workers_death(
    tmp_path: Path, kind: str, values: dict[str, Any]
) -> None:
    wakeup, _ = Pipe()
    executor = Silent()
    workers = WatchWorkers(
        make_executor=lambda _: executor, wakeup=wakeup, logs=tmp_path, max_core_seconds=math.inf, say=print
    )
    workers.start(3, Size(1))
    executor.said = [Message(worker=3, kind=kind, values=values), Message(worker=4, kind="result", values=VALUES)]
    assert [(message.worker, message.kind) for message in workers.wait(0.0)] == [(3, "died"), (4, "result")]
    assert executor.killed == [3]
    workers.close()
