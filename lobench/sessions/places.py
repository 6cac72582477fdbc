"""Where things are: stores, the cores of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from lobench.core.errors import UsageError
from lobench.sessions.settings import WatchSettings

__all__ = ["default_store", "num_cores", "num_workers", "store_of"]


def store_of(settings: WatchSettings) -> Path:
    """Returns the folder of a watch's store; the location must be there."""
    return Path(settings.store) if settings.store else default_store(settings.location, settings.called)


def default_store(location: str, name: str) -> Path:
    """Returns CKPT_DIR/lobench_results/NAME where that is local, writable and the user's own, else .lobench/NAME.

    A store of an earlier version, CKPT_DIR/lobench/NAME, is gone on with.
    """
    if "://" not in location:
        folder = Path(location)
        folder = folder if folder.is_dir() and not (folder / "_CHECKPOINT_METADATA").exists() else folder.parent
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            earlier = folder / "lobench" / name
            return earlier if (earlier / "ledger.sqlite").is_file() else folder / "lobench_results" / name
    return Path(".lobench") / name


def num_workers(workers: str | int) -> int:
    """Returns the cores that `--workers` names.

    Raises:
      UsageError: neither a number nor auto.
    """
    text = str(workers)
    if text == "auto":
        return num_cores()
    if not text.isdecimal() or int(text) < 1:
        raise UsageError("--workers", got=repr(text), expected="a number >= 1, or auto")
    return int(text)


def num_cores() -> int:
    """Returns the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
