"""Time that leaves out when this process did not run."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["AwakeClock"]

_LONGEST_SECONDS = 5.0  # between two looks of a process that runs


class AwakeClock:
    """Seconds since it was made, of those in which this process ran; one thread looks at it, every second or so.

    A process that was stopped, or whose machine was, has not heard the others because it did not listen: by this clock
    they have not been silent.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last, self._seconds = clock, clock(), 0.0

    def now(self) -> float:
        looked = self._clock()
        self._seconds += min(looked - self._last, _LONGEST_SECONDS)
        self._last = looked
        return self._seconds
