"""Kills for want of memory that a cgroup counts, as under SLURM, Kubernetes and systemd."""

from __future__ import annotations

from pathlib import Path

__all__ = ["OomKills"]

_CGROUPS, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class OomKills:
    """The kernel's count of killed processes in this process's cgroup, from the time when this is made on.

    A worker that the kernel kills for want of memory ends by signal 9, as one that a person kills. The count tells them
    apart. Workers are in the cgroup of the process that starts them.
    """

    def __init__(self) -> None:
        self._file = _count_file()
        self._accounted = self._count()

    def take(self) -> bool:
        """Returns whether a kill was counted that no worker's end has accounted for yet, and accounts for it."""
        if self._count() <= self._accounted:
            return False
        self._accounted += 1
        return True

    def _count(self) -> int:
        if self._file is None:
            return 0
        try:
            lines = [line.split() for line in self._file.read_text().splitlines()]
            return next((int(line[1]) for line in lines if line[0] == "oom_kill"), 0)
        except (OSError, ValueError, IndexError):
            return 0


def _count_file() -> Path | None:
    """Returns the file of this process's cgroup that has the count; None if there is none."""
    try:
        entries = [line.split(":", 2) for line in _OWN.read_text().splitlines()]
    except OSError:
        return None
    files = []
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):
        if "memory" in controllers.split(","):  # version 1
            files.append(_CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control")
            files.append(_CGROUPS / "memory" / "memory.oom_control")
        elif not controllers:  # version 2; a container may see its own cgroup as the root
            files += [root / path.lstrip("/") / "memory.events" for root in (_CGROUPS, _CGROUPS / "unified")]
            files.append(_CGROUPS / "memory.events")
    for file in files:
        try:
            if "oom_kill " in file.read_text():
                return file
        except OSError:
            continue
    return None
