"""A slot's messages to its bridge, which neither of them opens further than it must."""

from __future__ import annotations

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
