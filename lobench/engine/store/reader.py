"""Read access to a ledger: records for a restart, for sinks and for reports."""

from __future__ import annotations

import dataclasses
import functools
import json
import sqlite3
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.curve_summary import CurveSummary
from lobench.core.history import EvaluationId, History
from lobench.core.program import Program
from lobench.core.result import Curves, EvaluationKey, Outcome, curves_of, read_header
from lobench.core.subject import Subject, SubjectKey
from lobench.engine.store.codes import OF_CASES, Codes
from lobench.engine.store.places import Places
from lobench.engine.store.programs import accepted, known_programs, of_row, old_programs, program_of_old
from lobench.engine.store.restarts import RESTARTED, RETURNED, Restarts
from lobench.engine.store.run_names import RunNames
from lobench.engine.store.schema import intact_rows, store_errors
from lobench.engine.store.subject_rows import SUBJECT_COLUMNS, sightings_of_evaluations, subject_of
from lobench.engine.store.summaries import StoredSummaries

if TYPE_CHECKING:  # events are for sinks; who reads evaluations does without the plugins' manager
    from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished

__all__ = ["EVALUATION_COLUMNS", "EvaluationRow", "LedgerReader", "case_json", "case_of"]

EVALUATION_COLUMNS = (
    "checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, program_version, case_json, outcome, "
    "message, payload, seconds, recorded_at, code"
)
_LABEL_COLUMNS = "evaluation, experiment, trial, session"
_EVENT_COLUMNS = "case_json, seed_start, seed_count, outcome, message, payload"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """One evaluation as it is stored, with every sighting of its subject.

    Attributes:
      program: What the key's program stands for.
      recorded_at: When it was recorded, in seconds since 1970, by the clock of that machine; no order.
      id: Its place in the order in which its store recorded evaluations; 0 if it is of no store.
      payload: `Curves.to_payload()`; None where the outcome gave no curves, or where they are at hand.
      at_hand: The curves of an evaluation that was not read from a store, or the summary of one that was.
      code: As `key.code`, with one fingerprint for all that count as the same.
      curves: Read from the payload each time that it is asked for: many readers want a few numbers of many rows.
      superseded: Those of the subjects that a restart in place superseded: they are in no curve over outer steps.
    """

    key: EvaluationKey
    program: Program
    case: CaseInfo
    outcome: Outcome
    message: str
    payload: bytes | None
    subjects: tuple[Subject, ...]
    experiment: str
    trial: str
    session: str
    recorded_at: float
    id: int = 0
    at_hand: Curves | CurveSummary | None = None
    superseded: tuple[Subject, ...] = ()
    code: str = ""

    @property
    def has_curves(self) -> bool:
        return self.payload is not None or self.at_hand is not None

    @property
    def sightings(self) -> tuple[Subject, ...]:
        """Its subjects; one without a place where it has none, as after a merge of a part."""
        if self.subjects:
            return self.subjects
        return (Subject.of_checkpoint(Checkpoint(uri="", sha256=self.key.checkpoint_sha256, outer_step=0)),)

    @property
    def present(self) -> tuple[Subject, ...]:
        """Its sightings without those that a restart in place superseded; () if it is of a dead run alone."""
        if not self.superseded:
            return self.sightings
        return tuple(one for one in self.sightings if one not in self.superseded)

    @property
    def where(self) -> str:
        """How errors name it."""
        return f"{self.case.suite}/{self.case.name} of checkpoint {self.key.checkpoint_sha256[:12]}"

    def header(self) -> tuple[dict[str, Any], int]:
        """Returns the head of the payload, which must be there, and where its values begin."""
        assert self.payload is not None
        with intact_rows(self.where):
            return read_header(self.payload)

    @property
    def measured(self) -> Curves | CurveSummary | None:
        """Its summary where only that was read, else its curves; enough for tables."""
        return self.at_hand if self.at_hand is not None else self.curves

    @property
    def curves(self) -> Curves | None:
        if self.payload is None:
            return self.at_hand.whole() if isinstance(self.at_hand, CurveSummary) else self.at_hand
        try:
            return Curves.from_payload(self.payload)
        except Exception:
            with intact_rows(self.where):
                raise


class LedgerReader(Places, Codes):
    """The reading half of `Ledger`."""

    def __init__(self, store: Path, connection: sqlite3.Connection) -> None:
        self.store, self._db = store, connection
        self._runs = RunNames()

    # What a restart reads.

    def sightings(self, sha256: str = "") -> dict[int, Subject]:
        """Returns every sighting by its position, or those of one subject, with the paths that they have today."""
        return {position: self.present(subject) for position, subject in self.recorded_sightings(sha256).items()}

    def recorded_sightings(self, sha256: str = "") -> dict[int, Subject]:
        """Returns the sightings as they were recorded. Events name them by these paths."""
        where, values = ("WHERE c.sha256 = ?", (sha256,)) if sha256 else ("", ())
        with store_errors(self.store):
            rows = self._db.execute(
                f"SELECT c.position, {SUBJECT_COLUMNS} FROM subjects c {where} ORDER BY c.position", values
            ).fetchall()
        return {row[0]: subject_of(row[1:]) for row in rows}

    def finished(self) -> set[SubjectKey]:
        """Returns of whom every evaluation that was planned has an outcome."""
        with store_errors(self.store):
            rows = self._db.execute(f"SELECT {SUBJECT_COLUMNS} FROM subjects c WHERE c.finished").fetchall()
        return {subject_of(row).key for row in rows}

    def fingerprints(self) -> dict[str, str]:
        """Returns what each location's files were like when they were last read."""
        with store_errors(self.store):
            return dict(self._db.execute("SELECT uri, fingerprint FROM fingerprints").fetchall())

    def history(
        self, programs: Collection[str], *, retried: Collection[Outcome] = (), keeps_code: bool = False
    ) -> History:
        """Returns what the scheduler must know to go on.

        Args:
          programs: Keys of those whose results count.
          retried: Outcomes that are to be tried again.
          keeps_code: Whether results of any code count.
        """
        with store_errors(self.store):
            rows = self._db.execute(
                "SELECT checkpoint_sha256, case_identity || ':' || optimizer_hash, seed_start, seed_count, seconds, "
                "program_version, outcome, code FROM evaluations ORDER BY id"
            ).fetchall()
            incidents = self._db.execute(
                "SELECT kind, checkpoint_sha256, case_key, seed_start, seed_count FROM incidents"
            ).fetchall()
            positions = self._db.execute("SELECT position, admission, finished FROM subjects").fetchall()
        seconds: dict[str, list[float]] = {}
        deaths: dict[EvaluationId, int] = {}
        codes: dict[EvaluationId, tuple[str, ...]] = {}
        retried_codes: dict[EvaluationId, tuple[str, ...]] = {}
        accepted_code = self.accepted_code
        recorded, again, splits = set(), set(), set()
        for sha256, case_key, start, size, took, program, outcome, code in rows:
            if took > 0:  # what ended without curves says nothing of how long the case takes
                seconds.setdefault(case_key, []).append(took)
            if program in programs:
                evaluation = EvaluationId(sha256, case_key, SeedBlock(start=start, size=size))
                recorded.add(evaluation)
                codes[evaluation] = (*codes.get(evaluation, ()), code)
                if outcome in retried:
                    again.add(evaluation)
                    retried_codes[evaluation] = (*retried_codes.get(evaluation, ()), code)
        for kind, sha256, case_key, start, size in incidents:
            evaluation = EvaluationId(sha256, case_key, SeedBlock(start=start, size=size))
            if kind == "split":
                splits.add(evaluation)
            else:
                deaths[evaluation] = deaths.get(evaluation, 0) + 1
        return History(
            recorded=recorded,
            retried=again,
            splits=splits,
            deaths=deaths,
            admissions={position: admission for position, admission, _ in positions if admission != "waiting"},
            finished={position for position, _, finished in positions if finished},
            durations={key: statistics.median(values) for key, values in seconds.items()},
            codes={one: found for one, found in codes.items() if any(found)},
            retried_codes={one: found for one, found in retried_codes.items() if any(codes[one])},
            same_codes=accepted_code,
            keeps_code=keeps_code,
        )

    def accepted_programs(self, expected: Iterable[Program]) -> set[str]:
        """Returns the keys of the programs whose results count where these are expected to compute them."""
        with store_errors(self.store), intact_rows(self.store):
            return accepted(self._db, expected)

    def outcomes(
        self,
        programs: Collection[str],
        case_keys: Collection[str],
        sha256s: Collection[str],
        codes: Mapping[str, str] | None = None,
    ) -> dict[Outcome, int]:
        """Counts the outcomes of these programs, cases (`CaseInfo.key`) and subjects.

        Args:
          codes: Today's code by `CaseInfo.key`; of a case that is not in it any code counts.
        """
        with store_errors(self.store), intact_rows(self.store):
            rows = self._db.execute(
                "SELECT outcome, COUNT(*) FROM evaluations e WHERE program_version IN (SELECT value FROM json_each(?)) "
                f"AND {OF_CASES} "
                "AND checkpoint_sha256 IN (SELECT value FROM json_each(?)) GROUP BY outcome",
                (
                    json.dumps(sorted(programs)),
                    self.case_filter(case_keys, codes or {}),
                    json.dumps(sorted(sha256s)),
                ),
            ).fetchall()
            return {Outcome(outcome): count for outcome, count in rows}

    # Deliveries.

    def deliveries_after(self, sequence: int, limit: int = 256) -> list[Delivery]:
        """Returns what comes after a place in the ledger's order, at most `limit`."""
        from lobench.hookspecs import Delivery

        with store_errors(self.store), intact_rows(self.store):
            rows = self._db.execute(
                f"SELECT d.sequence, d.position, d.evaluation, {SUBJECT_COLUMNS} "
                "FROM deliveries d JOIN subjects c ON c.position = d.position WHERE d.sequence > ? "
                "ORDER BY d.sequence LIMIT ?",
                (sequence, limit),
            ).fetchall()
            deliveries, names = [], self._names_of_runs() if rows else {}
            for place, position, evaluation, *columns in rows:
                subject = subject_of(tuple(columns))
                event: EvaluationFinished | CheckpointFinished
                if evaluation is not None:
                    event = self._evaluation(evaluation, subject)
                else:
                    event = self._completion(position, subject)
                deliveries.append(Delivery(sequence=place, event=event, run=names[position]))
            return deliveries

    def _names_of_runs(self) -> Mapping[int, str]:
        """Returns the run of each position; those that were asked for before keep their names."""
        query = f"SELECT c.position, {SUBJECT_COLUMNS} FROM subjects c WHERE c.position > ? ORDER BY c.position"
        is_experiment = self._db.execute("SELECT 1 FROM experiments LIMIT 1").fetchone() is not None
        rows = self._db.execute(query, (max(self._runs.names, default=-1),)).fetchall()
        restarts = self.restarts() if rows else Restarts()
        for position, *columns in rows:
            number = restarts.number(position)
            subject = subject_of(tuple(columns))
            self._runs.add(position, subject, is_experiment=is_experiment, num_restarts=number)
        return self._runs.names

    def restarts(self) -> Restarts:
        """Returns the restarts in place among the sightings, and the sightings that they supersede."""
        events = self.restart_events()
        return Restarts.of(self.recorded_sightings(), events) if events else Restarts()

    def superseded(self) -> frozenset[Subject]:
        """Returns the checkpoints that restarts in place supersede."""
        events = self.restart_events()
        if not events:
            return frozenset()
        sightings = self.sightings()
        return frozenset(sightings[position] for position in self.restarts().superseded)

    def restart_events(self) -> list[tuple[str, dict[str, Any]]]:
        query = "SELECT kind, detail FROM events WHERE kind IN (?, ?) ORDER BY id"
        with store_errors(self.store), intact_rows(self.store):
            rows = self._db.execute(query, (RESTARTED, RETURNED)).fetchall()
            return [(kind, json.loads(detail)) for kind, detail in rows]

    def first_deliveries(self, sequence: int) -> list[tuple[str, Subject]]:
        """Returns the run and the subject of each position that was delivered up to a place, in that order."""
        query = "SELECT position FROM deliveries WHERE sequence <= ? GROUP BY position ORDER BY MIN(sequence)"
        with store_errors(self.store), intact_rows(self.store):
            found, names = self.sightings(), self._names_of_runs()
            return [(names[one], found[one]) for (one,) in self._db.execute(query, (sequence,)).fetchall()]

    def standings(self) -> list[tuple[str, Subject, bool]]:
        """Returns of each position that was not skipped its run, its subject, and whether it is finished."""
        query = "SELECT position, finished FROM subjects WHERE admission <> 'skipped' ORDER BY position"
        with store_errors(self.store), intact_rows(self.store):
            found, names = self.sightings(), self._names_of_runs()
            return [(names[one], found[one], bool(done)) for one, done in self._db.execute(query).fetchall()]

    def reopened(self) -> dict[SubjectKey, set[int]]:
        """Returns the places of earlier completions, which are no deliveries any more, by subject."""
        with store_errors(self.store), intact_rows(self.store):
            rows = self._db.execute("SELECT detail FROM events WHERE kind = 'reopened'").fetchall()
            known = self.sightings() if rows else {}
            found: dict[SubjectKey, set[int]] = {}
            for detail in (json.loads(text) for (text,) in rows):
                found.setdefault(known[detail["position"]].key, set()).add(detail["sequence"])
            return found

    def shared_runs(self) -> dict[str, list[str]]:
        """Returns the runs that several methods of one experiment have, being one subject, with the methods."""
        query = (
            "SELECT (SELECT MIN(c.position) FROM subjects c WHERE c.sha256 = e.checkpoint_sha256) AS place, "
            "GROUP_CONCAT(DISTINCT m.method) FROM memberships m JOIN evaluations e ON e.id = m.evaluation "
            "WHERE m.method <> '' GROUP BY m.experiment, m.evaluation "
            "HAVING COUNT(DISTINCT m.method) > 1 AND place IS NOT NULL"
        )
        with store_errors(self.store), intact_rows(self.store):
            names = self._names_of_runs()
            return {names[place]: sorted(methods.split(",")) for place, methods in self._db.execute(query).fetchall()}

    def checkpoint_finished(self, position: int) -> CheckpointFinished:
        """Returns the event of a finished position, as the sinks get it."""
        with store_errors(self.store), intact_rows(self.store):
            return self._completion(position, self.sightings()[position])

    def _evaluation(self, evaluation: int, subject: Subject) -> EvaluationFinished:
        query = f"SELECT {_EVENT_COLUMNS} FROM evaluations WHERE id = ?"
        return _finished(subject, self._db.execute(query, (evaluation,)).fetchone())

    def _completion(self, position: int, subject: Subject) -> CheckpointFinished:
        from lobench.hookspecs import CheckpointFinished

        rows = self._db.execute(
            f"SELECT {_EVENT_COLUMNS} FROM completions JOIN evaluations ON id = evaluation WHERE position = ? "
            "ORDER BY case_identity, seed_start",
            (position,),
        ).fetchall()
        return CheckpointFinished(subject=subject, evaluations=tuple(_finished(subject, row) for row in rows))

    def last_sequence(self) -> int:
        with store_errors(self.store):
            return int(self._db.execute("SELECT COALESCE(MAX(sequence), 0) FROM deliveries").fetchone()[0])

    def num_deliveries_after(self, sequence: int) -> int:
        """Counts what comes after a place; places have gaps, so that a difference of two says less."""
        with store_errors(self.store):
            query = "SELECT COUNT(*) FROM deliveries WHERE sequence > ?"
            return int(self._db.execute(query, (sequence,)).fetchone()[0])

    def cursor(self, sink: str) -> int:
        """Returns how far a sink has taken the deliveries; 0 for a new one."""
        with store_errors(self.store):
            row = self._db.execute("SELECT sequence FROM cursors WHERE sink = ?", (sink,)).fetchone()
        return int(row[0]) if row is not None else 0

    # Reading.

    def evaluations(
        self,
        sha256: str = "",
        outcome: Outcome | None = None,
        *,
        all_codes: bool = False,
        codes: Mapping[str, str] | None = None,
        summarized: bool = False,
    ) -> Iterator[EvaluationRow]:
        """Yields every evaluation, or those of one subject, or with one outcome, in the order of their recording.

        Args:
          all_codes: Also those of code that the user has edited since; see `Codes.outdated`.
          codes: Today's code by `CaseInfo.key`, if the caller knows it: of these cases only the results count that were
            made by it.
          summarized: Without their payloads: a row has the summary of its curves, and reads them if it is asked to.
        """
        todays = codes or {}
        columns = {"checkpoint_sha256": sha256, "outcome": outcome or ""}
        asked = {name: value for name, value in columns.items() if value}
        where = " AND ".join(["1", *(f"{name} = ?" for name in asked)])
        with store_errors(self.store), intact_rows(self.store):
            known = known_programs(self._db)
            old: dict[int, Program] | None = None
            sightings = sightings_of_evaluations(self._db, self.sightings(sha256))
            superseded = self.superseded()
            of_those = f"evaluation IN (SELECT id FROM evaluations WHERE {where})"
            labelled = self._db.execute(f"SELECT {_LABEL_COLUMNS} FROM labels WHERE {of_those}", tuple(asked.values()))
            labels = {row[0]: tuple(map(str, row[1:])) for row in labelled}
            cases = dict[str, CaseInfo]()  # thousands of rows have a few
            wanted, joined, summaries = EVALUATION_COLUMNS, "", None
            if summarized:
                summaries = StoredSummaries(self.store, self._db)
                payload_column, added = summaries.columns
                wanted, joined = f"{wanted.replace('payload', payload_column)}, {added}", summaries.join
            query = f"SELECT id, {wanted} FROM evaluations {joined} WHERE {where} ORDER BY id"
            outdated = frozenset[int]() if all_codes or codes is not None else self.outdated(sha256)
            for number, *row in self._db.execute(query, tuple(asked.values())):
                if number in outdated or not self.counts(row[12], todays.get(f"{row[2]}:{row[1]}", "")):
                    continue
                case, payload, at_hand = cases.get(row[6]), row[9], None
                if case is None:
                    case = cases[row[6]] = self.placed(case_of(row[6]))
                if summaries is not None and row[14] is not None:
                    at_hand = summaries.summary(number, row[11], case, row[13], row[14])
                named = None
                if row[5].isdecimal() and at_hand is not None:  # of before there were keys
                    named = program_of_old(at_hand.origin, row[5])
                elif row[5].isdecimal() and payload is not None:
                    named = of_row(row[5], payload)
                elif row[5].isdecimal():  # only a row without curves asks for a look at all others
                    old = old_programs(self._db) if old is None else old
                    named = old.get(number)
                program = named or known.get(row[5]) or Program(version=row[5])
                subjects = sightings(number, row[0])
                experiment, trial, session = labels.get(number, ("", "", ""))
                yield EvaluationRow(
                    key=EvaluationKey(
                        checkpoint_sha256=row[0],
                        optimizer_hash=row[1],
                        case_identity=row[2],
                        seed_block=_block(row[3], row[4]),
                        program_version=row[5] if named is None else named.key,
                        code=row[12],
                    ),
                    program=program,
                    case=case,
                    outcome=Outcome(row[7]),
                    message=row[8],
                    payload=payload,
                    at_hand=at_hand,
                    subjects=subjects,
                    experiment=experiment,
                    trial=trial,
                    session=session,
                    recorded_at=row[11],
                    superseded=tuple(one for one in subjects if one in superseded) if superseded else (),
                    code=self.canonical_code(row[12]),
                    id=number,
                )

    def events(self, kind: str = "") -> list[tuple[str, dict[str, Any]]]:
        with store_errors(self.store), intact_rows(self.store):
            rows = self._db.execute("SELECT kind, detail FROM events ORDER BY id").fetchall()
            return [(found, json.loads(detail)) for found, detail in rows if not kind or found == kind]


@functools.lru_cache(maxsize=1024)  # every subject has the same ones
def case_json(case: CaseInfo) -> str:
    """Returns a case as a row has it, without what is a default: `case_of` adds that, as it does to older rows."""
    named = ((one, getattr(case, one.name)) for one in dataclasses.fields(case))
    return json.dumps({one.name: value for one, value in named if value != one.default and one.name != "places"})


@functools.lru_cache(maxsize=1024)  # thousands of rows have a few
def _block(start: int, size: int) -> SeedBlock:
    return SeedBlock(start=start, size=size)


@functools.lru_cache(maxsize=1024)
def case_of(text: str) -> CaseInfo:
    """Returns the case of a row, whichever version wrote it."""
    return CaseInfo(**json.loads(text))


def _finished(subject: Subject, row: tuple[Any, ...]) -> EvaluationFinished:
    from lobench.hookspecs import EvaluationFinished

    text, start, size, outcome, message, payload = row
    return EvaluationFinished(
        subject=subject,
        case=case_of(text),
        seed_block=SeedBlock(start=start, size=size),
        outcome=Outcome(outcome),
        curves=curves_of(payload) if payload is not None else None,
        message=message,
    )
