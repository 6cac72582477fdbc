"""Duration estimates of work."""

from __future__ import annotations

from lobench.core.schedule.events import Returned, Work
from lobench.core.schedule.workers import Leased

__all__ = ["Durations"]


class Durations:
    """The last one of each warm key."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def estimate(self, work: Work) -> float:
        return self._seconds.get(work.warm_key, work.guess_seconds)

    def learn(self, leased: Leased, event: Returned) -> None:
        """Learns from a result; what a lease took says nothing where others were computed in it, or this in another."""
        is_alone = leased.together == 1 and not leased.is_kept
        seconds = event.now - leased.since if is_alone else event.seconds
        if event.is_typical and seconds is not None:
            self._seconds[leased.work.warm_key] = seconds

    def timed_out(self, work: Work) -> None:
        self._seconds[work.warm_key] = work.timeout_seconds
