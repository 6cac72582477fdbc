"""Worker process with its process group, channel and log."""

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
from lobench.engine.group_files import open_to_group
from lobench.engine.workers.channel import Channel
from lobench.engine.workers.child_python import PYTHON_COMMAND
from lobench.engine.workers.last_words import exit_text, likely_cause

__all__ = ["KILLED_TEXT", "WorkerProcess"]

KILLED_TEXT = f"killed by signal {signal.SIGKILL:d}"

_REAP_SECONDS = 2.0  # longest wait for a killed process, which may hang on a dead disk
_CLOSING_SECONDS = 5.0  # longest time between the end of a worker's pipe and its exit


class WorkerProcess:
    """Worker process, leader of a process group, so that its child processes end with it.

    The end of its pipe does not show that it ended, because a child process may hold the pipe open. So the process
    itself is watched.

    Args:
      environment: Complete environment of the process.
      log: File to which its output is appended.
    Attributes:
      channel: Messages from and to it.
      sentinel: File descriptor that is readable once it has ended; None if the system has none.
      log_start: Position in the log at which its output begins.
      log_problem: Reason why the log cannot be written; "" if it can.
    Raises:
      OSError: No process can be started.

    >>> process = WorkerProcess({}, Path("worker.log"))
    >>> process.pid > 0, process.end()
    (True, None)
    """

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self._log, self.log_start, self.log_problem = log, 0, ""
        self._closed_at: float | None = None
        with contextlib.ExitStack() as child_ends, contextlib.ExitStack() as own_ends:
            own_end, child_end = socket.socketpair()
            own_ends.callback(own_end.close)
            child_ends.callback(child_end.close)
            output = self._open_log()
            if output is not None:
                child_ends.callback(output.close)
            stdout = subprocess.DEVNULL if output is None else output
            self._child = subprocess.Popen(
                [*PYTHON_COMMAND, "-m", "lobench.engine.workers.entry", str(child_end.fileno())],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,
            )
            own_ends.pop_all()
        self.channel = Channel(own_end)
        self.sentinel = _sentinel(self._child.pid)

    @property
    def pid(self) -> int:
        return self._child.pid

    def _open_log(self) -> BinaryIO | None:
        """Returns the log, opened for appending; None if it cannot be written, for example on a full disk."""
        try:
            with contextlib.ExitStack() as stack:
                file = stack.enter_context(self._log.open("ab"))
                open_to_group(self._log)
                file.write(b"--- a worker starts\n")
                file.flush()
                self.log_start = file.tell()
                stack.pop_all()
                return file
        except OSError as error:
            self.log_problem = cause(error)
            return None

    def has_ended(self) -> bool:
        """Returns whether the process ended. It is not reaped yet, so that its id and its group's are not reused."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def is_overdue(self) -> bool:
        """Returns whether the process closed its pipe 5 s ago and has not ended.

        Call it repeatedly once the pipe is closed.
        """
        if self._closed_at is None:
            self._closed_at = time.monotonic()
        return time.monotonic() - self._closed_at > _CLOSING_SECONDS

    def kill(self) -> None:
        """Kills the process and its group. `end` waits for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.kill()

    def end(self) -> int | None:
        """Kills and reaps the process, and closes its resources; returns its exit code if it ended by itself."""
        has_ended = self.has_ended()
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_REAP_SECONDS)
        self.channel.close()
        if self.sentinel is not None:
            os.close(self.sentinel)
            self.sentinel = None
        return self._child.returncode if has_ended else None

    def how_it_ended(self, code: int | None) -> str:
        """Returns a description of its end: the exit code, and the likely reason from its log."""
        if code == -signal.SIGKILL:
            return KILLED_TEXT  # its last output cannot explain the signal
        ending = "closed its pipe" if code is None else exit_text(code)
        log_line = likely_cause(self._log, self.log_start, problem=self.log_problem)
        return f"{ending}: {log_line}" if log_line else ending


def _sentinel(pid: int) -> int | None:
    """Returns a file descriptor of the process; None if the system or the container does not support it."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
