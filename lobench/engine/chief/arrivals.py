"""Arrivals: subjects given at the start, and subjects that searches and commands add during a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lobench.core.subject import Given, Subject, SubjectKey
from lobench.engine.checkpoints.intake import Intake
from lobench.engine.chief.interfaces import Arrivals

__all__ = ["Arriving"]


class Arriving:
    """Records subjects that are named, or that arrive during a run, in the ledger.

    Args:
      intake: Reads checkpoints and records sightings.
      given: Subjects named by the user.
      arrivals: Source of subjects that arrive while the chief runs.

    Attributes:
      given: Variants of the named subjects.
    """

    def __init__(self, intake: Intake, given: Sequence[Given], arrivals: Arrivals) -> None:
        self._intake, self._given, self._arrivals = intake, given, arrivals
        self.given = frozenset(one.variant for one in given)

    def first(self, log: Callable[[str], None]) -> dict[int, Subject]:
        """Returns the subjects at the start, by position. Logs subjects that are given twice."""
        found: dict[int, Subject] = {}
        first: dict[SubjectKey, Subject] = {}
        for position, subject in filter(None, map(self._intake.give, self._given)):
            if (same := first.setdefault(subject.key, subject)) is not subject:
                log(f"{same.label!r} and {subject.label!r} are the same subject: it is computed once")
            found.setdefault(position, subject)
        for position, subject in self.next():
            found.setdefault(position, subject)
        return found

    def next(self) -> list[tuple[int, Subject]]:
        """Returns the subjects that arrived since the last call, with their positions. Duplicates are not logged."""
        found = [(given, self._intake.give(given)) for given in self._arrivals.given()]
        for given, sighting in found:
            self._arrivals.taken(given, sighting[1] if sighting is not None else None)
        return [sighting for _, sighting in found if sighting is not None]
