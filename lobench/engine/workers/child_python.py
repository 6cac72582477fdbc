"""Start-up of evaluating processes, and the location of jax's compilation cache."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["PYTHON", "cache_environment", "cache_folder"]

# The current folder may be anything, a folder of checkpoints say. Without -P, `python -m` looks for modules there
# first, and runs a file `queue.py`. `prepare_import_path` adds the folder at the end.
PYTHON = (sys.executable, "-P")


def cache_folder(store: Path) -> Path:
    """Returns the folder of the programs that were compiled for a store."""
    return store / "xla_cache"


def cache_environment(folder: str | Path) -> dict[str, str]:
    """Returns the environment that has jax keep all programs in a folder; what the user sets comes before it."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
