"""Lost workers: retries of their work, and poison after repeated deaths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Losses", "Rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Limits on deaths and failed starts of workers.

    Attributes:
      max_deaths: Number of deaths of workers after which work is poisoned.
      max_losses: Number of workers whose machine went away, rarely because of the work, after which work is poisoned.
      max_failed_starts: Number of consecutive failed starts after which no more workers are started.
      is_deadline_death: Whether work that ran too long counts as a death and is retried. Otherwise it ends, because it
        would usually run too long again.
    """

    max_deaths: int = 2
    max_losses: int = 10
    max_failed_starts: int = 3
    is_deadline_death: bool = False


class Losses:
    """Counts of deaths and failed starts.

    Args:
      deaths: Number of deaths in earlier runs, by key of work.
      rules: Limits.
    """

    def __init__(self, deaths: Mapping[Any, int], rules: Rules) -> None:
        self._rules = rules
        self._deaths: dict[Any, int] = dict(deaths)
        self._machine_losses: dict[Any, int] = {}
        self._failed_starts = 0

    def __contains__(self, key: object) -> bool:
        """Whether a worker died while it did the work with this key."""
        return key in self._deaths

    def clear_deaths(self, keys: Iterable[Any]) -> None:
        """Sets the numbers of deaths of the given work to 0."""
        for key in keys:
            self._deaths.pop(key, None)

    def num_deaths(self, key: Any) -> int:
        """Returns how many workers died while they did this work."""
        return self._deaths.get(key, 0)

    def record_ready(self) -> None:
        """Records that a worker became ready."""
        self._failed_starts = 0

    def record_failed_start(self, message: str) -> str | None:
        """Records that a worker died before it was ready.

        Returns:
          The reason if no more workers should be started; None otherwise.
        """
        self._failed_starts += 1
        if self._failed_starts < self._rules.max_failed_starts:
            return None
        return f"{self._failed_starts} workers in a row died before they were ready: {message}"

    def record_death(self, key: Any, message: str, *, lost: bool) -> str | None:
        """Records that a worker died while it did some work.

        Args:
          key: Key of the work.
          message: Reason of the death.
          lost: Whether the worker's machine went away.
        Returns:
          The reason if the limit is reached; None otherwise.
        """
        counts = self._machine_losses if lost else self._deaths
        counts[key] = counts.get(key, 0) + 1
        if counts[key] < (self._rules.max_losses if lost else self._rules.max_deaths):
            return None
        return f"its worker died {counts[key]} times; the last one: {message}"
