"""Duration estimates of work."""

from __future__ import annotations

from lobench.core.schedule.events import Returned, Work
from lobench.core.schedule.workers import Leased

__all__ = ["Durations"]


class Durations:
    """Last duration of work per warm key, in seconds."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def estimate(self, work: Work) -> float:
        return self._seconds.get(work.warm_key, work.guess_seconds)

    def learn(self, leased: Leased, event: Returned) -> None:
        """Records the duration of a result.

        The time of the lease is used only if nothing else was computed with the work.
        """
        is_alone = leased.together == 1 and not leased.is_kept
        seconds = event.now - leased.since if is_alone else event.seconds
        if event.is_typical and seconds is not None:
            self._seconds[leased.work.warm_key] = seconds

    def timed_out(self, work: Work) -> None:
        self._seconds[work.warm_key] = work.timeout_seconds
