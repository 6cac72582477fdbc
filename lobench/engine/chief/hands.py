"""The chief's hands: workers through an executor that is made at the first checkpoint, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lobench.core.cost import Usage
from lobench.core.planner import Finished, Size
from lobench.core.result import Curves, Outcome
from lobench.engine.workers.pool import Executor, Message
from lobench.engine.workers.protocol import case_from_record

__all__ = ["WatchWorkers", "finished_of"]

_SLOW_START_SECONDS = 60.0
# What a worker's messages must have: a task may have written into its pipe.
_VALUES: Mapping[str, Mapping[str, type]] = {
    "ready": {"cases": list},
    "failed": {"messages": list},
    "progress": {"lease": int, "step": int},
    "result": {"lease": int, "outcome": str, "message": str, "replace": bool},
    "prepared": {"is_done": bool},
}


class WatchWorkers:
    """Starts, ends, tells and hears workers.

    Args:
      make_executor: Called when the first worker is wanted.
      wakeup: A connection whose data end `wait`.
      logs: Where workers write.
      max_core_seconds: What they may use together.
      say: Told which worker takes long to start.
    """

    def __init__(
        self,
        *,
        make_executor: Callable[[Connection], Executor],
        wakeup: Connection,
        logs: Path,
        max_core_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self._make_executor, self._wakeup, self._logs, self._say = make_executor, wakeup, logs, say
        self._executor: Executor | None = None
        self._starting: dict[int, float] = {}
        self._num_cpus: dict[int, int] = {}
        self._usage = Usage(max_core_seconds)

    @property
    def core_seconds(self) -> float:
        return self._usage.core_seconds(time.monotonic())

    @property
    def is_over_budget(self) -> bool:
        return self._usage.is_over(time.monotonic())

    def start(self, worker: int, size: Size) -> None:
        if self._executor is None:
            self._executor = self._make_executor(self._wakeup)
        self._starting[worker], self._num_cpus[worker] = time.monotonic(), size.num_cpus
        self._executor.start(worker, size.num_cpus, size.num_gpus)

    def kill(self, worker: int) -> None:
        assert self._executor is not None
        self._executor.kill(worker)
        self._forget(worker)

    def run(self, worker: int, **values: Any) -> None:
        """Sends a job, which holds the worker's cores until its result comes; one that has died holds none."""
        assert self._executor is not None
        self._usage.begin(worker, self._num_cpus.get(worker, 0), time.monotonic())
        self._executor.send(worker, "job", **values)

    def prepare(self, worker: int, **values: Any) -> None:
        """Has a worker compile something beside its job, on a core more."""
        assert self._executor is not None
        self._usage.begin(_beside(worker), 1, time.monotonic())
        self._executor.send(worker, "prepare", **values)

    def wait(self, timeout: float) -> Sequence[Message]:
        """Returns what workers said, after `timeout` seconds at the latest."""
        if self._executor is None:
            self._wakeup.poll(timeout)
            return ()
        messages = [self._sound(message) for message in self._executor.wait(timeout)]
        for message in messages:
            match message.kind:
                case "ready":
                    self._starting.pop(message.worker, None)
                case "died":
                    self._forget(message.worker)
                case "result":
                    self._usage.end(message.worker, time.monotonic())
                case "prepared":
                    self._usage.end(_beside(message.worker), time.monotonic())
        return messages

    def _sound(self, message: Message) -> Message:
        """Returns a message that says what its kind says; of any other, that its worker died, which is ended."""
        if _is_sound(message):
            return message
        assert self._executor is not None
        self._executor.kill(message.worker)
        text = f"said {message.kind!r} without what belongs to it"
        return Message(worker=message.worker, kind="died", values={"message": text})

    def mention_slow_starts(self) -> None:
        """A worker may take as long as its suite takes to import; that it has not begun yet should be known."""
        now = time.monotonic()
        for worker, since in list(self._starting.items()):
            if now - since > _SLOW_START_SECONDS:
                del self._starting[worker]
                log = self._logs / f"worker-{worker}.log"  # one elsewhere keeps its own, or waits for a machine
                see = f", see {log}" if log.is_file() else ""
                self._say(f"worker {worker} is not ready after {_SLOW_START_SECONDS:g} s; still waiting{see}")

    def close(self) -> None:
        """Ends them all."""
        if self._executor is not None:
            self._executor.close()
        self._wakeup.close()

    def _forget(self, worker: int) -> None:
        self._starting.pop(worker, None)
        self._num_cpus.pop(worker, None)
        self._usage.end(worker, time.monotonic())
        self._usage.end(_beside(worker), time.monotonic())


def finished_of(message: Message, now: float) -> tuple[Finished, Curves | None]:
    """Returns a worker's result; one that cannot be read is the evaluation's error, and the worker is replaced."""
    values, curves, problem = message.values, None, ""
    try:
        curves = Curves.from_payload(message.payload) if message.payload else None
    except ValueError as error:
        problem = f"its worker's result cannot be read: {error}"
    event = Finished(
        message.worker,
        values["lease"],
        Outcome.ERROR if problem else Outcome(values["outcome"]),
        now,
        problem or values["message"],
        values["replace"] or bool(problem),
        curves.compile_seconds + curves.wall_seconds if curves is not None else None,
    )
    return event, curves


def _is_sound(message: Message) -> bool:
    values = message.values
    if not all(isinstance(values.get(name), kind) for name, kind in _VALUES.get(message.kind, {}).items()):
        return False
    try:
        if message.kind == "result":
            Outcome(values["outcome"])
        if message.kind == "ready":
            for record in values["cases"]:
                case_from_record(record)
    except (TypeError, ValueError):
        return False
    return True


def _beside(worker: int) -> int:
    """Returns the number under which counts what a worker compiles beside its job."""
    return -1 - worker
