"""jax's persistent compilation cache: where the processes that train keep what they have compiled."""

from __future__ import annotations

from pathlib import Path

__all__ = ["cache_environment", "cache_folder"]


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
