"""Lost workers: retries of their work, and poison after repeated deaths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Losses", "Rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How often something may go wrong.

    Attributes:
      max_deaths: Of the workers of one work: then it is poison.
      max_losses: The same where its machine went away, which says little about the work.
      max_failed_starts: In a row: then no worker will ever be ready.
      is_deadline_death: Whether a work that ran too long counts as one whose worker died, and is tried again; otherwise
        it ends there: as a rule, it would run too long again.
    """

    max_deaths: int = 2
    max_losses: int = 10
    max_failed_starts: int = 3
    is_deadline_death: bool = False


class Losses:
    """Counts them.

    Args:
      deaths: By key of work, of earlier starts.
    """

    def __init__(self, deaths: Mapping[Any, int], rules: Rules) -> None:
        self._rules = rules
        self._deaths: dict[Any, int] = dict(deaths)
        self._machines: dict[Any, int] = {}
        self._failed_starts = 0

    def __contains__(self, key: object) -> bool:
        """Says whether a worker died with it."""
        return key in self._deaths

    def forget(self, keys: Iterable[Any]) -> None:
        """They are tried again, as if no worker had died with them."""
        for key in keys:
            self._deaths.pop(key, None)

    def count(self, key: Any) -> int:
        """Returns how many workers have died with it."""
        return self._deaths.get(key, 0)

    def started(self) -> None:
        """A worker got ready: workers do start."""
        self._failed_starts = 0

    def failed_start(self, message: str) -> str | None:
        """A worker died before it was ready; returns why no other should be started, if so."""
        self._failed_starts += 1
        if self._failed_starts < self._rules.max_failed_starts:
            return None
        return f"{self._failed_starts} workers in a row died before they were ready: {message}"

    def died(self, key: Any, message: str, *, lost: bool) -> str | None:
        """A worker died with a work; returns what to say of the work where that was once too often.

        Args:
          lost: Its machine went away.
        """
        counts = self._machines if lost else self._deaths
        counts[key] = counts.get(key, 0) + 1
        if counts[key] < (self._rules.max_losses if lost else self._rules.max_deaths):
            return None
        return f"its worker died {counts[key]} times; the last one: {message}"
