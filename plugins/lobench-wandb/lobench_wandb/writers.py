"""Who still writes a file: W&B's own process outlives a kill of ours for a moment, and writes what it has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from lobench.extend import PluginError
from lobench_wandb.settings import WHERE

__all__ = ["wait_for_writers"]

_SECONDS = 15.0


def wait_for_writers(file: Path) -> None:
    """Returns when no process of ours has the file open; where the system does not say so, at once.

    Raises:
      PluginError: somebody keeps it open.
    """
    deadline = time.monotonic() + _SECONDS
    while writer := next(_writers(file), ""):
        if time.monotonic() > deadline:
            raise PluginError(
                "somebody writes W&B's file", where=WHERE, got=f"{file} is open in process {writer}", next_step="end it"
            )
        time.sleep(0.01)


def _writers(file: Path) -> Iterator[str]:
    target = str(file.resolve())
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) == target for link in (process / "fd").iterdir()):
                yield process.name
        except OSError:  # it has ended, or is somebody else's
            continue
