"""Start-up of evaluating processes, and the location of jax's compilation cache."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

__all__ = [
    "PYTHON_COMMAND",
    "cache_environment",
    "cache_folder",
    "unshared_cache_line",
    "user_cache_folder",
    "wanted_cache_folder",
]

# The current folder may be a folder of checkpoints, for example. Without -P, `python -m` would search it for modules
# first, and could run a file `queue.py` there. `prepare_import_path` adds the folder at the end.
PYTHON_COMMAND = (sys.executable, "-P")

_CACHE_VARIABLE = "LOBENCH_CACHE_DIR"
_KEPT_SECONDS = 30 * 86400.0  # age of the last reading at which a program is removed
_SWEEP_SECONDS = 86400.0


def cache_folder(store: Path) -> Path:
    """Returns the folder of compiled programs: the user's, or `xla_cache` in a store if that cannot be written."""
    return user_cache_folder() or store / "xla_cache"


def user_cache_folder() -> Path | None:
    """Returns the folder of compiled programs of all stores of a user on this machine.

    It is `xla_cache` in `$LOBENCH_CACHE_DIR`, else in `lobench` in `$XDG_CACHE_HOME` or `~/.cache`. Programs that were
    not read for 30 days are removed.

    Returns:
      None if the folder cannot be made or written.
    """
    folder = wanted_cache_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old_programs(folder)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def unshared_cache_line(store: Path) -> str:
    """Returns a line for the user if the folder of compiled programs cannot be written, else ""."""
    if user_cache_folder() is not None:
        return ""
    return (
        f"compiled programs are kept for this store alone, in {store / 'xla_cache'}: {wanted_cache_folder()} cannot be "
        f"written; set {_CACHE_VARIABLE} to a folder that can"
    )


def wanted_cache_folder() -> Path:
    """Returns the folder of `user_cache_folder`, which may not exist."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get(_CACHE_VARIABLE) or Path(cache_home) / "lobench") / "xla_cache"


def _remove_old_programs(folder: Path) -> None:
    """Removes programs that no process has read for long, at most once a day.

    Raises:
      OSError: The folder cannot be written.
    """
    marker = folder / ".swept"
    now = time.time()
    with contextlib.suppress(FileNotFoundError):
        if now - marker.stat().st_mtime < _SWEEP_SECONDS:
            return
    marker.touch()
    for path in [*folder.iterdir(), *(folder / "executables").glob("*")]:
        with contextlib.suppress(OSError):  # another process removes it too
            status = path.stat()
            if path.is_file() and now - max(status.st_atime, status.st_mtime) > _KEPT_SECONDS:
                path.unlink()


def cache_environment(folder: str | Path) -> dict[str, str]:
    """Returns the environment with which jax caches all programs in a folder. Settings of the user take precedence."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
