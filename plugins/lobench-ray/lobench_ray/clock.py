"""Clock that does not count the time in which this process was suspended."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["AwakeClock"]

_LONGEST_SECONDS = 5.0  # between two readings, unless the process was suspended


class AwakeClock:
    """Seconds in which this process ran. One thread must read it about every second.

    While a process or its machine is suspended, it receives no messages. This clock stands still during that time, so
    that the process does not take its peers for silent afterwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last_reading, self._seconds = clock, clock(), 0.0

    def now(self) -> float:
        reading = self._clock()
        self._seconds += min(reading - self._last_reading, _LONGEST_SECONDS)
        self._last_reading = reading
        return self._seconds
