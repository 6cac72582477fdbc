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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar, TypeVar
from unittest import mock

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


class _SharedExecutor:
    """Executor that several tests use, with its idle workers. The first test that needs it makes it.

    Args:
      folder: Folder of the executor. One that is made later, after a failed test, has a folder of its own below.

    Attributes:
      folder: Folder of the executor's suite and logs, and of the files of jobs.
      waking_end: Socket whose messages end a `wait`.
      wakeup: The other end.
      environment: Environment in which it was made.
      idle: Cores of each idle worker, by the worker's number.
    """

    executor: Executor
    waking_end: socket.socket
    wakeup: Connection

    def __init__(self, folder: Path) -> None:
        self._first_folder = self.folder = folder
        self._cleanup: ExitStack | None = None
        self.environment: dict[str, str] = {}
        self._num_opened = self._num_workers = 0
        self.idle: dict[int, int] = {}

    def open(self, running: Callable[..., AbstractContextManager[Executor]]) -> None:
        """Makes the executor with `ExecutorContract.running`, unless it is open."""
        if self._cleanup is not None:
            return
        if self._num_opened:
            self.folder = self._first_folder / str(self._num_opened)
            self.folder.mkdir()
        self._num_opened += 1
        own_end, waking_end = socket.socketpair()
        self.wakeup = Connection(own_end.detach())
        self.waking_end = waking_end
        with ExitStack() as cleanup:
            cleanup.enter_context(self.wakeup)
            cleanup.enter_context(waking_end)
            self.executor = cleanup.enter_context(running(self.folder, wakeup=self.wakeup))
            self._cleanup = cleanup.pop_all()
        self.environment = dict(os.environ)

    def close(self) -> None:
        """Closes the executor, if it is open."""
        cleanup, self._cleanup = self._cleanup, None
        self.idle.clear()
        if cleanup is not None:
            cleanup.close()

    def next_worker(self) -> int:
        """Returns a number that no worker had. Numbers are neither dense nor small."""
        self._num_workers += 1
        return 5 * self._num_workers - 5

    def kill(self, worker: int) -> None:
        self.idle.pop(worker, None)
        self.executor.kill(worker)


class ExecutorContract:
    """Tests that every executor must pass. They run on this machine.

    Where the workers are processes, tests share one executor and its workers. `make` is called in the first test that
    needs it. The executor is closed after the class, in the environment in which it was made, or after a failed test.

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
    _shared: ClassVar[_SharedExecutor | None] = None

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _share_executor(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        if not cls.has_processes:
            yield
            return
        shared = cls._shared = _SharedExecutor(tmp_path_factory.mktemp("executor"))
        try:
            yield
        finally:
            cls._shared = None
            with mock.patch.dict(os.environ, shared.environment):  # environment of the test that made the executor
                shared.close()

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

    @contextmanager
    def _borrow_executor(self, folder: Path) -> Iterator[_SharedExecutor]:
        """Yields the shared executor, or an executor of this test alone if none is shared."""
        shared = self._shared or _SharedExecutor(folder)
        is_passed = False
        try:
            shared.open(self.running)
            yield shared
            is_passed = True
        finally:
            if not is_passed or shared is not self._shared:
                shared.close()

    def _idle_worker(self, shared: _SharedExecutor, num_cpus: int = 1) -> int:
        """Returns an idle worker with this number of cores. Ends the others, because it may need their cores."""
        for worker, size in list(shared.idle.items()):
            if size == num_cpus:
                return worker
            shared.kill(worker)
        worker = self._new_worker(shared, num_cpus)
        shared.idle[worker] = num_cpus
        return worker

    def _new_worker(self, shared: _SharedExecutor, num_cpus: int = 1) -> int:
        worker = shared.next_worker()
        self.start(shared.executor, worker, num_cpus)
        return worker

    def wait_for_message(self, executor: Executor, kind: type[_M]) -> tuple[int, _M]:
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
        assert self.wait_for_message(executor, protocol.Ready)[0] == worker

    def send_job(
        self, executor: Executor, worker: int, lease: int, name: str, folder: Path
    ) -> tuple[protocol.Job, bytes]:
        """Sends a job with two files. Returns the job and the payload of its result."""
        contents = [f"{name} {lease} {role}".encode() for role in ("theta", "companion")]
        files = []
        for content in contents:
            files.append(folder / f"{sha256(content).hexdigest()}.npz")
            files[-1].write_bytes(content)
        _pid_file(folder).unlink(missing_ok=True)  # file of an earlier job
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

    def wait_for_pid(self, executor: Executor, folder: Path) -> int:
        """Waits until a misbehaving case has begun, and returns the id of its process."""
        file = _pid_file(folder)
        deadline = time.monotonic() + self.patience_seconds
        while time.monotonic() < deadline:
            if file.is_file() and (text := file.read_text()):
                return int(text)
            executor.wait(0.02)  # it may have to send the rest of the job
        raise AssertionError("the case did not begin")

    def test_a_worker_has_as_many_cores_as_it_was_started_with(self, tmp_path: Path) -> None:
        with self._borrow_executor(tmp_path) as shared:
            worker = self._idle_worker(shared, self.most_cpus)
            shared.executor.send(worker, protocol.Describe(variant=Variant(bindings=("x",))).to_bytes())
            _, description = self.wait_for_message(shared.executor, protocol.Described)
            assert description.cases[0].num_cpus == self.most_cpus, "NPROC is not num_cpus"

    def test_a_worker_is_what_it_was_configured_to_be(self, tmp_path: Path) -> None:
        with self._borrow_executor(tmp_path) as shared:
            worker = self._idle_worker(shared)
            variant = Variant(bindings=("of the variant",))
            shared.executor.send(worker, protocol.Describe(variant=variant).to_bytes())
            sender, description = self.wait_for_message(shared.executor, protocol.Described)
            assert (sender, description.variant_key) == (worker, variant.key)
            assert description.cases == (case_named("of the variant"), case_named("of the layers"))

    def test_several_workers_work_at_once(self, tmp_path: Path) -> None:
        """Each worker gets its own messages. A busy worker does not delay another, and its end does not end it."""
        if not self.has_processes:
            return
        with self._borrow_executor(tmp_path) as shared:
            worker = self._idle_worker(shared)
            busy_worker = self._new_worker(shared)
            self.send_job(shared.executor, busy_worker, 1, "hang", shared.folder)
            pid = self.wait_for_pid(shared.executor, shared.folder)
            for lease in (2, 3):
                self._assert_answered(shared, worker, lease)
            assert _is_alive(pid)
            shared.kill(busy_worker)
            self._wait_for_end(pid)
            self._assert_answered(shared, worker, 4)

    def test_processes_that_a_worker_started_end_with_it(self, tmp_path: Path) -> None:
        """A case may start a program, as data loaders do."""
        if not self.has_processes:
            return
        with self._borrow_executor(tmp_path) as shared:
            worker = self._new_worker(shared)
            self.send_job(shared.executor, worker, 1, "fork", shared.folder)
            child = self.wait_for_pid(shared.executor, shared.folder)
            shared.kill(worker)
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
        with self._borrow_executor(tmp_path) as shared:
            worker = self._idle_worker(shared)
            for lease in (3, 4):
                self._assert_answered(shared, worker, lease)

    def test_messages_reach_a_worker_in_the_order_in_which_they_were_sent(self, tmp_path: Path) -> None:
        variants = [Variant(bindings=(f"{number}",)) for number in range(40)]
        answered: list[str] = []
        with self._borrow_executor(tmp_path) as shared:
            worker = self._idle_worker(shared)
            for variant in variants:
                shared.executor.send(worker, protocol.Describe(variant=variant).to_bytes())
            deadline = time.monotonic() + self.patience_seconds
            while len(answered) < len(variants) and time.monotonic() < deadline:
                messages = _worker_events(shared.executor.wait(0.2))
                answered += [message.variant_key for _, message in messages if isinstance(message, protocol.Described)]
            assert answered == [variant.key for variant in variants]

    def test_waiting_ends_in_time_and_when_it_is_woken(self, tmp_path: Path) -> None:
        with self._borrow_executor(tmp_path) as shared:
            assert _worker_events(shared.executor.wait(0.05)) == []
            shared.waking_end.send(b"\0")
            started = time.monotonic()
            assert _worker_events(shared.executor.wait(self.patience_seconds)) == []
            assert time.monotonic() - started < self.patience_seconds / 2
            assert not shared.wakeup.poll(), "what woke it was left in the pipe, and wakes it for ever"

    def test_a_workers_death_is_told_once_and_another_takes_its_place(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self._borrow_executor(tmp_path) as shared:
            worker = self._idle_worker(shared)
            self.send_job(shared.executor, worker, 1, "die", shared.folder)
            sender, died = self.wait_for_message(shared.executor, WorkerExited)
            assert sender == worker and died.message and not died.lost
            self.send_job(shared.executor, worker, 2, "good", shared.folder)
            shared.kill(worker)
            self._assert_answered(shared, self._idle_worker(shared), 3)

    def test_a_killed_worker_ends_at_once_and_is_not_heard_of_again(self, tmp_path: Path) -> None:
        if not self.has_processes:
            return
        with self._borrow_executor(tmp_path) as shared:
            worker = self._idle_worker(shared)
            self.send_job(shared.executor, worker, 1, "hang", shared.folder)
            pid = self.wait_for_pid(shared.executor, shared.folder)
            shared.kill(worker)
            self._wait_for_end(pid)
            assert _worker_events(shared.executor.wait(0.5)) == []

    def test_closing_ends_every_worker_even_one_that_is_stopped(self, tmp_path: Path) -> None:
        """Processes that a worker started end, too."""
        if not self.has_processes:
            return
        with self._borrow_executor(tmp_path) as shared:
            stopped_worker = self._idle_worker(shared)
            self.send_job(shared.executor, stopped_worker, 1, "hang", shared.folder)
            pid = self.wait_for_pid(shared.executor, shared.folder)
            self.send_job(shared.executor, self._new_worker(shared), 2, "fork", shared.folder)
            child = self.wait_for_pid(shared.executor, shared.folder)
            os.kill(pid, signal.SIGSTOP)
            shared.close()
            self._wait_for_end(pid)
            self._wait_for_end(child)

    def _assert_answered(self, shared: _SharedExecutor, worker: int, lease: int) -> None:
        job, payload = self.send_job(shared.executor, worker, lease, "good", shared.folder)
        result = protocol.JobResult(lease=job.lease, outcome=Outcome.PASSED, payload=payload)
        assert self.wait_for_message(shared.executor, protocol.JobResult) == (worker, result)

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
