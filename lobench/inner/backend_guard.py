"""Backend guard: records which code initialises jax's backend in this process, without importing jax.

jax logs a line when it creates a backend. The nearest module on the stack that is not part of jax requested it.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

__all__ = ["BackendMaker", "backend_maker", "watch_for_backend"]

_LOGGER = "jax._src.xla_bridge"
_LINE = "Initializing backend"
_LEVEL = logging.DEBUG - 1  # our level; any other level was set by the user
_OWN_PACKAGES = ("jax", "jaxlib", "logging", "importlib", "contextlib", "functools")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendMaker:
    """Code that created the backend.

    Attributes:
      where: Module, file and line.
      nproc: Value of NPROC in the environment at that time.
    """

    where: str
    nproc: str | None


class _BackendGuard(logging.Filter):
    """Logging filter that passes on the records that would be logged without it."""

    def __init__(self) -> None:
        super().__init__()
        self.maker: BackendMaker | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if self.maker is None and str(record.msg).startswith(_LINE):
            self.maker = BackendMaker(where=_caller_location(), nproc=os.environ.get("NPROC"))
        logger = logging.getLogger(_LOGGER)
        if logger.level == _LEVEL and logger.parent is not None:
            logger = logger.parent
        return record.levelno >= logger.getEffectiveLevel()


_guard = _BackendGuard()


def watch_for_backend() -> None:
    """Begins to watch for the creation of a backend. An earlier creation stays unknown."""
    logger = logging.getLogger(_LOGGER)
    if _guard not in logger.filters:
        logger.addFilter(_guard)
        if logger.level == logging.NOTSET:
            logger.setLevel(_LEVEL)


def backend_maker() -> BackendMaker | None:
    """Returns the code that created the backend since `watch_for_backend`; None if it does not exist."""
    return _guard.maker


def _caller_location() -> str:
    frame = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and name.partition(".")[0] not in _OWN_PACKAGES:
            return f"{name} ({frame.f_code.co_filename}:{frame.f_lineno})"
        frame = frame.f_back  # type: ignore[assignment]
    return "unknown"
