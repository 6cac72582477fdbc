"""Restarts in place: a trainer that begins again in the same folder, with other weights under the same file names.

The ledger records a restart as an event when it sees the first checkpoint of the new run: a known file with other
content, at the same outer step or a lower one. Earlier checkpoints at this step and later ones are then superseded:
they belong to the abandoned run, and curves over outer steps leave them out.

A superseded checkpoint is back if its file is read again and the restart that superseded it is superseded too, as when
a trainer begins once more with the first run's seed, or if the run that superseded it has written it again. Files of
the abandoned run that were only copied are read again too, and stay superseded.

A file whose name and content have no step (`latest.msgpack`) cannot show a restart: `Restarts.arrival_number` numbers
its contents. If another file of its folder shows a restart, its contents of the abandoned run are superseded too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lobench.core.subject import Subject
from lobench.engine.store.series import CheckpointSeries, series_of

__all__ = ["RESTARTED_EVENT", "RETURNED_EVENT", "Restart", "Restarts"]

RESTARTED_EVENT, RETURNED_EVENT = "restarted", "returned"  # kinds of events

_IDENTITY_FIELDS = ("uri", "sha256", "generation", "outer_step", "variant")  # fields that identify a sighting


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Restart shown by a sighting, as the ledger records it.

    Attributes:
      kind: "restarted", or "returned" if a superseded checkpoint is back at its path. The latter supersedes no others.
      detail: Content of the event. It names checkpoints by path and hash, not by position, so that it survives a merge.
      outer_step: First outer step that is superseded.
      num_superseded: Number of superseded checkpoints.
    """

    kind: str
    detail: Mapping[str, Any]
    outer_step: int
    num_superseded: int


@dataclass(slots=True)
class Restarts:
    """Restarts among the sightings of a ledger.

    Add sightings in the order of their positions, then events in the order of their recording.

    Attributes:
      superseded_positions: Positions of superseded checkpoints.
    """

    superseded_positions: set[int] = field(default_factory=set)
    # By superseded position: first position of the run that superseded it; if that is superseded too, of the later run.
    _superseded_by: dict[int, int] = field(default_factory=dict)
    _subjects: dict[int, Subject] = field(default_factory=dict)
    _positions: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _positions_by_uri: dict[str, list[int]] = field(default_factory=dict)  # positions by path of the checkpoint
    _lineages: dict[CheckpointSeries, list[int]] = field(default_factory=dict)
    # Highest outer steps, including superseded ones.
    _highest_steps: dict[CheckpointSeries, int] = field(default_factory=dict)
    # Last positions before each restart.
    _positions_before_restarts: dict[CheckpointSeries, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, sightings: Mapping[int, Subject], events: Iterable[tuple[str, Mapping[str, Any]]]) -> Restarts:
        """Returns the restarts among sightings, which are given by position. Events of other kinds are ignored."""
        restarts = cls()
        for position in sorted(sightings):
            restarts.add_sighting(position, sightings[position])
        for kind, detail in events:
            restarts.add_event(kind, detail)
        return restarts

    def add_sighting(self, position: int, subject: Subject) -> None:
        if not subject.has_theta or position in self._subjects:
            return
        self._subjects[position] = subject
        self._positions_by_uri.setdefault(subject.uri, []).append(position)
        self._positions[_identity_of(subject)] = position
        lineage = series_of(subject)
        self._lineages.setdefault(lineage, []).append(position)
        self._highest_steps[lineage] = max(subject.outer_step, self._highest_steps.get(lineage, -1))

    def add_event(self, kind: str, detail: Mapping[str, Any]) -> None:
        if kind not in (RESTARTED_EVENT, RETURNED_EVENT):
            return
        position = self._positions.get(tuple(detail[name] for name in _IDENTITY_FIELDS))
        if position is None:
            return  # a merged store may have the event without the sighting
        self.superseded_positions.discard(position)
        generation, variant = detail["generation"], detail["variant"]
        # Last superseded position of each lineage. Files without a number have lineages of their own.
        last_positions: dict[CheckpointSeries, int] = {}
        newly_superseded = set[int]()
        series = series_of(self._subjects[position])
        for uri, sha256, outer_step in detail.get("superseded", ()):
            superseded_position = self._positions.get((uri, sha256, generation, outer_step, variant))
            if superseded_position is not None:
                newly_superseded.add(superseded_position)
                lineage = series_of(self._subjects[superseded_position])
                last_positions[lineage] = max(superseded_position, last_positions.get(lineage, superseded_position))
        self.superseded_positions |= newly_superseded
        for earlier_position, restart_position in self._superseded_by.items():
            if restart_position in newly_superseded and earlier_position < position:
                self._superseded_by[earlier_position] = position
        self._superseded_by |= dict.fromkeys(newly_superseded, position)
        last_position = self._positions.get(tuple(detail["after"]))
        if kind == RESTARTED_EVENT and last_position is not None:
            for lineage, restart_position in {**last_positions, series: last_position}.items():
                self._positions_before_restarts.setdefault(lineage, []).append(restart_position)

    def last_position(self, uri: str) -> int | None:
        """Returns the position of the last content that was first seen at a path; None if none was seen there."""
        return next(reversed(self._positions_by_uri.get(uri, ())), None)

    def paths_that_begin_runs(self) -> frozenset[str]:
        """Returns the paths whose last content is the first checkpoint of a present run that superseded another one."""
        first_positions = {*self._superseded_by.values()} - self.superseded_positions
        return frozenset(
            uri for position in first_positions if self.last_position(uri := self._subjects[position].uri) == position
        )

    def subject_at(self, position: int) -> Subject:
        return self._subjects[position]

    def is_of_new_run(self, position: int) -> bool:
        """Returns whether a checkpoint belongs to the present run of a trainer that was restarted in place."""
        return position not in self.superseded_positions and self.num_restarts_before(position) > 0

    def num_restarts_before(self, position: int) -> int:
        """Returns how many times the trainer of a checkpoint was restarted before the checkpoint was first seen."""
        subject = self._subjects.get(position)
        if subject is None:
            return 0
        return sum(
            restart_position < position
            for restart_position in self._positions_before_restarts.get(series_of(subject), ())
        )

    def at_or_after_step(self, subject: Subject) -> list[Subject]:
        """Returns the checkpoints of `before` with at least the subject's outer step."""
        if subject.outer_step > self._highest_steps.get(series_of(subject), -1):
            return []  # nearly always; skips the search through the whole run
        return [
            checkpoint for checkpoint in self.current_lineage(subject) if checkpoint.outer_step >= subject.outer_step
        ]

    def current_lineage(self, subject: Subject) -> list[Subject]:
        """Returns the checkpoints of a subject's lineage that are not superseded, in order of first sight."""
        lineage = self._lineages.get(series_of(subject), ())
        return [self._subjects[position] for position in lineage if position not in self.superseded_positions]

    def arrival_number(self, uri: str, sha256: str) -> int:
        """Returns a number in place of the outer step for a file without one: how often its content has changed.

        A content that the file still has keeps its number.
        """
        earlier_checkpoints = [self._subjects[position] for position in self._positions_by_uri.get(uri, ())]
        if not earlier_checkpoints:
            return 0
        if earlier_checkpoints[-1].sha256 == sha256:
            return earlier_checkpoints[-1].outer_step
        return max(checkpoint.outer_step for checkpoint in earlier_checkpoints) + 1

    def current_checkpoints(self) -> list[Subject]:
        """Returns the checkpoints that are not superseded, in order of first sight."""
        return [subject for position, subject in self._subjects.items() if position not in self.superseded_positions]

    def has_sighting(self, subject: Subject) -> bool:
        return _identity_of(subject) in self._positions

    def superseded_by(self, subject: Subject) -> Subject | None:
        """Returns the first checkpoint of the run that superseded a checkpoint; None if it is not superseded."""
        position = self._positions.get(_identity_of(subject))
        return self._subjects[self._superseded_by[position]] if position in self.superseded_positions else None

    def restart_shown_by(
        self, position: int, subject: Subject, *, from_step: int | None = None, has_returned: bool = False
    ) -> Restart | None:
        """Returns the restart that a sighting shows; None if it shows none. Call `add_sighting` first.

        Args:
          position: Position of the sighting. A file that has a former content again keeps that content's position.
          subject: Subject that was seen.
          from_step: First superseded outer step, if a restart is known. None: restarts are inferred.
          has_returned: Whether the run that superseded the subject has written it again.
        """
        is_superseded = position in self.superseded_positions
        has_returned |= is_superseded and self._superseded_by[position] in self.superseded_positions
        replaced_checkpoints = [
            self._subjects[index]
            for index in self._positions_by_uri[subject.uri]
            if index not in self.superseded_positions
        ]
        is_restart = from_step is not None or any(
            checkpoint.sha256 != subject.sha256
            and checkpoint.outer_step >= subject.outer_step
            and series_of(checkpoint) == series_of(subject)
            for checkpoint in replaced_checkpoints
        )
        if not is_restart and not has_returned:
            return None  # nearly always; skips the search through the whole run
        other_checkpoints = [checkpoint for checkpoint in self.current_lineage(subject) if checkpoint != subject]
        is_restart |= any(checkpoint.outer_step >= subject.outer_step for checkpoint in other_checkpoints)
        kind = RESTARTED_EVENT if is_restart else RETURNED_EVENT
        first_step = subject.outer_step if from_step is None else min(from_step, subject.outer_step)
        superseded_checkpoints = (
            [checkpoint for checkpoint in other_checkpoints if checkpoint.outer_step >= first_step]
            if kind == RESTARTED_EVENT
            else []
        )
        lineage = self._lineages[series_of(subject)]
        last_checkpoint = self._subjects[
            lineage[-1] if lineage[-1] != position else lineage[-2 if len(lineage) > 1 else -1]
        ]
        if superseded_checkpoints:
            superseded_checkpoints += self._superseded_without_number(subject, superseded_checkpoints, last_checkpoint)
        detail = dict(zip(_IDENTITY_FIELDS, _identity_of(subject), strict=True)) | {
            "after": list(_identity_of(last_checkpoint)),
            "superseded": [
                [checkpoint.uri, checkpoint.sha256, checkpoint.outer_step] for checkpoint in superseded_checkpoints
            ],
        }
        return Restart(kind=kind, detail=detail, outer_step=first_step, num_superseded=len(superseded_checkpoints))

    def _superseded_without_number(
        self, subject: Subject, superseded_checkpoints: Sequence[Subject], last_checkpoint: Subject
    ) -> list[Subject]:
        """Returns the contents of files without a number (`latest.npz`) that belong to an abandoned run.

        They were seen after the last checkpoint that both runs have. The present content of such a file may belong to
        the new run already: it is kept if it was first seen after all checkpoints of the abandoned run and differs from
        them.

        Args:
          subject: First checkpoint of the new run.
          superseded_checkpoints: Superseded checkpoints of its lineage.
          last_checkpoint: Last checkpoint of the lineage that was seen before.
        """
        series = series_of(subject)
        hashes = {checkpoint.sha256 for checkpoint in superseded_checkpoints}
        shared_positions = [
            self._positions[_identity_of(checkpoint)]
            for checkpoint in self.current_lineage(subject)
            if checkpoint not in (subject, *superseded_checkpoints)
        ]
        last_position = self._positions[_identity_of(last_checkpoint)]
        last_shared = max(shared_positions, default=-1)
        unnumbered_checkpoints: list[Subject] = []
        for lineage, positions in self._lineages.items():
            if lineage == series or not lineage.is_beside(series) or "*" in lineage.names.rpartition("/")[2]:
                continue
            for position in positions:
                candidate = self._subjects[position]
                may_be_new = position == positions[-1] and position > last_position and candidate.sha256 not in hashes
                if position > last_shared and position not in self.superseded_positions and not may_be_new:
                    unnumbered_checkpoints.append(candidate)
        return unnumbered_checkpoints


def _identity_of(subject: Subject) -> tuple[Any, ...]:
    return subject.uri, subject.sha256, subject.generation, subject.outer_step, subject.variant.key
