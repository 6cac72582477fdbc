"""Run names for sinks: one for each method or session of an experiment, and for each run of a watch."""

from __future__ import annotations

import hashlib
import re

from lobench.core.subject import Subject
from lobench.engine.store.series import ArrivalNumbers

__all__ = ["RunNames", "is_of_session"]

_SESSION = re.compile(r".*/commands/([^/]+/[^/]+)/")  # below a store: the folder of a command's session
_HASH_DIGITS = 8  # hex digits


class RunNames:
    """Names of the runs of sightings, as sinks use them.

    A checkpoint without a label belongs to the run of its folder. In a folder of checkpoints with outer steps, a file
    without a step is a separate run. Other subjects are named by their labels.
    If an earlier subject has the same name (a method was changed), a hash is appended to the later name. Names are
    distinct even if case is ignored.

    Attributes:
      names: Names by position.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._owners: dict[str, str] = {}
        self._arrival_numbers = ArrivalNumbers()

    def add(self, position: int, subject: Subject, *, is_experiment: bool, num_restarts: int = 0) -> None:
        """Names the run of the next position.

        Args:
          position: Position of the sighting.
          subject: Subject that was seen.
          is_experiment: Whether an experiment was run in the store. If so, labels are names of methods, even if they
            equal a file's name.
          num_restarts: Number of earlier restarts in place. Each restart is a separate run.
        """
        restart_text = f"restart {num_restarts}" if num_restarts else ""
        file = subject.uri.rstrip("/").rpartition("/")[2] if self._arrival_numbers.add(subject) else ""
        is_of_watch = subject.has_theta and not subject.has_given_label
        if is_of_watch and (subject.run or not is_experiment):
            name = " ".join(filter(None, (subject.run, file, restart_text)))
            owner = "\0".join((f"run {subject.run}", restart_text, *filter(None, (file,))))
        elif is_of_session(subject):
            name = f"{subject.label or 'without a name'} {restart_text}".rstrip()
            owner = f"{_owner_key(subject)}\0{restart_text}"
        else:
            name = subject.label or "without a name"
            owner = _owner_key(subject)
        if self._owners.setdefault(name.casefold(), owner) != owner:
            name = f"{name} {hashlib.sha256(owner.encode()).hexdigest()[:_HASH_DIGITS]}"
        self.names[position] = name


def is_of_session(subject: Subject) -> bool:
    """Returns whether a subject is a checkpoint of a command's session in an experiment."""
    return subject.has_theta and _SESSION.match(subject.uri) is not None


def _owner_key(subject: Subject) -> str:
    """Returns the key of a curve over outer steps: a command's session, or else the subject itself."""
    session = _SESSION.match(subject.uri) if subject.has_theta else None
    return "\0".join((session[1] if session else subject.sha256, subject.variant.key))
