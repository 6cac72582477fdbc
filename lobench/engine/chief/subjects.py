"""What a watch evaluates: checkpoints by position, and which of them still need their theta in the spool."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lobench.core.planner import History
from lobench.core.subject import Subject
from lobench.engine.checkpoints.intake import Intake

__all__ = ["WatchSubjects", "todays"]


class WatchSubjects:
    """The checkpoints that a watch knows."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._subjects: dict[int, Subject] = {}
        self._needed: dict[str, set[int]] = {}

    def __getitem__(self, position: int) -> Subject:
        return self._subjects[position]

    def __contains__(self, position: object) -> bool:
        return position in self._subjects

    def __len__(self) -> int:
        return len(self._subjects)

    @property
    def highest_step(self) -> int:
        return max((subject.outer_step for subject in self._subjects.values()), default=-1)

    @property
    def needed(self) -> Collection[str]:
        """Thetas that the spool must keep."""
        return self._needed.keys()

    def add(self, position: int, subject: Subject, *, is_needed: bool = True) -> None:
        self._subjects[position] = subject
        if is_needed:
            self.need(position)

    def need(self, position: int) -> None:
        """Says that something of a position is to be evaluated."""
        self._needed.setdefault(self._subjects[position].sha256, set()).add(position)

    def positions(self, sha256: str) -> list[int]:
        """Returns the positions that need a theta, in order."""
        return sorted(self._needed.get(sha256, ()))

    def first(self, sha256: str) -> Subject:
        """Returns the first sighting that needs a theta; there is one."""
        return self._subjects[min(self._needed[sha256])]

    def has_theta(self, sha256: str) -> bool:
        """Says whether the spool has a theta, after copying it again where it has lost it and one of its places has."""
        return any(self._intake.fetch(self._subjects[position]) for position in self.positions(sha256))

    def release(self, position: int) -> None:
        """Says that nothing of a position is to be evaluated any more."""
        sha256 = self._subjects[position].sha256
        positions = self._needed.get(sha256, set())
        positions.discard(position)
        if not positions:
            self._needed.pop(sha256, None)
            self.release_unneeded(sha256)

    def release_unneeded(self, sha256: str) -> None:
        if sha256 not in self._needed:
            self._intake.release(sha256)


def todays(
    sightings: Mapping[int, Subject], history: History, only: Collection[str] | None
) -> Iterator[tuple[int, Subject, bool]]:
    """Yields the positions of today's plan, and whether an earlier start was through with them.

    Of several things that lay at one place, and that earlier starts were through with, the last one counts.

    Args:
      only: Locations of the only checkpoints that are asked for; None: all checkpoints, and no optimizer without theta
        that pytest has recorded beside them.
    """
    last = {subject.uri: position for position, subject in sightings.items()}
    for position, subject in sightings.items():
        is_done = position in history.finished or history.admissions.get(position) == "skipped"
        is_current = not is_done or last[subject.uri] == position
        if is_current and (not subject.is_optimizer if only is None else subject.uri in only):
            yield position, subject, is_done
