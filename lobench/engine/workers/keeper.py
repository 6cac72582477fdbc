"""A process that outlives a killed chief just long enough to end what the chief's workers started.

A worker dies with its chief, since the kernel kills it; what it forked would live on. The keeper knows the workers'
process groups and reads a pipe that only the chief holds open: at its end it kills the groups.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from lobench.engine.workers.child_python import PYTHON

__all__ = ["Keeper", "main"]

_CLOSE_SECONDS = 2.0


class Keeper:
    """The chief's side. A machine that has no room for one more process has none, and loses nothing else by that."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._child = subprocess.Popen(
                [*PYTHON, "-m", "lobench.engine.workers.keeper"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # whoever signals the chief's group does not mean it
            )

    def keep(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Says that a group has ended; called before its number can be another's."""
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._child.stdin.write(line.encode())

    def close(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_CLOSE_SECONDS)


def main() -> None:
    """Reads which groups there are until the pipe ends, then kills those that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
