"""Keeper process: outlives a killed chief until it has killed the workers' process groups.

The kernel kills a worker when its chief dies, but not the worker's child processes. The keeper knows the workers'
process groups. It reads a pipe that only the chief holds open, and kills the groups when the pipe ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys

from lobench.engine.workers.child_python import PYTHON_COMMAND

__all__ = ["Keeper", "main"]

_CLOSE_SECONDS = 2.0
_DETACHED = "--detached"
_PR_SET_PDEATHSIG = 1


class Keeper:
    """The chief's side of a keeper. It does nothing if the keeper's process could not be started.

    Args:
      is_detached: Whether the keeper is not a child of this process. Some parents kill all their children at their end.
    """

    def __init__(self, *, is_detached: bool = False) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._is_detached = is_detached
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(
                [*PYTHON_COMMAND, "-m", "lobench.engine.workers.keeper", *([_DETACHED] if is_detached else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # signals to the chief's group must not reach it
            )
            if self._child.stdin is not None:
                os.set_blocking(self._child.stdin.fileno(), False)

    def add_group(self, group: int) -> None:
        """Adds a group. The first call waits until a detached keeper has started."""
        self._send(f"+{group}\n")
        if self._is_detached and self._child is not None:
            self._child.wait()  # the child ends when it has forked the keeper; killed before, it would leave none

    def remove_group(self, group: int) -> None:
        """Informs the keeper that a group has ended. Call it before the group's number can be reused."""
        self._send(f"-{group}\n")

    def _send(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                # The pipe is full: the keeper is stopped, and its list out of date.
                if self._child.stdin.write(line.encode()) is None:
                    self._kill_keeper()

    def close(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()
            try:
                self._child.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:  # it is stopped; the workers have ended without it
                self._kill_keeper()

    def _kill_keeper(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            self._child.kill()
            self._child.wait()
            self._child = None


def main() -> None:
    """Maintains the set of groups until the pipe ends, and then kills the remaining ones."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if _DETACHED in sys.argv and os.fork():
        os._exit(0)
    if sys.platform == "linux":  # continues a stopped keeper when the chief dies
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
