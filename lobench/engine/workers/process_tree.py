"""A process with its descendants.

Only the standard library is imported, because `lobench keep` starts a program with this module for its first runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

__all__ = ["kill_tree"]


def kill_tree(pid: int) -> None:
    """Kills a process and its descendants. Each is stopped before its children are listed, so that none is missed.

    Without /proc, only the process itself is killed.
    """
    stopped_pids = set[int]()
    new_pids = {pid}
    while new_pids:
        for process_id in new_pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process_id, signal.SIGSTOP)
        stopped_pids |= new_pids
        new_pids = {child for child, parent in _parent_pids() if parent in stopped_pids} - stopped_pids
    for process_id in stopped_pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process_id, signal.SIGKILL)


def _parent_pids() -> list[tuple[int, int]]:
    """Returns the ids of all processes, each with its parent's."""
    parents = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the process has ended
            parents.append((int(file.parent.name), int(file.read_text().rpartition(")")[2].split()[1])))
    return parents
