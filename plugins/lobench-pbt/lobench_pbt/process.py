"""Which process a worker is: two of one name are told apart, and one that is over gives its trial back at once."""

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

__all__ = ["Fate", "begin", "end", "fate", "who"]

_LIVE: set[str] = set()  # of this process
_NUMBERS = itertools.count(1)
_LOCK = threading.Lock()


class Fate(enum.StrEnum):
    """What is known of a process: it runs on this machine, it is over, or it is on a machine that is not this one."""

    RUNS = "runs"
    OVER = "over"
    ELSEWHERE = "elsewhere"


def begin() -> str:
    """Returns a name for one client of this process: machine, the process and its start, number of the client."""
    with _LOCK:
        name = f"{_machine()}/{os.getpid()}/{_started(os.getpid())}/{next(_NUMBERS)}"
        _LIVE.add(name)
        return name


def end(name: str) -> None:
    """Says that a client of this process is over."""
    with _LOCK:
        _LIVE.discard(name)


def fate(name: str) -> Fate:
    """Says what became of the process that a name is of."""
    machine, pid, started, *_ = (*name.split("/"), "", "", "")
    if machine != _machine() or not pid.isdecimal():
        return Fate.ELSEWHERE
    if int(pid) == os.getpid():
        return Fate.RUNS if name in _LIVE else Fate.OVER
    return Fate.RUNS if _started(int(pid)) == started != "" else Fate.OVER


def who(name: str) -> str:
    """Returns a name as a person would say it."""
    machine, pid, *_ = (*name.split("/"), "")
    where = "this machine" if machine == _machine() else machine.partition(":")[0]
    return f"process {pid} of {where}"


@functools.cache
def _machine() -> str:
    """Returns the host's name with what tells two of one name apart, and containers that number processes alike."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    if len(parts) < 3:
        parts.append(f"{uuid.getnode():x}")
    return ":".join(parts).replace("/", "_")


def _started(pid: int) -> str:
    """Returns when a process began, in ticks since the machine's start; "" where there is none such, or a dead one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        return _known_by_signal(pid)
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _known_by_signal(pid: int) -> str:
    """Where there is no /proc: whether somebody has that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "some time"
