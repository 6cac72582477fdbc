"""Workers that were lost, and what that says of what they ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lobench.core.schedule.events import EvaluationId

__all__ = ["Losses"]

_MAX_DEATHS = 2  # of one evaluation's workers: then the case is poison
_MAX_LOSSES = 10  # the same where its machine went away, which says little about the case
_MAX_FAILED_STARTS = 3  # in a row: then no worker will ever be ready


class Losses:
    """Counts them.

    Args:
      deaths: By evaluation, as the ledger knows them.
    """

    def __init__(self, deaths: Mapping[EvaluationId, int]) -> None:
        self._deaths = dict(deaths)
        self._machines: dict[EvaluationId, int] = {}
        self._failed_starts = 0

    def __contains__(self, evaluation: object) -> bool:
        """Says whether a worker died with it."""
        return evaluation in self._deaths

    def forget(self, evaluations: Iterable[EvaluationId]) -> None:
        """They are tried again, as if no worker had died with them."""
        for evaluation in evaluations:
            self._deaths.pop(evaluation, None)

    def started(self) -> None:
        """A worker got ready: workers do start."""
        self._failed_starts = 0

    def failed_start(self, message: str) -> str | None:
        """A worker died before it was ready; returns why no other should be started, if so."""
        self._failed_starts += 1
        if self._failed_starts < _MAX_FAILED_STARTS:
            return None
        return f"{self._failed_starts} workers in a row died before they were ready: {message}"

    def died(self, evaluation: EvaluationId, message: str, *, lost: bool) -> str | None:
        """A worker died with an evaluation; returns what to record where that was once too often.

        Args:
          lost: Its machine went away.
        """
        counts = self._machines if lost else self._deaths
        counts[evaluation] = counts.get(evaluation, 0) + 1
        if counts[evaluation] < (_MAX_LOSSES if lost else _MAX_DEATHS):
            return None
        return f"its worker died {counts[evaluation]} times; the last one: {message}"
