"""Link to the workers: an executor that is created with the first worker, messages, and the cost of the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

from lobench.core.cost import Usage
from lobench.core.planner import Finished, Size
from lobench.core.result import Curves, Outcome
from lobench.core.subject import Variant
from lobench.engine.paths import hash_in_copy_path
from lobench.engine.workers import protocol
from lobench.engine.workers.protocol import Command, Job, JobResult, StopCommand
from lobench.hookspecs import Executor, ExecutorCapacity, ExecutorEvent, Notice, WorkerExited, WorkerMessage

__all__ = ["WatchWorkers", "WorkerEvent", "finished_event"]

_SLOW_START_SECONDS = 60.0

# A worker's number and its message, or an event of the executor.
WorkerEvent: TypeAlias = tuple[int, protocol.FromWorker] | WorkerExited | Notice | ExecutorCapacity


class WatchWorkers:
    """Starts and stops workers, and exchanges messages with them.

    Args:
      make_executor: Called when the first worker is needed, with `wakeup`.
      wakeup: Connection on which data ends `wait`.
      logs: Folder of the workers' logs.
      max_core_seconds: Core seconds that workers may use in total.
      log: Called with a line if a worker is slow to start.
    """

    def __init__(
        self,
        *,
        make_executor: Callable[[Connection], Executor],
        wakeup: Connection,
        logs: Path,
        max_core_seconds: float,
        log: Callable[[str], None],
    ) -> None:
        self._make_executor = make_executor
        self._wakeup = wakeup
        self._logs = logs
        self._log = log
        self._executor: Executor | None = None
        self._start_times: dict[int, float] = {}
        self._num_cpus: dict[int, int] = {}
        self._usage = Usage(max_core_seconds)
        self._ready_workers: list[int] = []
        self._workers_with_commands: set[int] = set()  # ready workers that run a command
        self._held_workers: list[int] = []  # ready, but not reported as such until cases are known
        self._unanswered_questions: dict[str, protocol.Describe] = {}  # unanswered questions, by variant
        self._asked_workers: dict[str, int] = {}  # worker that was asked, by variant
        self._is_described = False
        self._newest_worker = -1

    @property
    def newest_worker(self) -> int:
        """Number of the worker that was started last; -1 if none was. Later workers have higher numbers."""
        return self._newest_worker

    @property
    def core_seconds(self) -> float:
        return self._usage.core_seconds(time.monotonic())

    @property
    def is_over_budget(self) -> bool:
        return self._usage.is_over(time.monotonic())

    def start(self, worker: int, size: Size) -> None:
        if self._executor is None:
            self._executor = self._make_executor(self._wakeup)
        self._newest_worker = worker
        self._start_times[worker], self._num_cpus[worker] = time.monotonic(), size.num_cpus
        self._executor.start(worker, size.num_cpus, size.num_gpus)

    def kill(self, worker: int) -> None:
        assert self._executor is not None
        self._executor.kill(worker)
        self._forget_worker(worker)

    def request_cases(self, variant: Variant, *, is_traced: bool = False, names: tuple[str, ...] = ()) -> None:
        """Asks the first ready worker for a variant's cases, and another worker if that one dies.

        Workers are not reported as ready before the first answer, because there is nothing that they could run.
        """
        self._unanswered_questions[variant.key] = protocol.Describe(variant=variant, is_traced=is_traced, names=names)
        self._ask_worker()

    def run_job(self, worker: int, job: Job) -> None:
        """Sends a job. The worker's cores count as used until its result arrives or it dies.

        A checkpoint of the file spool is not sent: the worker reads it from its path.
        """
        paths = (job.theta_path, *(path for _, path in job.companions))
        self._send_work(worker, job, [path for path in paths if path and not hash_in_copy_path(path)])

    def run_command(self, worker: int, command: Command) -> None:
        """Lets a command use a worker's cores. The worker receives no other messages until the command ends."""
        self._workers_with_commands.add(worker)
        self._send_work(worker, command)

    def stop_command(self, worker: int, lease: int) -> None:
        """Stops the command of a lease. Its result arrives as usual."""
        if self._executor is not None and worker in self._workers_with_commands:
            self._executor.send(worker, StopCommand(lease=lease).to_bytes(), ())

    def _send_work(self, worker: int, message: Job | Command, files: Sequence[str] = ()) -> None:
        assert self._executor is not None
        self._usage.begin(worker, self._num_cpus.get(worker, 0), time.monotonic())
        self._executor.send(worker, message.to_bytes(), files)

    def wait(self, timeout: float) -> Sequence[WorkerEvent]:
        """Returns messages of workers. Waits for at most `timeout` seconds."""
        if self._executor is None:
            self._wakeup.poll(timeout)
            return ()
        events: list[WorkerEvent] = []
        ended_workers: set[int] = set()
        for event in self._executor.wait(timeout):
            if not (isinstance(event, WorkerMessage | WorkerExited) and event.worker in ended_workers):
                events += self._events_of(event, ended_workers)
        return events

    def _events_of(self, event: ExecutorEvent, ended_workers: set[int]) -> Sequence[WorkerEvent]:
        """Returns the events for an executor's event. A worker that sends an invalid message is killed."""
        if isinstance(event, WorkerMessage):
            try:
                message = protocol.FROM_WORKER.from_bytes(event.message)
            except ValueError as error:
                assert self._executor is not None
                self._executor.kill(event.worker)
                message_text = f"sent a message that the watch does not understand: {error}"
                event = WorkerExited(worker=event.worker, message=message_text)
            else:
                return self._handle_message(event.worker, message)
        if isinstance(event, WorkerExited):
            ended_workers.add(event.worker)
            self._forget_worker(event.worker)
        return [event]

    def _handle_message(self, worker: int, message: protocol.FromWorker) -> Sequence[WorkerEvent]:
        match message:
            case protocol.Ready():
                self._ready_workers.append(worker)
                self._held_workers.append(worker)
                self._ask_worker()
            case protocol.Described(variant_key=str(variant)) | protocol.Failed(variant_key=str(variant)):
                if self._asked_workers.get(variant) != worker:
                    return ()  # another worker was asked meanwhile
                del self._unanswered_questions[variant], self._asked_workers[variant]
                self._is_described = True
                return [(worker, message), *self._release_held_workers()]
            case JobResult():
                self._usage.end(worker, time.monotonic())
                self._workers_with_commands.discard(worker)
                self._ask_worker()
        return self._release_held_workers() if isinstance(message, protocol.Ready) else [(worker, message)]

    def _release_held_workers(self) -> Sequence[WorkerEvent]:
        """Returns the events of ready workers, once there are cases that they could run."""
        if not self._is_described and self._unanswered_questions:
            return ()
        held_workers, self._held_workers = self._held_workers, []
        for worker in held_workers:
            self._start_times.pop(worker, None)
        return [(worker, protocol.Ready()) for worker in held_workers]

    def _ask_worker(self) -> None:
        free_workers = [worker for worker in self._ready_workers if worker not in self._workers_with_commands]
        if self._executor is not None and free_workers:
            for variant in self._unanswered_questions.keys() - self._asked_workers.keys():
                self._asked_workers[variant] = free_workers[0]
                self._executor.send(free_workers[0], self._unanswered_questions[variant].to_bytes())

    def log_slow_starts(self) -> None:
        """Logs workers that take long to start. Importing a suite may take a while."""
        now = time.monotonic()
        for worker, started_at in list(self._start_times.items()):
            if now - started_at > _SLOW_START_SECONDS:
                del self._start_times[worker]
                log = self._logs / f"worker-{worker}.log"  # missing for a worker on another machine
                hint = f", see {log}" if log.is_file() else ""
                self._log(f"worker {worker} is not ready after {_SLOW_START_SECONDS:g} s; still waiting{hint}")

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()
        self._wakeup.close()

    def _forget_worker(self, worker: int) -> None:
        self._start_times.pop(worker, None)
        self._workers_with_commands.discard(worker)
        self._num_cpus.pop(worker, None)
        self._usage.end(worker, time.monotonic())
        self._ready_workers = [number for number in self._ready_workers if number != worker]
        self._held_workers = [number for number in self._held_workers if number != worker]
        self._asked_workers = {variant: number for variant, number in self._asked_workers.items() if number != worker}
        self._ask_worker()


def finished_event(worker: int, result: JobResult, now: float) -> tuple[Finished, Curves | None]:
    """Returns the event and curves of a worker's result.

    If the result cannot be read, the evaluation ends in an error and the worker is replaced.
    """
    curves, problem = None, ""
    try:
        curves = Curves.from_payload(result.payload) if result.payload else None
    except ValueError as error:
        problem = f"its worker's result cannot be read: {error}"
    event = Finished(
        worker,
        result.lease,
        Outcome.ERROR if problem else result.outcome,
        now,
        problem or result.message,
        result.replace or bool(problem),
        curves.compile_seconds + curves.wall_seconds if curves is not None else None,
    )
    return event, curves
