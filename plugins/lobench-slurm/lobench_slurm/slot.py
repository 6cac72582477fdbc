"""Process of a SLURM job. It runs one of lobench's warm workers and passes on its messages.

The worker is a process below this one. So a case that kills its process is distinguished from a job that SLURM ends:
in the first case this process reports the exit, in the second the connection ends without a report.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from types import FrameType

from lobench.extend import LocalPool, Message, WorkerConfig
from lobench.hookspecs import WorkerExited

__all__ = ["Hello", "keep_alive", "serve"]

_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Message):
    """First message of a job: the number of its worker, and the name of its node."""

    worker: int
    node: str


class _Terminated(BaseException):
    """SLURM ends the job: its time is up, it is pre-empted or it was cancelled."""


def serve(*, host: str, port: int, key: bytes, worker: int, config: WorkerConfig, num_cpus: int, num_gpus: int) -> None:
    """Runs a worker until the chief closes the connection, the worker exits, or SLURM ends the job.

    Args:
      host, port: Address of the chief.
      key: Secret that both ends prove to know.
      worker: Number of the worker.
      config: Configuration of the worker.
      num_cpus, num_gpus: Cores and devices of the job.
    """
    # These replace submitit's handlers, which would submit the job again.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    connection = Client((host, port), authkey=key)
    keep_alive(connection.fileno())
    connection.send_bytes(Hello(worker=worker, node=socket.gethostname()).to_bytes())
    read_end, write_end = os.pipe()
    wakeup = Connection(read_end, writable=False)
    pool = LocalPool(config, wakeup, has_detached_keeper=True)
    connection_closed = threading.Event()
    try:
        pool.start(worker, num_cpus, num_gpus)
        threading.Thread(
            target=_forward_messages, args=(connection, pool, worker, connection_closed, write_end), daemon=True
        ).start()
        while not connection_closed.is_set():
            for event in pool.wait(_WAIT_SECONDS):
                try:
                    connection.send_bytes(event.to_bytes())
                except OSError:
                    return  # the chief has ended, or its machine cannot be reached
                if isinstance(event, WorkerExited):
                    return
    except _Terminated:
        return
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pool.close()
        connection.close()


def _forward_messages(
    connection: Connection, pool: LocalPool, worker: int, connection_closed: threading.Event, wakeup: int
) -> None:
    """Passes messages of the chief on to the worker. Sets `connection_closed` at the end of the connection."""
    try:
        while True:
            pool.send(worker, connection.recv_bytes())
    except (EOFError, OSError):
        connection_closed.set()
        os.write(wakeup, b"\0")


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


def keep_alive(descriptor: int) -> None:
    """Makes the kernel end a connection whose other machine has not answered for about 30 s."""
    with socket.socket(fileno=os.dup(descriptor)) as peer_socket:
        peer_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", 10),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", 30000),
        ):
            if hasattr(socket, name):
                peer_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
