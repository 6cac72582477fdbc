"""What the chief makes of a worker's words."""

from __future__ import annotations

import dataclasses
import math
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path

import pytest
from shown import texts_of
from stores import case_info, curves

from lobench.core.case import SeedBlock
from lobench.core.codec import Message
from lobench.core.planner import Size
from lobench.core.result import Outcome
from lobench.core.subject import Variant
from lobench.engine.chief.worker_link import WatchWorkers, finished_event
from lobench.engine.workers.protocol import (
    TO_WORKER,
    Describe,
    Described,
    Exit,
    Failed,
    Job,
    JobResult,
    Progress,
    Ready,
)
from lobench.hookspecs import ExecutorEvent, WorkerExited, WorkerMessage

SHOWN = texts_of("chief")

PAYLOAD = curves({"train/loss": [1.0, 0.5]}).to_payload()
RESULT = JobResult(lease=3, outcome=Outcome.PASSED, payload=PAYLOAD)
JOB = Job(
    lease=0,
    case_key="a:b",
    seed_block=SeedBlock(start=0, size=1),
    checkpoint_uri="x",
    theta_path="t",
    companions=(("y", "u"),),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Newer(Message):
    lease: int = 3
    outcome: str = "passed"
    message: str = ""
    replace: bool = False
    other_code: Mapping[str, str] = field(default_factory=dict)
    other_gin: bool = False
    mood: str = "good"
    payload: bytes = b""


def of_another_version() -> bytes:
    data = _Newer().to_bytes().replace(b'"_newer"', b'"jobresult"')
    return struct.pack("<I", struct.unpack_from("<I", data)[0] + len("jobresult") - len("_newer")) + data[4:]


def test_a_result_is_read_with_its_curves() -> None:
    event, found = finished_event(1, RESULT, 2.0)
    assert (event.worker, event.lease, event.outcome, event.replace_worker) == (1, 3, Outcome.PASSED, False)
    assert found is not None and event.seconds == found.compile_seconds + found.wall_seconds == 0.5


@pytest.mark.parametrize("length", [1, 4, 7, 40, len(PAYLOAD) - 1])
def test_a_result_that_cannot_be_read_is_an_error_and_the_worker_is_replaced(length: int) -> None:
    event, found = finished_event(1, dataclasses.replace(RESULT, payload=PAYLOAD[:length]), 2.0)
    assert found is None and event.outcome is Outcome.ERROR and event.replace_worker
    assert SHOWN["its-worker-s-result-cannot"] in event.message


class Silent:
    """An executor whose workers take what they are sent and say nothing but what is put into `output`."""

    def __init__(self) -> None:
        self.output: list[ExecutorEvent] = []
        self.sent: list[tuple[int, bytes, Sequence[str]]] = []
        self.killed: list[int] = []

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None: ...

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        self.sent.append((worker, message, files))

    def kill(self, worker: int) -> None:
        self.killed.append(worker)

    def wait(self, timeout: float) -> Sequence[ExecutorEvent]:
        output, self.output = self.output, []
        return output

    def close(self) -> None: ...

    def say(self, worker: int, message: Message) -> None:
        self.output.append(WorkerMessage(worker=worker, message=message.to_bytes()))


@pytest.fixture
def executor() -> Silent:
    return Silent()


@pytest.fixture
def workers(executor: Silent, tmp_path: Path) -> Iterator[WatchWorkers]:
    wakeup, _ = Pipe()
    made = WatchWorkers(
        make_executor=lambda _: executor, wakeup=wakeup, logs=tmp_path, max_core_seconds=math.inf, log=print
    )
    yield made
    made.close()


def test_what_a_worker_has_is_counted_not_what_its_case_would_like(workers: WatchWorkers) -> None:
    """A case of eight cores gets the two that this machine has."""
    workers.start(3, Size(2))
    before = time.monotonic()
    workers.run_job(3, JOB)
    running = time.monotonic()
    while time.monotonic() == running:
        pass
    at_least = time.monotonic() - running
    workers.kill(3)
    assert 2 * at_least <= workers.core_seconds <= 2 * (time.monotonic() - before)


def test_a_job_goes_with_the_files_that_it_names(workers: WatchWorkers, executor: Silent) -> None:
    workers.start(3, Size(1))
    workers.run_job(3, JOB)
    workers.run_job(3, dataclasses.replace(JOB, theta_path="", companions=()))
    assert [(worker, list(files)) for worker, _, files in executor.sent] == [(3, ["t", "u"]), (3, [])]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (Exit().to_bytes(), SHOWN["unknown-kind-exit"]),
        (WorkerExited(worker=3, message="I did not").to_bytes(), SHOWN["unknown-kind-workerexited"]),
        (RESULT.to_bytes().replace(b'"passed"', b'"splend"'), SHOWN["result-outcome-got-splend-expected"]),
        (RESULT.to_bytes().replace(b'"lease": 3', b'"lease":""'), SHOWN["result-lease-got-expected-int"]),
        (RESULT.to_bytes().replace(b'"lease"', b'"leash"'), SHOWN["result-no-field-lease"]),
        (Progress(lease=3, step=1).to_bytes() + b"x", SHOWN["progress-1-bytes-behind-a"]),
        (RESULT.to_bytes().replace(b'"lease"', b'"mood": 1, "lease"'), SHOWN["no-message"]),  # its length is a lie
        (of_another_version(), SHOWN["jobresult-unknown-field-mood"]),
        (b"rubbish", SHOWN["no-message"]),
    ],
)
def test_what_cannot_be_understood_is_its_workers_death_in_one_line(
    workers: WatchWorkers, executor: Silent, data: bytes, why: str
) -> None:
    workers.start(3, Size(1))
    executor.output = [WorkerMessage(worker=3, message=data)]
    executor.say(3, RESULT)  # what it said after that is nothing
    executor.say(4, RESULT)
    died, other = workers.wait(0.0)
    assert isinstance(died, WorkerExited) and died.worker == 3 and not died.lost
    assert why in died.message and "\n" not in died.message
    assert other == (4, RESULT)
    assert executor.killed == [3]


def asked(executor: Silent) -> list[tuple[int, str]]:
    """Who was asked to describe what."""
    found = [(worker, TO_WORKER.from_bytes(message)) for worker, message, _ in executor.sent]
    return [(worker, message.variant.key) for worker, message in found if isinstance(message, Describe)]


CASES = (case_info("a"),)
OTHER = Variant(bindings=("Case.num_seeds = 2",))


def test_the_first_worker_that_is_ready_describes_and_all_are_ready_after_that(
    workers: WatchWorkers, executor: Silent
) -> None:
    workers.request_cases(Variant())
    for worker in (0, 1):
        workers.start(worker, Size(1))
        executor.say(worker, Ready())
    assert workers.wait(0.0) == [] and asked(executor) == [(0, "")]
    described = Described(variant_key="", cases=CASES, files=())
    executor.say(0, described)
    assert workers.wait(0.0) == [(0, described), (0, Ready()), (1, Ready())]
    workers.start(2, Size(1))
    executor.say(2, Ready())
    assert workers.wait(0.0) == [(2, Ready())] and asked(executor) == [(0, "")]


def test_another_variant_is_asked_for_while_workers_work_and_one_that_cannot_be_bound_ends_nobody(
    workers: WatchWorkers, executor: Silent
) -> None:
    workers.request_cases(Variant())
    workers.start(0, Size(1))
    executor.say(0, Ready())
    executor.say(0, Described(variant_key="", cases=CASES, files=()))
    workers.wait(0.0)
    workers.request_cases(OTHER)
    assert asked(executor) == [(0, ""), (0, OTHER.key)]
    failed = Failed(messages=("no such name",), variant_key=OTHER.key)
    executor.say(0, failed)
    assert workers.wait(0.0) == [(0, failed)] and executor.killed == []


def test_who_dies_before_it_described_is_replaced_by_another_that_is_ready(
    workers: WatchWorkers, executor: Silent
) -> None:
    workers.request_cases(Variant())
    for worker in (0, 1):
        workers.start(worker, Size(1))
        executor.say(worker, Ready())
    workers.wait(0.0)
    died = WorkerExited(worker=0, message="killed by signal 9")
    executor.output = [died]
    assert workers.wait(0.0) == [died] and asked(executor) == [(0, ""), (1, "")]
    described = Described(variant_key="", cases=CASES, files=())
    executor.say(1, described)
    assert workers.wait(0.0) == [(1, described), (1, Ready())]


def test_an_answer_that_nobody_asked_for_is_not_taken(workers: WatchWorkers, executor: Silent) -> None:
    workers.request_cases(Variant())
    for worker in (0, 1):
        workers.start(worker, Size(1))
        executor.say(worker, Ready())
    executor.say(1, Described(variant_key="", cases=(), files=()))
    executor.say(0, Described(variant_key="other", cases=(), files=()))
    assert workers.wait(0.0) == []
