"""Read access to a ledger: records for a restart, for sinks and for reports."""

from __future__ import annotations

import dataclasses
import functools
import json
import sqlite3
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.history import EvaluationId, History
from lobench.core.labels import NO_LABELS, Labels
from lobench.core.program import Program
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.core.subject import Subject, SubjectKey
from lobench.engine.store.codes import CASE_CONDITION, SAME_CODE_EVENT, Codes
from lobench.engine.store.current import CURRENT_PLAN_EVENT, PLAN_EVENT, PLANNED_EVENT
from lobench.engine.store.evaluation_row import EvaluationRow
from lobench.engine.store.ledger_tables import MEMBERSHIP_TRIGGER
from lobench.engine.store.places import Locations
from lobench.engine.store.programs import accepted_keys_of_programs, known_programs, programs_of_old_rows
from lobench.engine.store.restarts import RESTARTED_EVENT, RETURNED_EVENT, Restarts
from lobench.engine.store.run_names import RunNames
from lobench.engine.store.schema import decoding_errors, store_errors
from lobench.engine.store.series import ArrivalNumbers, has_step_in_name
from lobench.engine.store.subject_rows import SUBJECT_COLUMNS, sightings_of_evaluations, subject_from_row
from lobench.engine.store.summaries import StoredSummaries

if TYPE_CHECKING:  # needed for sinks only; not imported here, to keep reading fast
    from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished

__all__ = ["EVALUATION_COLUMNS", "PASSED_OVER_PREFIX", "ChangeMarker", "LedgerReader", "case_from_json", "case_to_json"]

EVALUATION_COLUMNS = (
    "checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, program_version, case_json, outcome, "
    "message, payload, seconds, recorded_at, code"
)
# Without the seconds, and with the payload or its summary behind them.
_READ_COLUMNS = (
    "checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, program_version, case_json, outcome, "
    "message, recorded_at, code"
)
_OUTCOMES = {str(outcome): outcome for outcome in Outcome}  # a call of the enum takes longer, for each of many rows
# Up to the condition on evaluations. The first membership of an evaluation counts.
_LABELS_QUERY = (
    "SELECT evaluation, name, trial, session FROM memberships m JOIN experiments x ON x.id = m.experiment "
    "WHERE m.rowid IN (SELECT MIN(rowid) FROM memberships"
)
PASSED_OVER_PREFIX = "passed over "  # prefix of the fingerprints of checkpoints that were not read
_EVENT_COLUMNS = "case_json, seed_start, seed_count, outcome, message, payload"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMarker:
    """State of a store's recorded evaluations, as `LedgerReader.change_marker` returns it.

    Attributes:
      num_changes: Number of changes of evaluations, memberships in experiments and completions, as the store
        counts it; of a bundle, its root.
      last_event_id: Id of the last plan, or of the last declaration that two codes are equal.
      superseded_subjects: Checkpoints that restarts in place superseded.
      outdated_ids: Evaluations that do not count; see `Codes.outdated_ids`.
      places: Locations of suites.
      last_id: Id of an evaluation up to which all were considered. It is no part of the state, nor are the next three.
      last_membership: Rowid of the last membership of an evaluation in an experiment.
      last_delivery: Sequence number of the last delivery.
      last_planned_id: Id of the last event of a planned subject.
    """

    num_changes: object
    last_event_id: int
    superseded_subjects: frozenset[Subject]
    outdated_ids: frozenset[int]
    places: tuple[object, ...]
    last_id: int = field(compare=False)
    last_membership: int = field(compare=False)
    last_delivery: int = field(compare=False)
    last_planned_id: int = field(compare=False)


class LedgerReader(Locations, Codes):
    """Read access to a ledger; base class of `Ledger`."""

    def __init__(self, store: Path, connection: sqlite3.Connection) -> None:
        self.store, self._db = store, connection
        self._runs = RunNames()

    # Reading, for a restart.

    def sightings(self, sha256: str = "") -> dict[int, Subject]:
        """Returns all sightings, or those of one subject, by position, with their current paths."""
        sightings = self._with_present_paths(self.recorded_sightings(sha256))
        if not sha256:
            self._arrival_numbers.add_new(sightings)
        elif any(subject.has_theta and not has_step_in_name(subject.uri) for subject in sightings.values()):
            # Those before tell whether it is numbered by its arrival.
            new_sightings = self.recorded_sightings(after=self._arrival_numbers.last_position)
            self._arrival_numbers.add_new(self._with_present_paths(new_sightings))
        for position in self._arrival_numbers.positions & sightings.keys():
            sightings[position] = dataclasses.replace(sightings[position], is_numbered_by_arrival=True)
        return sightings

    @functools.cached_property
    def _arrival_numbers(self) -> ArrivalNumbers:
        """Arrival numbers of the sightings read so far, so that a call adds only new ones."""
        return ArrivalNumbers()

    def _with_present_paths(self, sightings: Mapping[int, Subject]) -> dict[int, Subject]:
        return {position: self.with_present_path(subject) for position, subject in sightings.items()}

    def recorded_sightings(self, sha256: str = "", *, after: int = -1) -> dict[int, Subject]:
        """Returns the sightings after a position with their recorded paths, by which events refer to them."""
        where, values = ("c.sha256 = ?", (sha256,)) if sha256 else ("c.position > ?", (after,))
        rows = self._fetch_rows(
            f"SELECT c.position, {SUBJECT_COLUMNS} FROM subjects c WHERE {where} ORDER BY c.position", values
        )
        with decoding_errors(self.store):
            return {row[0]: subject_from_row(row[1:]) for row in rows}

    def finished_keys(self) -> set[SubjectKey]:
        """Returns the keys of subjects whose planned evaluations all have an outcome."""
        rows = self._fetch_rows(f"SELECT {SUBJECT_COLUMNS} FROM subjects c WHERE c.finished")
        with decoding_errors(self.store):
            return {subject_from_row(row).key for row in rows}

    def fingerprints(self) -> dict[str, str]:
        """Returns the fingerprint of each location's files when they were last read."""
        return dict(self._fetch_rows("SELECT uri, fingerprint FROM fingerprints"))

    def num_skipped(self) -> int:
        """Returns the number of checkpoints that `--checkpoints` left out and that were not evaluated later."""
        ((num_passed_over,),) = self._fetch_rows(
            "SELECT count(*) FROM fingerprints WHERE substr(fingerprint, 1, ?) = ?",
            (len(PASSED_OVER_PREFIX), PASSED_OVER_PREFIX),
        )
        ((num_not_admitted,),) = self._fetch_rows("SELECT count(*) FROM subjects WHERE admission = 'skipped'")
        return int(num_passed_over + num_not_admitted)

    def history(
        self, programs: Collection[str], *, retried: Collection[Outcome] = (), keeps_code: bool = False
    ) -> History:
        """Returns the records from which the scheduler continues.

        Args:
          programs: Keys of the programs whose results count.
          retried: Outcomes that are tried again.
          keeps_code: Whether results of any code count.
        """
        rows = self._fetch_rows(
            "SELECT checkpoint_sha256, case_identity || ':' || optimizer_hash, seed_start, seed_count, seconds, "
            "program_version, outcome, code FROM evaluations ORDER BY id"
        )
        incidents = self._fetch_rows("SELECT kind, checkpoint_sha256, case_key, seed_start, seed_count FROM incidents")
        positions = self._fetch_rows("SELECT position, admission, finished FROM subjects")
        seconds_by_case: dict[str, list[float]] = {}
        deaths: dict[EvaluationId, int] = {}
        codes: dict[EvaluationId, tuple[str, ...]] = {}
        retried_codes: dict[EvaluationId, tuple[str, ...]] = {}
        accepted_code = self.canonical_codes
        recorded_evaluations = set()
        retried_ids = set()
        splits = set()
        for sha256, case_key, start, size, duration, program, outcome, code in rows:
            if duration > 0:  # outcomes without curves have no meaningful duration
                seconds_by_case.setdefault(case_key, []).append(duration)
            if program in programs:
                evaluation = EvaluationId(sha256, case_key, SeedBlock(start=start, size=size))
                recorded_evaluations.add(evaluation)
                codes[evaluation] = (*codes.get(evaluation, ()), code)
                if outcome in retried:
                    retried_ids.add(evaluation)
                    retried_codes[evaluation] = (*retried_codes.get(evaluation, ()), code)
        for kind, sha256, case_key, start, size in incidents:
            evaluation = EvaluationId(sha256, case_key, SeedBlock(start=start, size=size))
            if kind == "split":
                splits.add(evaluation)
            else:
                deaths[evaluation] = deaths.get(evaluation, 0) + 1
        return History(
            recorded=recorded_evaluations,
            retried=retried_ids,
            splits=splits,
            deaths=deaths,
            admissions={position: admission for position, admission, _ in positions if admission != "waiting"},
            finished={position for position, _, is_finished in positions if is_finished},
            durations={key: statistics.median(values) for key, values in seconds_by_case.items()},
            codes={evaluation_id: code for evaluation_id, code in codes.items() if any(code)},
            retried_codes={
                evaluation_id: retried_code
                for evaluation_id, retried_code in retried_codes.items()
                if any(codes[evaluation_id])
            },
            same_codes=accepted_code,
            keeps_code=keeps_code,
        )

    def accepted_programs(self, expected: Iterable[Program]) -> set[str]:
        """Returns the keys of the programs whose results count if the given programs are expected."""
        with store_errors(self.store), decoding_errors(self.store):
            return accepted_keys_of_programs(self._db, expected)

    def outcome_counts(
        self,
        programs: Collection[str],
        case_keys: Collection[str],
        sha256s: Collection[str],
        codes: Mapping[str, str] | None = None,
    ) -> dict[Outcome, int]:
        """Returns the number of evaluations by outcome, for given programs, cases and subjects.

        Args:
          programs: Keys of the programs.
          case_keys: `CaseInfo.key` of the cases.
          sha256s: Hashes of the subjects.
          codes: Current code by `CaseInfo.key`. Results of any code count for cases without an entry.
        """
        case_filter = self.case_filter(case_keys, codes or {})
        rows = self._fetch_rows(
            "SELECT outcome, COUNT(*) FROM evaluations e WHERE program_version IN (SELECT value FROM json_each(?)) "
            f"AND {CASE_CONDITION} "
            "AND checkpoint_sha256 IN (SELECT value FROM json_each(?)) GROUP BY outcome",
            (json.dumps(sorted(programs)), case_filter, json.dumps(sorted(sha256s))),
        )
        with decoding_errors(self.store):
            return {Outcome(outcome): count for outcome, count in rows}

    # Deliveries.

    def deliveries_after(self, sequence: int, limit: int = 256) -> list[Delivery]:
        """Returns the deliveries after a sequence number, at most `limit`."""
        from lobench.hookspecs import Delivery

        with store_errors(self.store), decoding_errors(self.store):
            rows = self._db.execute(
                f"SELECT d.sequence, d.position, d.evaluation, {SUBJECT_COLUMNS} "
                "FROM deliveries d JOIN subjects c ON c.position = d.position WHERE d.sequence > ? "
                "ORDER BY d.sequence LIMIT ?",
                (sequence, limit),
            ).fetchall()
            deliveries = []
            names = self._run_names() if rows else {}
            for delivery_sequence, position, evaluation, *columns in rows:
                subject = subject_from_row(tuple(columns))
                event: EvaluationFinished | CheckpointFinished
                if evaluation is not None:
                    event = self._evaluation_event(evaluation, subject)
                else:
                    event = self._completion_event(position, subject)
                deliveries.append(Delivery(sequence=delivery_sequence, event=event, run=names[position]))
            return deliveries

    def _run_names(self) -> Mapping[int, str]:
        """Returns the run's name of each position. Names are cached, so that a call reads only new positions."""
        query = f"SELECT c.position, {SUBJECT_COLUMNS} FROM subjects c WHERE c.position > ? ORDER BY c.position"
        is_experiment = bool(self._fetch_rows("SELECT 1 FROM experiments LIMIT 1"))
        rows = self._fetch_rows(query, (max(self._runs.names, default=-1),))
        restarts = self.restarts() if rows else Restarts()
        with decoding_errors(self.store):
            for position, *columns in rows:
                num_restarts = restarts.num_restarts_before(position)
                subject = subject_from_row(tuple(columns))
                self._runs.add(position, subject, is_experiment=is_experiment, num_restarts=num_restarts)
        return self._runs.names

    def restarts(self) -> Restarts:
        """Returns the restarts in place among the sightings, and the sightings that they supersede."""
        events = self.restart_events()
        return Restarts.of(self.recorded_sightings(), events) if events else Restarts()

    def superseded_subjects(self) -> frozenset[Subject]:
        """Returns the checkpoints that restarts in place superseded."""
        events = self.restart_events()
        if not events:
            return frozenset()
        sightings = self.sightings()
        return frozenset(sightings[position] for position in self.restarts().superseded_positions)

    def numbered_by_arrival(self) -> frozenset[Subject]:
        """Returns the contents of files without a step, in folders of checkpoints with outer steps."""
        return frozenset(subject for subject in self.sightings().values() if subject.is_numbered_by_arrival)

    def restart_events(self) -> list[tuple[str, dict[str, Any]]]:
        return self.events(RESTARTED_EVENT, RETURNED_EVENT)

    def first_deliveries(self, sequence: int) -> list[tuple[str, Subject]]:
        """Returns the run and subject of each position delivered up to a sequence number, by first delivery."""
        query = "SELECT position FROM deliveries WHERE sequence <= ? GROUP BY position ORDER BY MIN(sequence)"
        subjects = self.sightings()
        names = self._run_names()
        with decoding_errors(self.store):
            return [(names[position], subjects[position]) for (position,) in self._fetch_rows(query, (sequence,))]

    def run_standings(self) -> list[tuple[str, Subject, bool]]:
        """Returns (run, subject, is finished) for each position that was not skipped."""
        query = "SELECT position, finished FROM subjects WHERE admission <> 'skipped' ORDER BY position"
        subjects = self.sightings()
        names = self._run_names()
        with decoding_errors(self.store):
            return [
                (names[position], subjects[position], bool(is_finished))
                for position, is_finished in self._fetch_rows(query)
            ]

    def reopened_completions(self) -> dict[SubjectKey, set[int]]:
        """Returns the sequence numbers of completions withdrawn when their position was reopened, by subject."""
        details = self._event_details("reopened")
        sightings = self.sightings() if details else {}
        sequences: dict[SubjectKey, set[int]] = {}
        with decoding_errors(self.store):
            for detail in details:
                sequences.setdefault(sightings[detail["position"]].key, set()).add(detail["sequence"])
        return sequences

    def shared_runs(self) -> dict[str, list[str]]:
        """Returns, for each run shared by several methods of an experiment, these methods. They are one subject."""
        query = (
            "SELECT (SELECT MIN(c.position) FROM subjects c WHERE c.sha256 = e.checkpoint_sha256) AS position, "
            "GROUP_CONCAT(DISTINCT m.method) FROM memberships m JOIN evaluations e ON e.id = m.evaluation "
            "WHERE m.method <> '' GROUP BY m.experiment, m.evaluation "
            "HAVING COUNT(DISTINCT m.method) > 1 AND position IS NOT NULL"
        )
        names = self._run_names()
        with decoding_errors(self.store):
            return {names[position]: sorted(methods.split(",")) for position, methods in self._fetch_rows(query)}

    def checkpoint_finished(self, position: int) -> CheckpointFinished:
        """Returns the event of a finished position, as sinks receive it."""
        with store_errors(self.store), decoding_errors(self.store):
            return self._completion_event(position, self.sightings()[position])

    def _evaluation_event(self, evaluation: int, subject: Subject) -> EvaluationFinished:
        query = f"SELECT {_EVENT_COLUMNS} FROM evaluations WHERE id = ?"
        return _finished_event(subject, self._db.execute(query, (evaluation,)).fetchone())

    def _completion_event(self, position: int, subject: Subject) -> CheckpointFinished:
        from lobench.hookspecs import CheckpointFinished

        rows = self._db.execute(
            f"SELECT {_EVENT_COLUMNS} FROM completions JOIN evaluations ON id = evaluation WHERE position = ? "
            "ORDER BY case_identity, seed_start",
            (position,),
        ).fetchall()
        return CheckpointFinished(subject=subject, evaluations=tuple(_finished_event(subject, row) for row in rows))

    def last_sequence(self) -> int:
        return self._fetch_number("SELECT MAX(sequence) FROM deliveries")

    def num_deliveries_after(self, sequence: int) -> int:
        """Returns the number of deliveries after a sequence number.

        Sequence numbers have gaps, so their difference is not the count.
        """
        return self._fetch_number("SELECT COUNT(*) FROM deliveries WHERE sequence > ?", (sequence,))

    def sink_cursor(self, sink: str) -> int:
        """Returns the sequence number of the last delivery that a sink has processed; 0 for a new sink."""
        return self._fetch_number("SELECT MAX(sequence) FROM cursors WHERE sink = ?", (sink,))

    # Reading, for reports.

    def change_marker(self, earlier: ChangeMarker | None = None) -> ChangeMarker | None:
        """Returns a value that changes if recorded evaluations change, and not if evaluations or subjects are added.

        A reader can thus keep the evaluations that it has read, and read only those added since.

        Args:
          earlier: Earlier marker of the same store. Then, only later evaluations are read. None: reads all of them.

        Returns:
          None if changes of this store cannot be detected, because an older lobench wrote it. The values of two stores
          may be equal; compare `recorded_at` of an evaluation, too.
        """
        changes = self._fetch_rows("SELECT value FROM meta WHERE key = 'num_changes'")
        kinds = PLAN_EVENT, CURRENT_PLAN_EVENT, SAME_CODE_EVENT
        last_event_id = self._fetch_number("SELECT MAX(id) FROM events WHERE kind IN (?, ?, ?)", kinds)
        last_id = self._fetch_number("SELECT MAX(id) FROM evaluations")
        last_membership = self._fetch_number("SELECT MAX(rowid) FROM memberships")
        last_planned_id = self._fetch_number("SELECT MAX(id) FROM events WHERE kind = ?", (PLANNED_EVENT,))
        after, known_ids = 0, frozenset[int]()
        if (
            earlier
            and changes
            and (earlier.num_changes, earlier.last_event_id) == (changes[0][0], last_event_id)
            # A planned subject may make another code the current one, which matters if some code is outdated.
            and (earlier.last_planned_id == last_planned_id or not earlier.outdated_ids)
        ):
            after, known_ids = earlier.last_id, earlier.outdated_ids
        old_rows_query = (
            f"SELECT 1 FROM evaluations e WHERE {f'id > {after} AND ' if after else ''}program_version NOT LIKE '%-%' "
            "AND NOT EXISTS (SELECT 1 FROM summaries s WHERE s.evaluation = e.id) LIMIT 1"
        )
        counts_memberships = self._fetch_rows(
            "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = ?", (MEMBERSHIP_TRIGGER,)
        )
        if not changes or (last_membership and not counts_memberships) or self._fetch_rows(old_rows_query):
            return None
        return ChangeMarker(
            num_changes=changes[0][0],
            last_event_id=last_event_id,
            superseded_subjects=self.superseded_subjects(),
            outdated_ids=self.outdated_ids(after=after, known_ids=known_ids),
            places=self.places_marker(),
            last_id=last_id,
            last_membership=last_membership,
            last_delivery=self.last_sequence(),
            last_planned_id=last_planned_id,
        )

    def reassigned_ids(self, marker: ChangeMarker, until: int) -> frozenset[int]:
        """Returns the ids of evaluations whose experiments or sightings may have changed after a marker.

        Args:
          marker: Earlier marker, equal to the present one.
          until: Id of an evaluation. Later ones are left out.
        """
        rows = self._fetch_rows(
            # Without the `+`, SQLite reads the index of evaluations, which has all memberships.
            "SELECT evaluation FROM memberships WHERE rowid > ? AND +evaluation <= ? "
            "UNION SELECT evaluation FROM deliveries WHERE sequence > ? AND evaluation <= ?",
            (marker.last_membership, until, marker.last_delivery, until),
        )
        return frozenset(evaluation for (evaluation,) in rows)

    def content_marker(self) -> tuple[object, ...]:
        """Returns a value that changes with all records that reports show; () while there is no evaluation.

        A watch that finds nothing new does not change it. It takes milliseconds, also in a large store.
        """
        queries = (
            "SELECT MAX(id) FROM evaluations",
            "SELECT value FROM meta WHERE key = 'num_changes'",
            "SELECT MAX(id) FROM events",  # plans, restarts, imports, comparisons, gates
            "SELECT uri, label, admission FROM subjects ORDER BY position",
            "SELECT COUNT(*), MAX(rowid) FROM memberships",
            "SELECT * FROM trials ORDER BY rowid",
            "SELECT id FROM experiments ORDER BY last_at DESC, id DESC LIMIT 1",
            "SELECT MAX(id) FROM suites",
            "SELECT MAX(id) FROM locations",
            "SELECT COUNT(*) FROM expectations",
        )
        values = tuple(tuple(self._fetch_rows(query)) for query in queries)
        return () if values[0] == ((None,),) else values

    def recorded_at(self, evaluation: int) -> float | None:
        """Returns the time at which an evaluation was recorded, by its id; None if there is no such evaluation."""
        rows = self._fetch_rows("SELECT recorded_at FROM evaluations WHERE id = ?", (evaluation,))
        return float(rows[0][0]) if rows else None

    def num_evaluations(self) -> int:
        """Returns the number of evaluations, including outdated ones."""
        return self._fetch_number("SELECT COUNT(*) FROM evaluations")

    def evaluations(
        self,
        sha256: str = "",
        outcome: Outcome | None = None,
        *,
        all_codes: bool = False,
        codes: Mapping[str, str] | None = None,
        summarized: bool = False,
        sightings: Mapping[int, Subject] | None = None,
        after: int = 0,
        ids: Collection[int] | None = None,
        outdated_ids: frozenset[int] | None = None,
    ) -> Iterator[EvaluationRow]:
        """Yields evaluations in the order of their recording.

        Args:
          sha256: Hash of a subject. "": all subjects.
          outcome: Outcome to select. None: all outcomes.
          all_codes: Whether results of code that the user has edited since are included; see `Codes.outdated_ids`.
          codes: Current code by `CaseInfo.key`, if the caller knows it. Results of these cases made by other code are
            skipped.
          summarized: Whether rows have summaries instead of payloads. Their curves are then read on access.
          sightings: Result of `LedgerReader.sightings` for the same subjects. None: read here.
          after: Id of an evaluation. Only later ones are read.
          ids: Ids of the evaluations to read. None: all.
          outdated_ids: Result of `Codes.outdated_ids` for the same subjects. None: read here.
        """
        current_codes = codes or {}
        filter_values = {"checkpoint_sha256": sha256, "outcome": outcome or ""}
        conditions = {name: value for name, value in filter_values.items() if value}
        where = " AND ".join([f"id > {int(after)}" if after else "1", *(f"{name} = ?" for name in conditions)])
        values = [*conditions.values()]
        if ids is not None:
            where += " AND id IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(sorted(ids)))
        with store_errors(self.store), decoding_errors(self.store):
            programs = known_programs(self._db)
            old_programs_by_id: dict[int, Program] | None = None
            known_sightings = self.sightings(sha256) if sightings is None else sightings
            subjects_of_evaluation = sightings_of_evaluations(self._db, known_sightings, where=where, values=values)
            superseded = self.superseded_subjects()
            selection = f"evaluation IN (SELECT id FROM evaluations WHERE {where})"
            label_rows = self._db.execute(f"{_LABELS_QUERY} WHERE {selection} GROUP BY evaluation)", values)
            labels = {
                row[0]: Labels(experiment=str(row[1]), trial=str(row[2]), session=str(row[3])) for row in label_rows
            }
            cases = dict[str, CaseInfo]()  # thousands of rows have a few
            texts = dict[str, str]()  # equal texts of rows are one object: a sixth of the memory of a large store
            blocks = dict[tuple[int, int], SeedBlock]()
            canonical_codes = dict[str, str]()
            payload_column, summary_columns, join_clause, summaries = "payload", "NULL, NULL", "", None
            if summarized:
                summaries = StoredSummaries(self.store, self._db)
                payload_column, summary_columns = summaries.columns
                join_clause = summaries.join_clause
            query = (
                f"SELECT id, {_READ_COLUMNS}, {payload_column}, {summary_columns} FROM evaluations {join_clause} "
                f"WHERE {where} ORDER BY id"
            )
            if all_codes or codes is not None:
                outdated_ids = frozenset()
            elif outdated_ids is None:
                outdated_ids = self.outdated_ids(sha256)
            shared_text = texts.setdefault
            for (
                evaluation_id,
                checkpoint_sha256,
                optimizer_hash,
                case_identity,
                start,
                size,
                version,
                case_text,
                outcome_name,
                message,
                recorded_at,
                code,
                payload,
                head_id,
                packed_numbers,
            ) in self._db.execute(query, values):
                if evaluation_id in outdated_ids or (
                    current_codes
                    and not self.counts_as_current(code, current_codes.get(f"{case_identity}:{optimizer_hash}", ""))
                ):
                    continue
                case = cases.get(case_text)
                if case is None:
                    case = cases[case_text] = self.with_suite_places(case_from_json(case_text))
                summary = None
                if summaries is not None and head_id is not None:
                    summary = summaries.summary(evaluation_id, recorded_at, case, head_id, packed_numbers)
                program = programs.get(version)
                if program is None:
                    if not version.isdecimal():  # may have been recorded after the programs were read
                        program = programs[version] = known_programs(self._db).get(version, Program(version=version))
                    else:  # recorded before programs had keys
                        if old_programs_by_id is None:
                            old_programs_by_id = programs_of_old_rows(self._db, where=where, values=values)
                        program = old_programs_by_id.get(evaluation_id, Program(version=version))
                        version = program.key
                subjects = subjects_of_evaluation(evaluation_id, checkpoint_sha256)
                block = blocks.get((start, size))
                if block is None:
                    block = blocks[start, size] = SeedBlock(start=start, size=size)
                if code not in canonical_codes:
                    canonical_codes[code] = self.canonical_code(code)
                yield EvaluationRow(
                    key=EvaluationKey(
                        checkpoint_sha256=shared_text(checkpoint_sha256, checkpoint_sha256),
                        optimizer_hash=shared_text(optimizer_hash, optimizer_hash),
                        case_identity=shared_text(case_identity, case_identity),
                        seed_block=block,
                        program_version=shared_text(version, version),
                        code=shared_text(code, code),
                    ),
                    program=program,
                    case=case,
                    outcome=_OUTCOMES[outcome_name],
                    message=message,
                    payload=payload,
                    attached_curves=summary,
                    recorded_sightings=subjects,
                    labels=labels.get(evaluation_id, NO_LABELS),
                    recorded_at=recorded_at,
                    superseded_sightings=tuple(subject for subject in subjects if subject in superseded)
                    if superseded
                    else (),
                    code=canonical_codes[code],
                    id=evaluation_id,
                )


@functools.lru_cache(maxsize=1024)  # all subjects are evaluated on the same cases
def case_to_json(case: CaseInfo) -> str:
    """Returns a case as stored JSON. Fields with default values are left out; `case_of` restores them."""
    values_by_field = ((field, getattr(case, field.name)) for field in dataclasses.fields(case))
    return json.dumps(
        {
            case_field.name: value
            for case_field, value in values_by_field
            if value != case_field.default and case_field.name != "places"
        }
    )


@functools.lru_cache(maxsize=1024)
def case_from_json(text: str) -> CaseInfo:
    """Returns the case of a stored JSON text, whichever version wrote it."""
    return CaseInfo(**json.loads(text))


def _finished_event(subject: Subject, row: tuple[Any, ...]) -> EvaluationFinished:
    from lobench.hookspecs import EvaluationFinished

    case_text, start, size, outcome, message, payload = row
    return EvaluationFinished(
        subject=subject,
        case=case_from_json(case_text),
        seed_block=SeedBlock(start=start, size=size),
        outcome=Outcome(outcome),
        curves=Curves.from_payload(payload) if payload is not None else None,
        message=message,
    )
