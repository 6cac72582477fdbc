"""Executors of one machine: warm worker processes, one pipe each; or one worker inside the chief's own process."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing.connection
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from lobench.engine.devices import DeviceLeases, devices_here
from lobench.engine.job import decode, encode
from lobench.engine.layers import Layers

__all__ = ["Executor", "InlineExecutor", "LocalPool", "Message", "WorkerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What every worker of a watch is started with.

    Attributes:
      arguments: pytest's, the suites among them.
      layers: gin text around the cases.
      log_folder: Where each worker's own output goes, a file each.
      compilation_cache: jax's persistent cache, so that a restarted worker compiles little.
      max_cores: Cores that workers may take together; None: as many as there are, also where that changes.
      address: Where an executor of many machines finds them; "" where it needs none.
      insecure: Whether it may use machines that let anybody in.
      serve: "module:function" that a worker runs, with the signature of `lobench.engine.worker.serve`.
    """

    arguments: tuple[str, ...]
    layers: Layers
    log_folder: Path
    compilation_cache: Path
    max_cores: int | None = None
    address: str = ""
    insecure: bool = False
    serve: str = "lobench.engine.worker:serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a worker said; `kind` is ready, failed, progress, result, or died (which the executor says for it).

    An executor may also say, with the worker -1: `notice` (`message`, shown to the user), or `capacity` (`machines`:
    cores and devices of each that there is now; `limit`: cores that the user named, or None). Where the machine is to
    blame for a worker's end and not the case, its `died` has `lost=True`.
    """

    worker: int
    kind: str
    values: dict[str, Any]
    payload: bytes = b""

    def to_bytes(self) -> bytes:
        return encode(self.kind, self.payload, **{**self.values, "worker": self.worker})

    @classmethod
    def from_bytes(cls, data: bytes) -> Message:
        values, payload = decode(data)
        return cls(worker=values.pop("worker"), kind=values.pop("kind"), values=values, payload=payload)


class Executor(Protocol):
    """Runs workers somewhere. The chief owns leases, deadlines and attempts; an executor retries nothing."""

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        """Starts a worker; it will say ready, failed or died."""

    def send(self, worker: int, kind: str, **values: Any) -> None:
        """Sends a message to a worker; to one that died, nothing happens (its death is told by `wait`).

        Kinds are `configure`, `job`, `exit`, and `prepare` (compile what may come next, answered by `prepared`), which
        is sent where cores of this machine are free.
        """

    def kill(self, worker: int) -> None:
        """Ends a worker at once; it is not heard of again."""

    def wait(self, timeout: float) -> Sequence[Message]:
        """Returns what workers said, at most `timeout` seconds after the call."""

    def close(self) -> None:
        """Ends all workers."""


class LocalPool:
    """Spawned processes. `wakeup` is a descriptor that `wait` also returns for (a signal's, say)."""

    def __init__(self, config: WorkerConfig, wakeup: Connection | None = None) -> None:
        self._config, self._wakeup = config, wakeup
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._connections: dict[int, Connection] = {}
        self._devices = DeviceLeases(devices_here(os.environ))
        config.log_folder.mkdir(parents=True, exist_ok=True)

    @property
    def pids(self) -> dict[int, int]:
        return {worker: child.pid for worker, child in self._children.items()}

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        devices = self._devices.lease(worker, num_gpus)
        ours, theirs = socket.socketpair()
        with theirs:
            self._children[worker] = subprocess.Popen(
                [sys.executable, "-m", "lobench.engine.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "NPROC": str(num_cpus), **devices},
            )
        self._connections[worker] = Connection(ours.detach())
        self.send(
            worker,
            "configure",
            num_cpus=num_cpus,
            arguments=self._config.arguments,
            layers=self._config.layers.to_json(),
            log=str(self._config.log_folder / f"worker-{worker}.log"),
            compilation_cache=str(self._config.compilation_cache),
            serve=self._config.serve,
        )

    def send(self, worker: int, kind: str, **values: Any) -> None:
        with contextlib.suppress(OSError, KeyError):
            self._connections[worker].send_bytes(encode(kind, **values))

    def kill(self, worker: int) -> None:
        self._devices.release(worker)
        child = self._children.pop(worker, None)
        if child is not None:
            child.kill()
            child.wait()
        connection = self._connections.pop(worker, None)
        if connection is not None:
            connection.close()

    def wait(self, timeout: float) -> list[Message]:
        workers = {connection: worker for worker, connection in self._connections.items()}
        watched: list[Any] = [*workers, *([self._wakeup] if self._wakeup else [])]
        messages: list[Message] = []
        for ready in multiprocessing.connection.wait(watched, timeout):
            worker = workers.get(ready)  # type: ignore[call-overload]
            if worker is None:
                assert self._wakeup is not None
                os.read(self._wakeup.fileno(), 4096)
                continue
            messages += self._read(worker, workers_connection=ready)
        return messages

    def _read(self, worker: int, workers_connection: Any) -> list[Message]:
        """Reads all that a worker has said; results that came together are taken together."""
        messages: list[Message] = []
        try:
            while not messages or workers_connection.poll():
                values, payload = decode(workers_connection.recv_bytes())
                messages.append(Message(worker=worker, kind=values.pop("kind"), values=values, payload=payload))
        except (EOFError, OSError):
            child = self._children[worker]
            try:
                code = child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                code = None
            self.kill(worker)
            messages.append(Message(worker=worker, kind="died", values={"message": _how_it_ended(code)}))
        return messages

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
        for worker in list(self._children):
            self.kill(worker)


class InlineExecutor:
    """One worker in a thread of this process, for debugging: no deadline can end it, nothing can kill it."""

    def __init__(self, config: WorkerConfig, wakeup: Connection | None = None) -> None:
        self._config, self._wakeup = config, wakeup
        self._connection: Connection | None = None
        self._worker = 0

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        module, _, attribute = self._config.serve.partition(":")
        serve = getattr(importlib.import_module(module), attribute)
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        os.environ["NPROC"] = str(num_cpus)
        self._worker, self._connection = worker, ours
        arguments = [*self._config.arguments, "-p", "no:terminal", "-s"]
        threading.Thread(
            target=serve, args=(theirs, arguments, self._config.layers), kwargs={"exit_at_eof": False}, daemon=True
        ).start()

    def send(self, worker: int, kind: str, **values: Any) -> None:
        if self._connection is not None:
            self._connection.send_bytes(encode(kind, **values))

    def kill(self, worker: int) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def wait(self, timeout: float) -> list[Message]:
        watched: list[Any] = [end for end in (self._connection, self._wakeup) if end is not None]
        messages: list[Message] = []
        for ready in multiprocessing.connection.wait(watched, timeout):
            if ready is self._connection:
                values, payload = decode(self._connection.recv_bytes())
                messages.append(Message(worker=self._worker, kind=values.pop("kind"), values=values, payload=payload))
            elif self._wakeup is not None:
                os.read(self._wakeup.fileno(), 4096)
        return messages

    def close(self) -> None:
        if self._connection is not None:
            self.send(self._worker, "exit")
            self.kill(self._worker)


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its pipe"
    return f"killed by signal {-code}" if code < 0 else f"exited with status {code}"
