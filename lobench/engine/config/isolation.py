"""gin's state belongs to the process: lent to one case at a time, and left as it was."""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections.abc import Iterator

import gin.config as gin_state

__all__ = ["isolated_gin"]

# Held while gin's state is not the process's own: a notebook may have threads.
_LOCK = threading.RLock()

_GLOBALS = ("_CONFIG", "_OPERATIVE_CONFIG", "_IMPORTS", "_SINGLETONS")


@contextlib.contextmanager
def isolated_gin(*paths: str) -> Iterator[None]:
    """Runs the body with an empty gin configuration and `paths` importable; both are as before afterwards."""
    with _LOCK:
        saved = {name: copy.copy(getattr(gin_state, name)) for name in _GLOBALS}
        saved_path = list(sys.path)
        for name in _GLOBALS:
            getattr(gin_state, name).clear()
        was_locked, gin_state._CONFIG_IS_LOCKED = gin_state._CONFIG_IS_LOCKED, False
        sys.path[:0] = [path for path in paths if path not in sys.path]
        try:
            yield
        finally:
            for name, value in saved.items():
                live = getattr(gin_state, name)
                live.clear()
                live.update(value)
            gin_state._CONFIG_IS_LOCKED = was_locked
            sys.path[:] = saved_path
