"""SLURM executor of the chief: a job per worker, which connects to the chief over TCP."""

from __future__ import annotations

import contextlib
import math
import multiprocessing.connection
import os
import queue
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from typing import Any

from lobench import LobenchError, UsageError
from lobench.extend import Channel, Codec, WorkerConfig, headline, kind_of
from lobench.hookspecs import ExecutorEvent, Notice, WorkerExited, WorkerMessage
from lobench_slurm.jobs import Jobs
from lobench_slurm.slot import Hello, keep_alive
from lobench_slurm.slurm_options import SlurmOptions

__all__ = ["SlurmExecutor"]

_FROM_SLOT: Codec[WorkerMessage | WorkerExited | Notice] = Codec(WorkerMessage, WorkerExited, Notice)
_POLL_SECONDS = 5.0  # between calls of squeue while jobs wait
_END_POLL_SECONDS = 1.0  # time between polls while the reason of a job's end is wanted
_END_SECONDS = 15.0  # longest wait for the reason of an end
_RETRY_SECONDS = 30.0  # time until a refused job is submitted again
_RETRY_READ_SECONDS = 0.5
_HANDSHAKE_SECONDS = 20.0
_WORK_KINDS = ("job", "command")
_LIVE_STATES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING")
_CASE_STATES = ("FAILED", "OUT_OF_MEMORY")  # ends of a job that its case may have caused


@dataclass(slots=True)
class _Slot:
    """State of a worker. `job_number` is "" until its job is submitted, `channel` None until the job has connected."""

    size: tuple[int, int]  # cores, devices
    job_number: str = ""
    channel: Channel | None = None
    submitted_at: float = 0.0
    closed_at: float = 0.0  # time at which the connection ended without a report; 0.0: it has not
    num_jobs: int = 0  # jobs and commands without a result
    used_at: float = 0.0


class SlurmExecutor:
    """Warm workers in SLURM jobs, one each. It does not retry work.

    A job that ends by its time limit, pre-emption, scancel or the loss of its node or connection is a lost worker,
    which does not count against the case. A job without work ends after a while, unless fewer than
    `WorkerConfig.min_cores` would be left.

    `send` may be called in another thread than the other methods.
    """

    def __init__(self, config: WorkerConfig, wakeup: Connection | None = None) -> None:
        self._config, self._wakeup = config, wakeup
        self._options = SlurmOptions.parse(config.argument)
        if config.max_cores is None:
            raise UsageError("--executor slurm needs a number of cores", next_step="--workers MAX or MIN:MAX")
        if missing := [name for name in ("sbatch", "srun", "squeue", "scancel") if shutil.which(name) is None]:
            raise LobenchError("not a machine of a SLURM cluster", got=f"no {missing[0]} in PATH")
        config.log_folder.mkdir(parents=True, exist_ok=True)
        self._slots: dict[int, _Slot] = {}
        self._key = secrets.token_bytes(32)
        self._jobs = Jobs(config.log_folder.absolute() / "slurm", self._options.sbatch)
        self._pending_handlers: queue.SimpleQueue[Callable[[], list[ExecutorEvent]]] = queue.SimpleQueue()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._commands = ThreadPoolExecutor(1, "lobench calls SLURM")  # one at a time, in order
        self._is_polling, self._polled_at = False, 0.0
        self._was_job_accepted = self._was_refusal_reported = self._is_slurm_silent = self._is_closed = False
        self._count_lock = threading.Lock()  # protects `_Slot.num_jobs`
        self._listener = Listener(("", 0), "AF_INET", backlog=128)
        self._commands.submit(self._jobs.cancel_all)
        threading.Thread(target=self._accept_connections, name="lobench listens to its jobs", daemon=True).start()

    def start(self, worker: int, num_cpus: int, num_gpus: float = 0.0) -> None:
        self._slots[worker] = slot = _Slot((num_cpus, math.ceil(num_gpus)), used_at=time.monotonic())
        self._commands.submit(self._submit, worker, slot)

    def send(self, worker: int, message: bytes, files: Sequence[str] = ()) -> None:
        slot = self._slots.get(worker)
        if slot is not None and slot.channel is not None:
            with self._count_lock:
                slot.num_jobs += kind_of(message) in _WORK_KINDS
            slot.channel.send(message)

    def kill(self, worker: int) -> None:
        slot = self._slots.pop(worker, None)
        if slot is not None:
            self._end_job(slot)

    def wait(self, timeout: float) -> list[ExecutorEvent]:
        channels = [slot.channel for slot in self._slots.values() if slot.channel is not None]
        unsent_channels = [channel for channel in channels if not channel.flush()]
        if unsent_channels or any(channel.is_amid_a_message for channel in channels):
            timeout = min(timeout, _RETRY_READ_SECONDS)
        wait_objects: list[Any] = [
            *channels,
            self._wake_receiver,
            *([self._wakeup] if self._wakeup is not None else []),
        ]
        ready = multiprocessing.connection.wait(wait_objects, min(timeout, _END_POLL_SECONDS))
        if self._wake_receiver in ready:
            self._wake_receiver.recv(4096)
        if self._wakeup is not None and self._wakeup in ready:
            os.read(self._wakeup.fileno(), 4096)
        events: list[ExecutorEvent] = []
        while not self._pending_handlers.empty():
            events += self._pending_handlers.get()()
        for worker, slot in list(self._slots.items()):
            if slot.channel is not None and slot.channel in channels:
                events += self._receive(worker, slot, slot.channel)
        events += self._release_idle()
        self._poll_states()
        return events

    def close(self) -> None:
        for worker in list(self._slots):
            self.kill(worker)
        self._stop_listening()
        self._commands.submit(self._jobs.cancel_all)
        self._commands.shutdown()
        self._wake_receiver.close()
        self._wake_sender.close()

    # Jobs.

    def _submit(self, worker: int, slot: _Slot) -> None:
        """Submits the job of a worker. Runs in the thread of SLURM's commands."""
        if self._slots.get(worker) is not slot:
            return  # killed meanwhile
        num_cpus, num_gpus = slot.size
        port: int = self._listener.address[1]
        try:
            slot.job_number = self._jobs.submit(
                num_cpus,
                num_gpus,
                host=self._options.host,
                port=port,
                key=self._key,
                worker=worker,
                config=self._config,
            )
        except LobenchError as error:
            refusal = error
            self._call_in_wait(lambda: self._retry_refused_job(worker, slot, refusal))
            return
        except Exception as error:  # noqa: BLE001  (of submitit; the executor's thread would swallow it)
            failure = LobenchError("a job cannot be submitted", where=self._jobs.name, got=headline(error))
            self._call_in_wait(lambda: self._raise_error(failure))
            return
        slot.submitted_at = time.monotonic()
        self._was_job_accepted = True
        if self._slots.get(worker) is not slot:
            self._jobs.cancel([slot.job_number])

    def _retry_refused_job(self, worker: int, slot: _Slot, error: LobenchError) -> list[ExecutorEvent]:
        """Submits a refused job again later, because a limit on the number of jobs may be reached.

        Raises:
          LobenchError: No job was accepted so far.
        """
        if not self._was_job_accepted:
            raise error
        timer = threading.Timer(_RETRY_SECONDS, lambda: self._call_in_wait(lambda: self._submit_again(worker, slot)))
        timer.daemon = True
        timer.start()
        is_first, self._was_refusal_reported = not self._was_refusal_reported, True
        return [Notice(message=f"{error}; trying again every {_RETRY_SECONDS:g} s")] if is_first else []

    def _raise_error(self, error: LobenchError) -> list[ExecutorEvent]:
        raise error

    def _submit_again(self, worker: int, slot: _Slot) -> list[ExecutorEvent]:
        if self._slots.get(worker) is slot:
            self._commands.submit(self._submit, worker, slot)
        return []

    def _poll_states(self) -> None:
        """Asks for the states of jobs, if any has not connected yet or has ended without a report."""
        waiting_slots = [
            slot for slot in self._slots.values() if slot.closed_at or (slot.job_number and slot.channel is None)
        ]
        if not waiting_slots or self._is_polling:
            return
        pause = _END_POLL_SECONDS if any(slot.closed_at for slot in waiting_slots) else _POLL_SECONDS
        now = time.monotonic()
        if now - self._polled_at >= pause:
            self._is_polling, self._polled_at = True, now
            self._commands.submit(self._ask_for_states, now)

    def _ask_for_states(self, now: float) -> None:
        states: dict[str, str] | None = None
        problem = ""
        try:
            states = self._jobs.states()
        except (OSError, subprocess.SubprocessError) as error:
            problem = str(getattr(error, "stderr", "") or error).strip().replace("\n", "; ")
        self._call_in_wait(lambda: self._update_states(states, problem, now))

    def _update_states(self, states: dict[str, str] | None, problem: str, now: float) -> list[ExecutorEvent]:
        self._is_polling = False
        was_silent, self._is_slurm_silent = self._is_slurm_silent, states is None
        events: list[ExecutorEvent] = []
        if states is None and not was_silent:
            events.append(Notice(message=f"SLURM does not answer: {problem}; running jobs go on"))
        for worker, slot in list(self._slots.items()):
            state = (states or {}).get(slot.job_number, "")
            if slot.closed_at:
                has_ended = bool(state) and state not in _LIVE_STATES
                if not has_ended and time.monotonic() - slot.closed_at < _END_SECONDS:
                    continue
            elif states is None or slot.channel is not None or not 0 < slot.submitted_at < now or state in _LIVE_STATES:
                continue
            events.append(self._worker_exited(worker, slot, state))
        return events

    def _worker_exited(self, worker: int, slot: _Slot, state: str) -> WorkerExited:
        """Returns the exit of a worker whose job ended in a state; "" if that is unknown."""
        del self._slots[worker]
        self._end_job(slot)
        message = f"its SLURM job {slot.job_number} ended ({state.lower().replace('_', ' ') or 'unknown state'})"
        # A job that completes has lost its connection: otherwise it would have reported the end of its worker.
        is_lost = state not in _CASE_STATES and (state != "COMPLETED" or slot.closed_at > 0)
        if not is_lost:
            message += f": {self._jobs.last_line(slot.job_number)}"
        return WorkerExited(worker=worker, message=message, lost=is_lost, is_oom=state == "OUT_OF_MEMORY")

    def _end_job(self, slot: _Slot) -> None:
        """Closes a job's connection, which ends a connected job at once, and cancels the job."""
        if slot.channel is not None:
            slot.channel.close()
            slot.channel = None
        if slot.job_number:
            self._commands.submit(self._jobs.cancel, [slot.job_number])

    def _release_idle(self) -> list[ExecutorEvent]:
        """Ends jobs that have had no work for a while, except for the last `min_cores` cores."""
        now = time.monotonic()
        events = list[ExecutorEvent]()
        num_cores = sum(slot.size[0] for slot in self._slots.values())
        for worker, slot in list(self._slots.items()):
            is_idle = slot.channel is not None and not slot.num_jobs
            if not is_idle or now - slot.used_at < self._options.idle_seconds:
                continue
            if num_cores - slot.size[0] < self._config.min_cores:
                continue
            num_cores -= slot.size[0]
            self.kill(worker)
            message = f"its SLURM job {slot.job_number} had no work for {self._options.idle_seconds:g} s"
            events.append(WorkerExited(worker=worker, message=message, lost=True))
        return events

    # Connections.

    def _accept_connections(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(_RETRY_READ_SECONDS)  # the connection was reset, or this process has too many open files
                continue
            if self._is_closed:
                connection.close()
                return
            threading.Thread(target=self._authenticate, args=(connection,), daemon=True).start()

    def _stop_listening(self) -> None:
        """Ends the thread that accepts connections. It needs one: closing its socket would not wake it."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self._listener.address[1]), timeout=1.0).close()
        self._listener.close()

    def _authenticate(self, connection: Connection) -> None:
        """Lets a job prove that it knows the key. Each connection has its own thread and time limit."""
        timer = threading.Timer(_HANDSHAKE_SECONDS, lambda: _shut_down(connection))
        timer.daemon = True
        timer.start()
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            hello = Hello.from_bytes(connection.recv_bytes(4096))
            keep_alive(connection.fileno())
        except (OSError, EOFError, ValueError, multiprocessing.AuthenticationError):
            connection.close()
            return
        finally:
            timer.cancel()
        peer_socket = socket.socket(fileno=os.dup(connection.fileno()))
        connection.close()
        self._call_in_wait(lambda: self._worker_connected(hello, peer_socket))

    def _worker_connected(self, hello: Hello, peer_socket: socket.socket) -> list[ExecutorEvent]:
        slot = self._slots.get(hello.worker)
        if slot is None or slot.channel is not None or slot.closed_at:
            peer_socket.close()  # killed meanwhile
        else:
            slot.channel, slot.used_at = Channel(peer_socket), time.monotonic()
        return []

    def _receive(self, worker: int, slot: _Slot, channel: Channel) -> list[ExecutorEvent]:
        events: list[ExecutorEvent] = []
        for data in channel.receive():
            event = _FROM_SLOT.from_bytes(data)
            events.append(event)
            slot.used_at = time.monotonic()
            if isinstance(event, WorkerExited):
                self.kill(worker)
                return events
            if isinstance(event, WorkerMessage):
                with self._count_lock:
                    slot.num_jobs -= kind_of(event.message) == "jobresult"
        if channel.is_amid_a_message:
            channel.look()
        if channel.problem:
            self.kill(worker)
            events.append(
                WorkerExited(worker=worker, message=f"its SLURM job {slot.job_number} {channel.problem}", lost=True)
            )
        elif channel.is_closed:
            slot.channel, slot.closed_at = None, time.monotonic()
            channel.close()
        return events

    def _call_in_wait(self, handler: Callable[[], list[ExecutorEvent]]) -> None:
        """Has `wait` call a function in its thread. May be called in any thread."""
        self._pending_handlers.put(handler)
        try:
            self._wake_sender.send(b"\0")
        except OSError:
            return  # closed


def _shut_down(connection: Connection) -> None:
    """Ends a connection that another thread may be reading."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as peer_socket:
            peer_socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
