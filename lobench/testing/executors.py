"""Contract of executors: a plugin's test module subclasses `ExecutorContract`.

class TestMyCluster(ExecutorContract):
    factory = "mypackage.executors:MyCluster"
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from lobench.core.case import SeedBlock
from lobench.core.codec import Message
from lobench.core.lazy import loaded
from lobench.core.result import Outcome
from lobench.core.subject import Variant
from lobench.engine.config.layers import Layers
from lobench.engine.workers import protocol
from lobench.engine.workers.pool import WorkerConfig
from lobench.hookspecs import Executor, ExecutorCapacity, ExecutorEvent, Notice, WorkerExited, WorkerMessage
from lobench.testing.contract_worker import PID_FILE, answer_to, case_named
from lobench.testing.watches import NAME, watch_with, write_run

__all__ = ["ExecutorContract"]

_M = TypeVar("_M", bound=Message)


class ExecutorContract:
    """Tests that every executor must pass. They run on this machine.

    Attributes:
      factory: "module:attribute", as in the executor's declaration.
      has_processes: False if the worker runs in this process, which cannot be killed.
      most_cpus: Number of cores of the largest worker that can be started, at most 2.
      patience_seconds: Seconds that a worker may take to start, to answer or to end.
    """

    factory: ClassVar[str]
    has_processes: ClassVar[bool] = True
    most_cpus: ClassVar[int] = 2
    patience_seconds: ClassVar[float] = 600.0

    def make(self, config: WorkerConfig, wakeup: Connection | None) -> Executor:
        executor: Executor = loaded(self.factory)(config, wakeup)
        return executor

    @contextmanager
    def running(self, folder: Path, *, wakeup: Connection | None = None) -> Iterator[Executor]:
        suite = folder / "contract_suite"
        suite.mkdir(exist_ok=True)
        (suite / PID_FILE).write_text(str(_pid_file(folder)))
        config = WorkerConfig(
            arguments=(str(suite),),
            layers=Layers(gin_params=("of the layers",)),
            serve="lobench.testing.contract_worker:serve",
            log_folder=folder / "logs",
            compilation_cache=folder / "xla_cache",
        )
        executor = self.make(config, wakeup)
        try:
            yield executor
        finally:
            executor.close()

    def received(self, executor: Executor, kind: type[_M]) -> tuple[int, _M]:
        """Returns the first message of a kind, and the worker that sent it. Fails if a worker ends."""
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            for worker, message in _worker_events(executor.wait(0.2)):
                if isinstance(message, kind):
                    return worker, message
                assert isinstance(message, protocol.Ready | protocol.Progress | protocol.JobResult), message
        raise AssertionError(f"not received within {self.patience_seconds:g} s")

    def start(self, executor: Executor, worker: int, num_cpus: int = 1) -> None:
        executor.start(worker, num_cpus)
        assert self.received(executor, protocol.Ready)[0] == worker

    def job(self, executor: Executor, worker: int, lease: int, name: str, folder: Path) -> tuple[protocol.Job, bytes]:
        """Sends a job with two files. Returns the job and the payload of its result."""
        contents = [f"{name} {lease} {role}".encode() for role in ("theta", "companion")]
        files = []
        for content in contents:
            files.append(folder / f"{sha256(content).hexdigest()}.npz")
            files[-1].write_bytes(content)
        job = protocol.Job(
            lease=lease,
            case_key=case_named(name).key,
            seed_block=SeedBlock(start=0, size=2),
            checkpoint_uri="theta_1.npz",
            theta_path=str(files[0]),
            companions=(("theta_2.npz", str(files[1])),),
            variant=Variant(bindings=(f"of lease {lease}", "x" * 1_000_000)),
        )
        executor.send(worker, job.to_bytes(), [str(file) for file in files])
        return job, answer_to(job.variant.bindings, *contents)

    def pid(self, executor: Executor, folder: Path) -> int:
        """Waits until a misbehaving case has begun, and returns the id of its process."""
        file = _pid_file(folder)
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            if file.is_file() and (text := file.read_text()):
                return int(text)
            executor.wait(0.02)  # it may have to send the rest of the job
        raise AssertionError("the case did not begin")

    def test_a_worker_is_what_it_was_configured_to_be(self, tmp_path: Path) -> None:
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            variant = Variant(bindings=("of the variant",))
            executor.send(0, protocol.Describe(variant=variant).to_bytes())
            worker, description = self.received(executor, protocol.Described)
            assert (worker, description.variant_key) == (0, variant.key)
            assert description.cases == (case_named("of the variant"), case_named("of the layers"))

    def test_a_worker_has_as_many_cores_as_it_was_started_with(self, tmp_path: Path) -> None:
        with self.running(tmp_path) as executor:
            self.start(executor, 3, num_cpus=self.most_cpus)
            executor.send(3, protocol.Describe(variant=Variant(bindings=("x",))).to_bytes())
            _, description = self.received(executor, protocol.Described)
            assert description.cases[0].num_cpus == self.most_cpus, "NPROC is not num_cpus"

    def test_several_workers_work_at_once(self, tmp_path: Path) -> None:
        """Each worker gets its own messages, and a busy worker does not delay the others."""
        if not self.has_processes:
            return
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            self.start(executor, 12)
            self.job(executor, 0, 1, "hang", tmp_path)
            pid = self.pid(executor, tmp_path)
            for lease in (2, 3):
                job, payload = self.job(executor, 12, lease, "good", tmp_path)
                result = self.received(executor, protocol.JobResult)
                assert result == (12, protocol.JobResult(lease=job.lease, outcome=Outcome.PASSED, payload=payload))
            executor.kill(12)
            assert _is_alive(pid), "the end of one worker ended another"
        self._wait_for_end(pid)

    def test_processes_that_a_worker_started_end_with_it(self, tmp_path: Path) -> None:
        """A case may start a program, as data loaders do."""
        if not self.has_processes:
            return
        for action in ("kill", "close"):
            with self.running(tmp_path) as executor:
                _pid_file(tmp_path).unlink(missing_ok=True)
                self.start(executor, 0)
                self.job(executor, 0, 1, "fork", tmp_path)
                child = self.pid(executor, tmp_path)
                if action == "kill":
                    executor.kill(0)
                    self._wait_for_end(child)
            self._wait_for_end(child)

    def test_a_watch_evaluates_with_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The path of the store is relative, and workers may have another working directory.

        The suite has an ordinary test besides its case.
        """
        executors = []

        def make(config: WorkerConfig, wakeup: Connection | None) -> Executor:
            executors.append(self.make(config, wakeup))
            return executors[-1]

        monkeypatch.setattr(sys.modules[__name__], "_make", make)
        run = write_run(tmp_path)
        factory = f"{__name__}:_make"
        test = "def test_of_a_checkpoint(checkpoint):\n    assert checkpoint.theta()\n"
        watched_store = watch_with(tmp_path, "lobench_executors", factory, run, executor=NAME, workers=1, test=test)
        assert executors, "the watch did not use the executor"
        assert [(row.outcome, row.message) for row in watched_store.rows] == [(Outcome.PASSED, "")] * 2, (
            watched_store.lines
        )

    def test_jobs_come_with_their_files_and_results_with_their_bytes(self, tmp_path: Path) -> None:
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            for lease in (3, 4):
                job, payload = self.job(executor, 0, lease, "good", tmp_path)
                result = self.received(executor, protocol.JobResult)
                assert result == (0, protocol.JobResult(lease=job.lease, outcome=Outcome.PASSED, payload=payload))

    def test_messages_reach_a_worker_in_the_order_in_which_they_were_sent(self, tmp_path: Path) -> None:
        variants = [Variant(bindings=(f"{number}",)) for number in range(40)]
        answered: list[str] = []
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            for variant in variants:
                executor.send(0, protocol.Describe(variant=variant).to_bytes())
            deadline = time.monotonic() + self.patience_seconds
            while len(answered) < len(variants) and time.monotonic() < deadline:
                messages = _worker_events(executor.wait(0.2))
                answered += [message.variant_key for _, message in messages if isinstance(message, protocol.Described)]
        assert answered == [variant.key for variant in variants]

    def test_waiting_ends_in_time_and_when_it_is_woken(self, tmp_path: Path) -> None:
        own_end, waking_end = socket.socketpair()
        wakeup = Connection(own_end.detach())
        with waking_end, wakeup, self.running(tmp_path, wakeup=wakeup) as executor:
            assert _worker_events(executor.wait(0.05)) == []
            waking_end.send(b"\0")
            started = time.monotonic()
            assert _worker_events(executor.wait(self.patience_seconds)) == []
            assert time.monotonic() - started < self.patience_seconds / 2
            assert not wakeup.poll(), "what woke it was left in the pipe, and wakes it for ever"

    def test_a_workers_death_is_told_once_and_another_takes_its_place(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            self.job(executor, 0, 1, "die", tmp_path)
            worker, died = self.received(executor, WorkerExited)
            assert worker == 0 and died.message and not died.lost
            self.job(executor, 0, 2, "good", tmp_path)
            executor.kill(0)
            self.start(executor, 1)
            self.job(executor, 1, 3, "good", tmp_path)
            worker, result = self.received(executor, protocol.JobResult)
            assert (worker, result.lease) == (1, 3)

    def test_a_killed_worker_ends_at_once_and_is_not_heard_of_again(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self.running(tmp_path) as executor:
            self.start(executor, 5)
            self.job(executor, 5, 1, "hang", tmp_path)
            pid = self.pid(executor, tmp_path)
            executor.kill(5)
            self._wait_for_end(pid)
            assert _worker_events(executor.wait(0.5)) == []

    def test_closing_ends_every_worker_even_one_that_is_stopped(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self.running(tmp_path) as executor:
            self.start(executor, 0)
            self.job(executor, 0, 1, "hang", tmp_path)
            pid = self.pid(executor, tmp_path)
            os.kill(pid, signal.SIGSTOP)
        self._wait_for_end(pid)

    def _wait_for_end(self, pid: int) -> None:
        deadline = time.monotonic() + self.patience_seconds
        while _is_alive(pid):
            assert time.monotonic() < deadline, f"process {pid} lives on"
            time.sleep(0.02)


def _make(config: WorkerConfig, wakeup: Connection | None) -> Executor:
    """Factory of the executor in a watch. The test replaces this function."""
    raise NotImplementedError


def _pid_file(folder: Path) -> Path:
    return folder / "pid"


def _worker_events(received: Sequence[ExecutorEvent]) -> list[tuple[int, protocol.FromWorker | WorkerExited]]:
    """Returns the messages and exits of workers. Events of the executor itself are left out."""
    assert all(isinstance(event, WorkerMessage | WorkerExited | Notice | ExecutorCapacity) for event in received), (
        received
    )
    return [
        (event.worker, protocol.FROM_WORKER.from_bytes(event.message) if isinstance(event, WorkerMessage) else event)
        for event in received
        if isinstance(event, WorkerMessage | WorkerExited)
    ]


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
