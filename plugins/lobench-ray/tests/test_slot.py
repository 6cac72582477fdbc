"""A slot's messages to its bridge, which neither of them opens further than it must."""

from __future__ import annotations

import threading

import pytest
from lobench_ray.bridge import has_exited
from lobench_ray.slot import Slot

from lobench.engine.workers.protocol import Progress, Ready
from lobench.hookspecs import WorkerExited, WorkerMessage


def from_worker(message: Progress | Ready) -> bytes:
    return WorkerMessage(worker=0, message=message.to_bytes()).to_bytes()


def test_of_progress_alone_the_newest_is_sent_and_everything_else_at_once() -> None:
    slot, steps = Slot(), [from_worker(Progress(lease=1, step=step)) for step in (1, 2, 3)]
    for message in steps:
        slot._outgoing.put(message)
    assert slot.receive(5.0, 0.05) == steps[-1:]
    for message in (*steps, ready := from_worker(Ready())):
        slot._outgoing.put(message)
    assert slot.receive(5.0, 60.0) == [steps[-1], ready]


def test_the_bridge_knows_an_exit_by_its_beginning() -> None:
    exited = WorkerExited(worker=0, message="killed by signal 9").to_bytes()
    assert has_exited([from_worker(Ready()), exited]) and not has_exited([from_worker(Ready())])


class BrokenPool:
    def __init__(self, method: str) -> None:
        self.method = method

    def start(self, worker: int, num_cpus: int, num_gpus: float) -> None:
        self.fail_in("start")

    def wait(self, seconds: float) -> list[WorkerExited]:
        self.fail_in("wait")
        return []

    def fail_in(self, method: str) -> None:
        if method == self.method:
            raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("method", ["start", "wait"])
def test_a_slot_that_cannot_pass_on_what_its_worker_says_reports_its_exit(method: str) -> None:
    slot, started = Slot(), threading.Event()
    slot._relay_events(BrokenPool(method), 1, 0.0, started)  # type: ignore[arg-type]  # what of a pool is used here
    exited = WorkerExited(worker=0, message="RuntimeError: can't start new thread")
    assert started.is_set() and slot.receive(0.0, 0.0) == [exited.to_bytes()]
