"""Executors of one machine: warm worker processes, or one worker inside the chief's process."""

from __future__ import annotations

import contextlib
import multiprocessing.connection
import os
import selectors
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lobench.core.errors import LobenchError
from lobench.core.wording import cause, headline
from lobench.engine.environment import environment_with
from lobench.engine.group_files import open_to_group
from lobench.engine.workers.channel import Channel
from lobench.engine.workers.devices import DeviceLeases, devices_here
from lobench.engine.workers.entry import run_worker
from lobench.engine.workers.keeper import Keeper
from lobench.engine.workers.oom_kills import OomKills
from lobench.engine.workers.process import KILLED_TEXT as _KILLED
from lobench.engine.workers.process import WorkerProcess
from lobench.engine.workers.protocol import Configure, Exit, WorkerSession
from lobench.hookspecs import ExecutorEvent, Notice, WorkerExited, WorkerMessage

__all__ = ["InlineExecutor", "LocalPool", "WorkerConfig"]

_END_SECONDS = 10.0  # longest wait for the end of a worker in this process
_CHECK_SECONDS = 0.5  # between checks of a worker that may have failed


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(WorkerSession):
    """Configuration of all workers of a watch.

    Attributes:
      compilation_cache, file_folder, state_folder: As in `Configure`; None stands for "".
      log_folder: Folder of the workers' logs, one file each.
      max_cores: Number of cores that all workers may use together. None: the number of available cores, even if that
        changes.
      min_cores: Number of cores that an elastic executor keeps when there is no work.
      argument: Text after `NAME:` in `--executor NAME:ARGUMENT`; "" if omitted.
      address: Address of a cluster, for an executor of many machines; "" if it needs none.
      insecure: Whether machines without access control may be used.

    >>> config = WorkerConfig(
    ...     arguments=(), layers=Layers(), serve="", log_folder=Path("logs"), compilation_cache=Path("cache")
    ... )
    >>> config.max_cores is None
    True
    """

    log_folder: Path
    compilation_cache: Path
    max_cores: int | None = None
    min_cores: int = 0
    argument: str = ""
    address: str = ""
    insecure: bool = False
    file_folder: Path | None = None
    state_folder: Path | None = None

    def configure(self, num_cpus: int, *, log: str = "", log_start: int = 0) -> Configure:
        """Returns the first message to a worker."""
        return Configure(
            num_cpus=num_cpus,
            arguments=self.arguments,
            layers=self.layers,
            compilation_cache=str(self.compilation_cache),
            serve=self.serve,
            log=log,
            log_start=log_start,
            file_folder=str(self.file_folder or ""),
            state_folder=str(self.state_folder or ""),
            working_folder=self.working_folder,
            with_tests=self.with_tests,
        )


class LocalPool:
    """Pool of worker processes on this machine.

    `send` may be called in another thread than the other methods. No method waits for a worker: a worker that is
    frozen, or sends anything other than messages, counts as dead.

    Args:
      config: Configuration of the workers.
      wakeup: Descriptor for which `wait` also returns, such as that of a signal.
      has_detached_keeper: See `Keeper`.

    >>> config = WorkerConfig(
    ...     arguments=(), layers=Layers(), serve="", log_folder=Path("logs"), compilation_cache=Path("cache")
    ... )
    >>> pool = LocalPool(config)
    >>> pool.pids
    {}
    >>> pool.close()
    """

    def __init__(
        self, config: WorkerConfig, wakeup: Connection | None = None, *, has_detached_keeper: bool = False
    ) -> None:
        self._config, self._wakeup = config, wakeup
        self._processes: dict[int, WorkerProcess] = {}
        self._oom_kills = OomKills()
        self._doubtful_workers: set[int] = set()  # workers with an incomplete message, or that may have ended
        self._own_events: list[ExecutorEvent] = []  # events of the pool itself
        self._has_log_problem = False
        self._devices = DeviceLeases(devices_here(os.environ))
        self._keeper = Keeper(is_detached=has_detached_keeper)
        self._selector = selectors.DefaultSelector()
        if wakeup is not None:
            self._selector.register(wakeup, selectors.EVENT_READ, None)
        config.log_folder.mkdir(parents=True, exist_ok=True)
        open_to_group(config.log_folder)

    @property
    def pids(self) -> dict[int, int]:
        return {worker: process.pid for worker, process in self._processes.items()}

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        threads = str(num_cpus)
        environment = {**os.environ, "NPROC": threads, **self._devices.lease(worker, num_gpus)}
        log = self._config.log_folder / f"worker-{worker}.log"
        try:
            process = WorkerProcess(environment, log)
        except OSError as error:
            self._devices.release(worker)
            self._own_events.append(WorkerExited(worker=worker, message=f"it could not be started: {cause(error)}"))
            return
        self._processes[worker] = process
        self._keeper.add_group(process.pid)
        if process.log_problem and not self._has_log_problem:
            self._has_log_problem = True
            text = f"workers' logs cannot be written to {self._config.log_folder}: {process.log_problem}"
            self._own_events.append(Notice(message=text))
        self._selector.register(process.channel, selectors.EVENT_READ, worker)
        if process.sentinel is not None:
            self._selector.register(process.sentinel, selectors.EVENT_READ, worker)
        else:
            self._doubtful_workers.add(worker)
        configure = self._config.configure(num_cpus, log=str(log.absolute()), log_start=process.log_start)
        self.send(worker, configure.to_bytes())

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        process = self._processes.get(worker)
        if process is not None:
            self._register_unsent(worker, process.channel.send(message))

    def _register_unsent(self, worker: int, is_sent: bool) -> None:
        """Registers a worker for writing if its pipe was full, so that `wait` sends the rest of the message."""
        if not is_sent:
            with contextlib.suppress(KeyError, ValueError):  # the worker has died
                read_and_write = selectors.EVENT_READ | selectors.EVENT_WRITE
                self._selector.modify(self._processes[worker].channel, read_and_write, worker)

    def kill(self, worker: int) -> None:
        self._end_worker(worker)

    def wait(self, timeout: float) -> list[ExecutorEvent]:
        messages, self._own_events = self._own_events, []
        if messages:
            timeout = 0.0
        elif self._doubtful_workers:
            timeout = min(timeout, _CHECK_SECONDS)
        doubtful_workers = set(self._doubtful_workers)
        replying_workers = set(self._doubtful_workers)
        for key, events in self._selector.select(timeout):
            if key.data is None:
                os.read(key.fd, 4096)
                continue
            replying_workers.add(key.data)
            if key.fileobj == self._processes[key.data].sentinel:
                doubtful_workers.add(key.data)
            if events & selectors.EVENT_WRITE:
                # Before the flush, because another thread may send between the two calls.
                self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
                self._register_unsent(key.data, self._processes[key.data].channel.flush())
        for worker in sorted(replying_workers & self._processes.keys()):
            messages += self._receive(worker, self._processes[worker], may_have_ended=worker in doubtful_workers)
        return messages

    def _receive(self, worker: int, process: WorkerProcess, *, may_have_ended: bool) -> list[ExecutorEvent]:
        """Returns the events of a worker: its messages, and its exit if it ended."""
        has_ended = may_have_ended and process.has_ended()
        channel = process.channel
        if has_ended:
            process.kill()  # its child processes may hold the pipe open and write forever
        was_closed = channel.is_closed
        received_messages = channel.receive(to_the_end=has_ended)
        messages: list[ExecutorEvent] = [WorkerMessage(worker=worker, message=message) for message in received_messages]
        if channel.is_amid_a_message:
            channel.look()
        if channel.problem or has_ended or (channel.is_closed and process.is_overdue()):
            cause_text = self._end_worker(worker, channel.problem)
            is_oom = cause_text == _KILLED and self._oom_kills.claim_kill()
            if is_oom:
                cause_text = "killed by the system for want of memory (oom_kill of its cgroup)"
            return [*messages, WorkerExited(worker=worker, message=cause_text, is_oom=is_oom)]
        if channel.is_closed and not was_closed:
            self._selector.unregister(channel)
        if channel.is_closed or channel.is_amid_a_message or process.sentinel is None:
            self._doubtful_workers.add(worker)
        else:
            self._doubtful_workers.discard(worker)
        return messages

    def _end_worker(self, worker: int, reason: str = "") -> str:
        """Ends a worker, and returns `reason`, or if that is "", a description of its end."""
        self._devices.release(worker)
        self._doubtful_workers.discard(worker)
        process = self._processes.pop(worker, None)
        if process is None:
            return reason
        for endpoint in (process.channel, process.sentinel):
            with contextlib.suppress(KeyError, ValueError):  # a closed pipe is no longer registered
                if endpoint is not None:
                    self._selector.unregister(endpoint)
        self._keeper.remove_group(process.pid)
        code = process.end()
        return reason or process.how_it_ended(code)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for worker in list(self._processes):
            self._end_worker(worker)
        self._selector.close()
        self._keeper.close()


class InlineExecutor:
    """Executor with one worker in a thread of this process, for debugging.

    The worker cannot be killed, even by a deadline.

    A worker that is started replaces the previous one. `NPROC` has the worker's value until the executor is closed.
    """

    def __init__(self, config: WorkerConfig, wakeup: Connection | None = None) -> None:
        self._config, self._wakeup = config, wakeup
        self._channel: Channel | None = None
        self._thread: threading.Thread | None = None
        self._worker_error: BaseException | None = None
        self._worker = 0
        self._environment = contextlib.ExitStack()

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        self.kill(self._worker)
        self._environment.enter_context(environment_with({"NPROC": str(num_cpus)}))
        own_end, worker_end = socket.socketpair()
        self._worker, self._channel = worker, Channel(own_end)
        arguments = (Connection(worker_end.detach()), self._config.configure(num_cpus))
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def _run(self, connection: Connection, configure: Configure) -> None:
        try:
            run_worker(connection, configure, owns_process=False)
        except BaseException as error:  # noqa: BLE001  (a process boundary in the other executors)
            self._worker_error = error

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def kill(self, worker: int) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def wait(self, timeout: float) -> list[ExecutorEvent]:
        channel = self._channel
        if channel is not None and not (channel.flush() and not channel.is_amid_a_message):
            timeout = min(timeout, _CHECK_SECONDS)
        wait_objects: list[Any] = [end for end in (channel, self._wakeup) if end is not None]
        if self._wakeup in multiprocessing.connection.wait(wait_objects, timeout) and self._wakeup is not None:
            os.read(self._wakeup.fileno(), 4096)
        if channel is None:
            return []
        messages: list[ExecutorEvent] = [
            WorkerMessage(worker=self._worker, message=message) for message in channel.receive()
        ]
        channel.look()
        if channel.problem:
            raise LobenchError(channel.problem, where="the worker in this process", next_step="--executor local")
        if self._worker_error is not None and not messages:
            raise LobenchError(
                "the worker has ended",
                where="the worker in this process",
                got=headline(self._worker_error),
                next_step="the same command goes on",
            ) from self._worker_error
        return messages

    def close(self) -> None:
        if self._channel is not None:
            self.send(self._worker, Exit().to_bytes())
            self.kill(self._worker)
        if self._thread is not None:  # a thread that is inside XLA at the exit of the interpreter may abort it
            self._thread.join(_END_SECONDS)
        self._environment.close()
