"""A program that one thread compiles before another one needs it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

__all__ = ["Preparation", "Prepared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was done before its program was asked for.

    Attributes:
      seconds: That preparing took.
      ahead_seconds: How much of that had passed when the program was asked for.
      num_compilations: Programs that XLA compiled.
    """

    seconds: float = 0.0
    ahead_seconds: float = 0.0
    num_compilations: int = 0


@dataclass(slots=True)
class Preparation:
    """One under way; `end` ends it, whatever came of it."""

    _began: float = field(default_factory=time.monotonic)
    _ended: float = 0.0
    _num_compilations: int | None = None
    _is_over: threading.Event = field(default_factory=threading.Event)

    def end(self, num_compilations: int | None) -> None:
        """Takes note of what was compiled; None: it failed, and whoever needs the program finds out for himself."""
        self._num_compilations, self._ended = num_compilations, time.monotonic()
        self._is_over.set()

    def wait(self) -> Prepared:
        """Waits for its end."""
        asked = time.monotonic()
        self._is_over.wait()
        if self._num_compilations is None:
            return Prepared()
        return Prepared(
            seconds=self._ended - self._began,
            ahead_seconds=min(asked, self._ended) - self._began,
            num_compilations=self._num_compilations,
        )
