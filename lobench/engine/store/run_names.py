"""Run names for sinks: one for each method or session of an experiment, and for each run of a watch."""

from __future__ import annotations

import hashlib
import re

from lobench.core.subject import Subject

__all__ = ["RunNames"]

_SESSION = re.compile(r".*/commands/([^/]+/[^/]+)/")  # below a store: the folder of a command's session
_HASHED = 8  # hex digits


class RunNames:
    """The name of each sighting's run.

    A checkpoint that nobody named is of the run that its folder is. All others have the name that tables have. Where an
    earlier subject has that name too (a method was changed), the later one's ends with a hash of what it is: no two
    runs share a name, where capitals do not count either.

    Attributes:
      names: By position.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._owners: dict[str, str] = {}

    def add(self, position: int, subject: Subject, *, is_experiment: bool, num_restarts: int = 0) -> None:
        """Names the run of the next position.

        Args:
          is_experiment: Whether an experiment was run in the store: then a label is a method's, even where it is the
            name of a file.
          num_restarts: How many times its trainer began again in the same folder before; each time is a run.
        """
        again = f"restart {num_restarts}" if num_restarts else ""
        if _is_of_watch(subject) and (subject.run or not is_experiment):
            name, owner = " ".join(filter(None, (subject.run, again))), f"run {subject.run}\0{again}"
        elif subject.has_theta and _SESSION.match(subject.uri):
            name, owner = f"{subject.label or 'without a name'} {again}".rstrip(), f"{_owner(subject)}\0{again}"
        else:
            name, owner = subject.label or "without a name", _owner(subject)
        if self._owners.setdefault(name.casefold(), owner) != owner:
            name = f"{name} {hashlib.sha256(owner.encode()).hexdigest()[:_HASHED]}"
        self.names[position] = name


def _is_of_watch(subject: Subject) -> bool:
    return subject.has_theta and subject.label == Subject.of_checkpoint(subject.checkpoint, subject.variant).label


def _owner(subject: Subject) -> str:
    """Returns what has one course of outer steps: the session of a command; anything else is a point of its own."""
    session = _SESSION.match(subject.uri) if subject.has_theta else None
    return "\0".join((session[1] if session else subject.sha256, subject.variant.key))
