"""Small disks of a test's own, which can be full or read-only; mounting one needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

MOUNTING = pytest.mark.skipif(
    not Path("/dev/full").exists() or os.getuid() != 0, reason="mounting a small disk needs root"
)


@dataclass(frozen=True, slots=True)
class Disk:
    path: Path

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)

    def resize(self, size: str) -> None:
        self.remount(f"size={size}")

    def fill(self, room: int = 0) -> None:
        """Leaves so many bytes."""
        found = os.statvfs(self.path)
        (self.path / "ballast").write_bytes(bytes(found.f_bavail * found.f_frsize - room))

    def empty(self) -> None:
        (self.path / "ballast").unlink()

    @property
    def used_kib(self) -> int:
        found = os.statvfs(self.path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize // 1024


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[Disk]:
    """Mounts a disk of a size (`200k`) for as long as the body runs."""
    path.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("needs a machine that lets its root mount a file system")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def on_another_file_system(path: Path) -> Path:
    """Returns a folder for temporary files on another file system than a path's; the test is skipped without one."""
    for folder in (Path("/dev/shm"), Path("/var/tmp")):
        if os.access(folder, os.W_OK) and folder.stat().st_dev != path.stat().st_dev:
            return folder
    pytest.skip("there is no second file system")
