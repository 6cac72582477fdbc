"""Identity of a worker's process: distinguishes two processes with one worker name, and detects that one has ended."""

from __future__ import annotations

import contextlib
import enum
import functools
import itertools
import os
import socket
import threading
import uuid
from pathlib import Path

__all__ = ["Fate", "process_fate", "process_text", "register_client", "unregister_client"]

_LIVE_CLIENTS: set[str] = set()  # names that this process holds
_NUMBERS = itertools.count(1)
_LOCK = threading.Lock()


class Fate(enum.StrEnum):
    """State of a process: running on this machine, ended, or on another machine."""

    RUNS = "runs"
    OVER = "over"
    ELSEWHERE = "elsewhere"


def register_client() -> str:
    """Registers a new client of this process and returns its unique name, from which `process_fate` derives its state.

    The name consists of the machine, the process id, the time when the process started, and a counter.
    """
    with _LOCK:
        name = f"{_machine()}/{os.getpid()}/{_start_time(os.getpid())}/{next(_NUMBERS)}"
        _LIVE_CLIENTS.add(name)
        return name


def unregister_client(name: str) -> None:
    """Records that a client of this process has ended."""
    with _LOCK:
        _LIVE_CLIENTS.discard(name)


def process_fate(name: str) -> Fate:
    """Returns the state of the process with a name."""
    machine, pid, start_time, *_ = (*name.split("/"), "", "", "")
    if machine != _machine() or not pid.isdecimal():
        return Fate.ELSEWHERE
    if int(pid) == os.getpid():
        return Fate.RUNS if name in _LIVE_CLIENTS else Fate.OVER
    return Fate.RUNS if _start_time(int(pid)) == start_time != "" else Fate.OVER


def process_text(name: str) -> str:
    """Returns a readable form of a process's name."""
    machine, pid, *_ = (*name.split("/"), "")
    where = "this machine" if machine == _machine() else machine.partition(":")[0]
    return f"process {pid} of {where}"


@functools.cache
def _machine() -> str:
    """Returns a name of this machine that differs between machines with equal host names, and between containers."""
    name_parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        name_parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        name_parts.append(os.readlink("/proc/self/ns/pid"))
    if len(name_parts) < 3:
        name_parts.append(f"{uuid.getnode():x}")
    return ":".join(name_parts).replace("/", "_")


def _start_time(pid: int) -> str:
    """Returns the start of a process in ticks since boot; "" if the process is dead or unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        return _start_by_signal(pid)
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _start_by_signal(pid: int) -> str:
    """Replaces `_start_time` on systems without /proc: returns a constant if the process exists, else ""."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "some time"
