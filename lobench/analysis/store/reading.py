"""Incremental reading of a growing store: earlier results are kept, and new evaluations are added."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lobench.analysis.store.snapshot import Snapshot
from lobench.analysis.store.subjects import StoredSubject, rows_by_subject
from lobench.core.subject import Subject
from lobench.engine.store.current import CurrentCases
from lobench.engine.store.ledger import EvaluationRow, Ledger
from lobench.engine.store.reader import ChangeMarker

__all__ = ["StoreReading"]


class StoreReading:
    """Summarized reading of a store, which can be repeated. Each snapshot equals that of `read_store`.

    If something other than new evaluations has changed (an evaluation was replaced, a trainer was restarted, a case was
    edited, another store is there now), the whole store is read again.

    Args:
      store: Folder of the store.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._marker: ChangeMarker | None = None
        self._rows: tuple[EvaluationRow, ...] = ()
        self._rows_by_subject: dict[Subject, list[EvaluationRow]] = {}
        self._evaluated_hashes: set[str] = set()  # hashes of the subjects of the rows
        self._sightings: dict[int, Subject] = {}
        self._current_cases = CurrentCases()
        self._subject_cache: dict[Subject, tuple[int, list[StoredSubject]]] = {}
        self._last_event = 0
        self.num_read = 0  # evaluations that the last call of `read` took from the store

    def read(self) -> Snapshot:
        """Reads new evaluations, and returns the content of the store.

        Raises:
          StoreError: The folder is not a store.
        """
        with Ledger.open(self._store, read_only=True) as ledger:
            is_same_store = all(
                ledger.recorded_at(row.id) == row.recorded_at for row in (*self._rows[:1], *self._rows[-1:])
            )
            # Read before the evaluations, so that a change in between shows in the next call.
            marker = ledger.change_marker(self._marker if is_same_store else None)
            sightings = ledger.sightings()
            last_event, planned_hashes = ledger.planned_after(self._last_event)
            current = ledger.current_cases()
            is_kept = (
                is_same_store
                and marker is not None
                and marker == self._marker
                and self._has_only_new_subjects(sightings)
            )
            is_kept = is_kept and current.accepts_same_programs(self._current_cases)
            outdated_ids = marker.outdated_ids if marker is not None else None
            if is_kept and self._marker is not None and self._rows:
                ids = ledger.reassigned_ids(self._marker, until=self._rows[-1].id)
                rows = ledger.evaluations(summarized=True, sightings=sightings, ids=ids, outdated_ids=outdated_ids)
                is_kept = not ids or self._replace_labels({row.id: row for row in rows})
            kept_rows = self._rows if is_kept else ()
            last_row_id = kept_rows[-1].id if kept_rows else 0
            new_rows = tuple(
                ledger.evaluations(summarized=True, sightings=sightings, after=last_row_id, outdated_ids=outdated_ids)
            )
            identities_before = self._current_cases.identities
            current = (
                current.take_over(self._current_cases).add_rows(new_rows) if is_kept else current.add_rows(new_rows)
            )
            if not is_kept or current.identities != identities_before:
                self._subject_cache = {}
            for subject in [*self._subject_cache]:
                if subject.sha256 in planned_hashes or current.follows_its_runs(subject):
                    del self._subject_cache[subject]
            self._marker = marker
            self._rows = (*kept_rows, *new_rows)
            self._rows_by_subject = rows_by_subject(new_rows, self._rows_by_subject if is_kept else None)
            self._evaluated_hashes = {
                *(self._evaluated_hashes if is_kept else ()),
                *(row.key.checkpoint_sha256 for row in new_rows),
            }
            self._sightings = sightings
            self._current_cases, self._last_event, self.num_read = current, last_event, len(new_rows)
            positions = {subject: position for position, subject in sightings.items()}
            events = tuple(ledger.events())
            return Snapshot.of(
                self._store,
                self._rows,
                positions=positions,
                events=events,
                num_skipped=ledger.num_skipped(),
                current=current,
                subject_cache=self._subject_cache,
                grouped_rows=self._rows_by_subject,
            )

    def _replace_labels(self, rows: Mapping[int, EvaluationRow]) -> bool:
        """Replaces kept evaluations whose labels have changed.

        Args:
          rows: Kept evaluations as they are now, by id.

        Returns:
          Whether nothing but labels has changed. If False, nothing was replaced.
        """
        changed_rows = dict[int, EvaluationRow]()
        for row in self._rows:
            if (row_now := rows.get(row.id)) is not None:
                if (row.recorded_sightings, row.superseded_sightings) != (
                    row_now.recorded_sightings,
                    row_now.superseded_sightings,
                ):
                    return False
                if row.labels != row_now.labels:
                    changed_rows[row.id] = row_now
        self._rows = tuple(changed_rows.get(row.id, row) for row in self._rows)
        for subject in {subject for row in changed_rows.values() for subject in row.present_sightings}:
            members = self._rows_by_subject[subject]
            members[:] = [changed_rows.get(row.id, row) for row in members]
        return True

    def _has_only_new_subjects(self, sightings: dict[int, Subject]) -> bool:
        """Returns whether all earlier sightings are unchanged, and all further sightings are of new subjects."""
        known_hashes = {subject.sha256 for subject in self._sightings.values()} | self._evaluated_hashes
        further_subjects = [subject for position, subject in sightings.items() if position not in self._sightings]
        return self._sightings.items() <= sightings.items() and known_hashes.isdisjoint(
            subject.sha256 for subject in further_subjects
        )
