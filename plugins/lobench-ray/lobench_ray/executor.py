"""Ray executor of the chief. Runs a bridge process, and replaces it if it is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing.connection
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from lobench import LobenchError
from lobench.extend import Channel, Message, Parcel, WorkerConfig, counted, leave_mark
from lobench.hookspecs import ExecutorCapacity, ExecutorEvent, Notice, WorkerExited, WorkerMessage
from lobench_ray.clock import AwakeClock
from lobench_ray.messages import (
    FROM_BRIDGE,
    ClusterRefused,
    Forward,
    FromBridge,
    Join,
    Joined,
    Kill,
    Leave,
    Log,
    SlotStart,
    Unreachable,
    WorkerPlan,
)

__all__ = ["SILENCE_SECONDS", "RayExecutor"]

SILENCE_SECONDS = 30.0
_RECONNECT_SECONDS = 600.0
_CONNECT_SECONDS = 120.0
_CLOSE_SECONDS = 10.0
_FLUSH_SECONDS = 0.5  # between attempts to send pending messages to the bridge


class RayExecutor:
    """Warm workers on the nodes of a Ray cluster, one actor per slot. It does not retry work.

    A slot or a bridge that is silent for `SILENCE_SECONDS` counts as lost.
    """

    def __init__(self, config: WorkerConfig, wakeup: Connection | None = None) -> None:
        self._config, self._wakeup = config, wakeup
        layers = config.layers
        self._suite_archive = Parcel.pack(
            config.arguments, layers.gin_files, layers.trainer_config, layers.import_folders
        )
        self._workers: dict[int, tuple[int, float]] = {}
        self._bridge: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._clock = AwakeClock()
        self._last_message = 0.0
        self._lost_at = 0.0
        self._next_try_at = 0.0
        self._address, self._was_connected = "", False
        config.log_folder.mkdir(parents=True, exist_ok=True)
        self._start_bridge()

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        self._workers[worker] = (num_cpus, num_gpus)
        self._send_to_bridge(SlotStart(worker=worker, num_cpus=num_cpus, num_gpus=num_gpus))

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        if worker in self._workers:
            self._send_to_bridge(Forward(worker=worker, files=tuple(files), message=message))

    def kill(self, worker: int) -> None:
        if self._workers.pop(worker, None) is not None:
            self._send_to_bridge(Kill(worker=worker))

    def wait(self, timeout: float) -> list[ExecutorEvent]:
        now = time.monotonic()
        if self._channel is None and now >= self._next_try_at:
            self._start_bridge()
        if self._channel is not None and not self._channel.flush():
            timeout = min(timeout, _FLUSH_SECONDS)
        wait_objects: list[Any] = [connection for connection in (self._channel, self._wakeup) if connection is not None]
        messages: list[ExecutorEvent] = []
        ready: list[Any] = multiprocessing.connection.wait(wait_objects, timeout)
        for connection in ready:
            if isinstance(connection, Channel):
                messages += self._read_channel(connection)
            elif self._wakeup is not None:
                os.read(self._wakeup.fileno(), 4096)
        max_silence = SILENCE_SECONDS if self._address else _CONNECT_SECONDS
        if self._channel is not None and self._clock.now() - self._last_message > max_silence:
            messages += self._lose_bridge("Ray's driver does not answer")
        return messages

    def close(self) -> None:
        if self._bridge is None:
            return
        self._send_to_bridge(Leave())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._bridge.wait(_CLOSE_SECONDS)
        self._end_bridge()

    # The bridge.

    def _start_bridge(self) -> None:
        own_socket, bridge_socket = socket.socketpair()
        log = self._config.log_folder / "ray.log"
        with bridge_socket, log.open("ab") as output:
            self._bridge = subprocess.Popen(
                [sys.executable, "-P", "-m", "lobench_ray.bridge", str(bridge_socket.fileno())],
                pass_fds=[bridge_socket.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # so that Ctrl-C reaches the chief only
                env=_environment(self._config.address),
            )
        self._channel = Channel(own_socket)
        self._last_message = self._clock.now()
        self._address = ""
        plan = WorkerPlan(
            sha256=self._suite_archive.sha256,
            suites=tuple(self._suite_archive.inside(suite) for suite in self._config.arguments),
            layers=self._config.layers.relative_to(self._suite_archive.base),
            serve=self._config.serve,
            state_folder_token=leave_mark(self._config.state_folder) if self._config.state_folder is not None else "",
            working_folder=os.getcwd(),
            with_tests=self._config.with_tests,
        )
        join = Join(
            address=self._config.address or "auto",
            insecure=self._config.insecure,
            silence_seconds=SILENCE_SECONDS,
            plan=plan,
            suite_archive=self._suite_archive.data,
        )
        self._send_to_bridge(join)
        for worker, (num_cpus, num_gpus) in self._workers.items():
            self._send_to_bridge(SlotStart(worker=worker, num_cpus=num_cpus, num_gpus=num_gpus))

    def _send_to_bridge(self, message: Message) -> None:
        """Sends a message to the bridge. Without a bridge the message is dropped; the next one receives all workers."""
        if self._channel is not None:
            self._channel.send(message.to_bytes())

    def _read_channel(self, channel: Channel) -> list[ExecutorEvent]:
        messages: list[ExecutorEvent] = []
        for data in channel.receive():
            self._last_message = self._clock.now()
            messages += self._handle_message(FROM_BRIDGE.from_bytes(data))
        if self._channel is channel and (channel.problem or channel.is_closed):
            messages += self._lose_bridge(f"Ray's driver {channel.problem or 'ended'}")
        return messages

    def _handle_message(self, message: FromBridge) -> list[ExecutorEvent]:
        match message:
            case Joined(address=address):
                is_reconnected = self._lost_at > 0 and self._was_connected
                self._address = address
                self._lost_at = 0.0
                return [Notice(message=f"connected to Ray at {address} again")] if is_reconnected else []
            case ClusterRefused(message=why):
                raise LobenchError(why)
            case Unreachable(message=why):
                return self._lose_bridge(why)
            case ExecutorCapacity():
                return self._update_capacity(message)
            case Log():
                with (self._config.log_folder / f"worker-{message.worker}.log").open("ab") as file:
                    file.write(message.tail)
            case Notice():
                return [message]
            case WorkerMessage() | WorkerExited() if message.worker in self._workers:
                if isinstance(message, WorkerExited):
                    del self._workers[message.worker]
                return [message]
        return []  # a heartbeat, or a late message of a killed worker

    def _update_capacity(self, capacity: ExecutorCapacity) -> list[ExecutorEvent]:
        machines = capacity.machines
        num_cpus, num_gpus = (sum(amounts) for amounts in zip(*machines, strict=True)) if machines else (0, 0)
        self._was_connected = True
        devices = f" and {num_gpus:g} devices" if num_gpus else ""
        text = f"Ray at {self._address}: {counted(int(num_cpus), 'core')}{devices} on {counted(len(machines), 'node')}"
        return [Notice(message=text), dataclasses.replace(capacity, limit=self._config.max_cores)]

    def _lose_bridge(self, reason: str) -> list[ExecutorEvent]:
        """Handles the loss of the bridge and of all workers.

        Reconnects for ten minutes, but not after a failed first attempt.
        """
        self._end_bridge()
        now = time.monotonic()
        if not self._was_connected:
            raise LobenchError(
                "cannot use a Ray cluster",
                where=self._config.address or "auto",
                got=reason,
                next_step=f"is it running (`ray status`)? `ray start --head` starts one here, --ray-address names "
                f"another; see {self._config.log_folder / 'ray.log'}",
            )
        self._lost_at = self._lost_at or now
        if now - self._lost_at > _RECONNECT_SECONDS:
            raise LobenchError(
                f"Ray has been gone for {_RECONNECT_SECONDS / 60:g} minutes",
                where=self._address or self._config.address,
                got=reason,
                next_step="start it and then the same watch again: it goes on from its ledger",
            )
        self._next_try_at = now + min(2.0 + 0.2 * (now - self._lost_at), 15.0)
        lost_workers: list[ExecutorEvent] = [
            WorkerExited(worker=worker, message=reason, lost=True) for worker in self._workers
        ]
        self._workers.clear()
        is_first_loss = now == self._lost_at
        return [*([Notice(message=f"lost Ray: {reason}; trying again")] if is_first_loss else []), *lost_workers]

    def _end_bridge(self) -> None:
        if self._bridge is not None:
            self._bridge.kill()
            self._bridge.wait()
        if self._channel is not None:
            self._channel.close()
        self._bridge = self._channel = None


def _environment(address: str) -> dict[str, str]:
    """Returns the bridge's environment, which Ray reads when it is imported.

    A cluster that is started for a watch requires a token unless the user's environment overrides it, since Ray listens
    on every interface. It starts processes when slots need them: where Ray starts some for the first driver, that
    driver waits for all of them, and in vain if one dies at its start.
    """
    if address != "local":
        return dict(os.environ)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return {**token, "RAY_prestart_worker_first_driver": "0", **os.environ}
