"""Kills for lack of memory that a cgroup counts, as under SLURM, Kubernetes and systemd."""

from __future__ import annotations

from pathlib import Path

__all__ = ["OomKills"]

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


class OomKills:
    """Number of processes in this process's cgroup that the kernel killed since this object was created.

    A worker killed by the kernel for lack of memory ends with signal 9, like one killed by a user. The count
    distinguishes them. Workers are in the cgroup of the process that starts them.
    """

    def __init__(self) -> None:
        self._file = _count_file()
        self._num_accounted = self._num_kills()

    def claim_kill(self) -> bool:
        """Returns whether there was a kill that is not attributed to a worker yet, and marks one as attributed."""
        if self._num_kills() <= self._num_accounted:
            return False
        self._num_accounted += 1
        return True

    def _num_kills(self) -> int:
        if self._file is None:
            return 0
        try:
            lines = [line.split() for line in self._file.read_text().splitlines()]
            return next((int(line[1]) for line in lines if line[0] == "oom_kill"), 0)
        except (OSError, ValueError, IndexError):
            return 0


def _count_file() -> Path | None:
    """Returns the file with the count of this process's cgroup; None if the cgroup has no count."""
    try:
        entries = [line.split(":", 2) for line in _OWN.read_text().splitlines()]
    except OSError:
        return None
    files = []
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):
        if "memory" in controllers.split(","):  # cgroup version 1
            files.append(_CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
            files.append(_CGROUPS / "memory" / "memory.oom_control")
        elif not controllers:  # cgroup version 2; a container may see its own cgroup as the root
            files += [root / path.lstrip("/") / "memory.events" for root in (_CGROUPS, _CGROUPS / "unified")]
            files.append(_CGROUPS / "memory.events")
    for file in files:
        try:
            if "oom_kill " in file.read_text():
                return file
        except OSError:
            continue
    return None
