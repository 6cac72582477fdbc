"""Worker process: the process group, its channel, its log."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from lobench.core.wording import cause
from lobench.engine.workers.channel import Channel
from lobench.engine.workers.child_python import PYTHON
from lobench.engine.workers.last_words import how_it_ended, last_words

__all__ = ["KILLED", "WorkerProcess"]

KILLED = f"killed by signal {signal.SIGKILL:d}"

_REAP_SECONDS = 2.0  # a killed process that does not end waits for a dead disk: nobody waits for it
_CLOSING_SECONDS = 5.0  # between the end of a worker's pipe and its own


class WorkerProcess:
    """Leads a process group of its own, so that what it forks ends with it.

    Its pipe does not tell of its end: a forked child may hold it open. So the process itself is watched.

    Args:
      environment: All of it.
      log: Takes what it prints, after what is there.
    Attributes:
      channel: Messages from and to it.
      sentinel: A descriptor that is readable once it has ended; None where the system has none.
      log_start: Where its log begins in that file.
      log_problem: Why its log cannot be written.
    Raises:
      OSError: no process can be started.
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._log, self.log_start, self.log_problem = log, 0, ""
        self._closed_at: float | None = None
        with contextlib.ExitStack() as given, contextlib.ExitStack() as ours:
            end, theirs = socket.socketpair()
            ours.callback(end.close)
            given.callback(theirs.close)
            output = self._open_log()
            if output is not None:
                given.callback(output.close)
            self._child = subprocess.Popen(
                [*PYTHON, "-m", "lobench.engine.workers.entry", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if output is None else output,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,
            )
            ours.pop_all()
        self.channel = Channel(end)
        self.sentinel = _sentinel(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    def _open_log(self) -> BinaryIO | None:
        """A worker works without a log too: on a disk that is full, say."""
        try:
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(self._log.open("ab"))
                file.write(b"--- a worker starts\n")
                file.flush()
                self.log_start = file.tell()
                stack.pop_all()
                return file
        except OSError as error:
            self.log_problem = cause(error)
            return None

    def has_ended(self) -> bool:
        """Says whether it ended. It is not reaped yet: so long its number is no other's, nor that of its group."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def is_overdue(self) -> bool:
        """Says whether it closed its pipe and yet did not end; asked again and again once the pipe is closed."""
        if self._closed_at is None:
            self._closed_at = time.monotonic()
        return time.monotonic() - self._closed_at > _CLOSING_SECONDS

    def kill(self) -> None:
        """Kills it and what it started; `end` waits for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.kill()

    def end(self) -> int | None:
        """Kills and reaps it, and closes what it held here; returns its status, if it was one of its own."""
        ended = self.has_ended()
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_REAP_SECONDS)
        self.channel.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None
        return self._child.returncode if ended else None

    def how_it_ended(self, code: int | None) -> str:
        """Returns one line: its status, and what it said last where that may tell why."""
        if code == -signal.SIGKILL:
            return KILLED  # whatever it said last, it did not know
        what = "closed its pipe" if code is None else how_it_ended(code)
        words = last_words(self._log, self.log_start, problem=self.log_problem)
        return f"{what}: {words}" if words else what


def _sentinel(pid: int) -> int | None:
    """Returns a descriptor of the process; None on systems, and in containers, that know or allow none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
