"""Restarts in place: a trainer that begins again in the same folder, with other weights under the same file names.

The ledger records a restart as an event when the first checkpoint of the new run is seen: a file that was seen before
has other content at the same outer step, or a lower one. From then on the checkpoints at this step and later ones,
which were seen before, are superseded: they are of the dead run. Curves over outer steps leave them out.

A file whose name and content have no step (`latest.msgpack`) has no restarts: `Restarts.arrival` numbers its content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lobench.core.subject import Subject

__all__ = ["RESTARTED", "RETURNED", "Restart", "Restarts", "with_paths"]

RESTARTED, RETURNED = "restarted", "returned"  # kinds of events

_NAMING = ("uri", "sha256", "generation", "outer_step", "variant")  # of a sighting, whatever its position
_NUMBER = re.compile(r"\d+")


class _Lineage(NamedTuple):
    """Checkpoints that are one curve over outer steps.

    Attributes:
      names: Path of the files, with a star for each number in the file's name: `today/theta_*.npz`.
    """

    run: str
    generation: int
    names: str
    variant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What the ledger records of a sighting that supersedes others.

    Attributes:
      kind: "restarted", or "returned": a superseded checkpoint lies in its place again, and supersedes no other.
      detail: Of the event. Names are positions of no ledger, so that merged stores keep them.
      outer_step: First one that is superseded.
      num_superseded: Checkpoints that are superseded by it.
    """

    kind: str
    detail: Mapping[str, Any]
    outer_step: int
    num_superseded: int


@dataclass(slots=True)
class Restarts:
    """The restarts among the sightings of a ledger.

    Add sightings in the order of their positions, then events in the order of their recording.

    Attributes:
      superseded: Positions of checkpoints of a dead run.
    """

    superseded: set[int] = field(default_factory=set)
    _subjects: dict[int, Subject] = field(default_factory=dict)
    _positions: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _at: dict[str, list[int]] = field(default_factory=dict)  # positions by place
    _lineages: dict[_Lineage, list[int]] = field(default_factory=dict)
    _highest: dict[_Lineage, int] = field(default_factory=dict)  # outer steps, also of a dead run
    _begun_after: dict[_Lineage, list[int]] = field(default_factory=dict)  # last positions before each restart

    @classmethod
    def of(cls, sightings: Mapping[int, Subject], events: Iterable[tuple[str, Mapping[str, Any]]]) -> Restarts:
        """Returns the restarts among sightings, by position; events of other kinds are left out."""
        found = cls()
        for position in sorted(sightings):
            found.add_sighting(position, sightings[position])
        for kind, detail in events:
            found.add_event(kind, detail)
        return found

    def add_sighting(self, position: int, subject: Subject) -> None:
        if not subject.has_theta or position in self._subjects:
            return
        self._subjects[position] = subject
        self._at.setdefault(subject.uri, []).append(position)
        self._positions[_name_of(subject)] = position
        lineage = _lineage_of(subject)
        self._lineages.setdefault(lineage, []).append(position)
        self._highest[lineage] = max(subject.outer_step, self._highest.get(lineage, -1))

    def add_event(self, kind: str, detail: Mapping[str, Any]) -> None:
        if kind not in (RESTARTED, RETURNED):
            return
        position = self._positions.get(tuple(detail[name] for name in _NAMING))
        if position is None:
            return  # a merged store has the event, and not the sighting
        self.superseded.discard(position)
        generation, variant = detail["generation"], detail["variant"]
        for uri, sha256, outer_step in detail.get("superseded", ()):
            dead = self._positions.get((uri, sha256, generation, outer_step, variant))
            if dead is not None:
                self.superseded.add(dead)
        last = self._positions.get(tuple(detail["after"]))
        if kind == RESTARTED and last is not None:
            self._begun_after.setdefault(_lineage_of(self._subjects[position]), []).append(last)

    def number(self, position: int) -> int:
        """Returns how many times the trainer of a checkpoint was restarted before the checkpoint was first seen."""
        subject = self._subjects.get(position)
        if subject is None:
            return 0
        return sum(last < position for last in self._begun_after.get(_lineage_of(subject), ()))

    def is_highest(self, subject: Subject) -> bool:
        """Whether a subject stands at a higher outer step than all that were seen in its lineage."""
        return subject.outer_step > self._highest.get(_lineage_of(subject), -1)

    def before(self, subject: Subject) -> list[Subject]:
        """Returns the present checkpoints of the lineage of a subject, in order of their sight."""
        lineage = self._lineages.get(_lineage_of(subject), ())
        return [self._subjects[position] for position in lineage if position not in self.superseded]

    def arrival(self, uri: str, sha256: str) -> int:
        """Returns the number, 0, 1, 2, ..., of what lies in a file whose name and content have no outer step.

        It counts how often the content of the file has changed.
        """
        before = [self._subjects[position] for position in self._at.get(uri, ())]
        if not before:
            return 0
        if before[-1].sha256 == sha256:
            return before[-1].outer_step
        return max(one.outer_step for one in before) + 1

    def caused_by(self, position: int, subject: Subject, *, from_step: int | None = None) -> Restart | None:
        """Returns the restart that a sighting shows, which `add_sighting` has; None if it shows none.

        Args:
          position: Of the sighting, which may be an old one: a file that has its former content again.
          from_step: Known to be of a restart, from this outer step on.
        """
        is_back = position in self.superseded
        replaced = [self._subjects[each] for each in self._at[subject.uri] if each not in self.superseded]
        is_restart = from_step is not None or any(
            one.sha256 != subject.sha256
            and one.outer_step >= subject.outer_step
            and _lineage_of(one) == _lineage_of(subject)
            for one in replaced
        )
        if not is_restart and not is_back:
            return None  # as nearly all: a look at the whole run is not needed
        others = [one for one in self.before(subject) if one != subject]
        is_restart |= any(one.outer_step >= subject.outer_step for one in others)
        kind = RESTARTED if is_restart else RETURNED
        step = subject.outer_step if from_step is None else min(from_step, subject.outer_step)
        dead = [one for one in others if one.outer_step >= step] if kind == RESTARTED else []
        lineage = self._lineages[_lineage_of(subject)]
        after = self._subjects[lineage[-1] if lineage[-1] != position else lineage[-2 if len(lineage) > 1 else -1]]
        detail = dict(zip(_NAMING, _name_of(subject), strict=True)) | {
            "after": list(_name_of(after)),
            "superseded": [[one.uri, one.sha256, one.outer_step] for one in dead],
        }
        return Restart(kind=kind, detail=detail, outer_step=step, num_superseded=len(dead))


def with_paths(detail: Mapping[str, Any], moved: Mapping[str, str]) -> dict[str, Any]:
    """Returns the detail of an event with other paths of checkpoints, by the path that it has."""
    names = {
        "after": [moved.get(detail["after"][0], detail["after"][0]), *detail["after"][1:]],
        "superseded": [[moved.get(uri, uri), *rest] for uri, *rest in detail.get("superseded", ())],
    }
    return {**detail, "uri": moved.get(detail["uri"], detail["uri"]), **names}


def _name_of(subject: Subject) -> tuple[Any, ...]:
    return subject.uri, subject.sha256, subject.generation, subject.outer_step, subject.variant.key


def _lineage_of(subject: Subject) -> _Lineage:
    folder, slash, name = subject.uri.rstrip("/").rpartition("/")
    names = f"{folder}{slash}{_NUMBER.sub('*', name)}"
    return _Lineage(subject.run, subject.generation, names, subject.variant.key)
