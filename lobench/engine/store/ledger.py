"""The ledger: every sighting, outcome and delivery in one SQLite file, durable before it is acknowledged.

Only the chief writes; others may read at the same time. It holds everything that a restart needs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.errors import StoreError
from lobench.core.history import EvaluationId
from lobench.core.labels import NO_LABELS, Labels
from lobench.core.program import Program
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.retries import is_transient, retried_briefly
from lobench.engine.store.bundle import has_ledger, ledger_database
from lobench.engine.store.codes import CASE_CONDITION
from lobench.engine.store.database import StoreLock, transaction
from lobench.engine.store.described import SuiteDescriptions
from lobench.engine.store.evaluation_row import EvaluationRow
from lobench.engine.store.experiments import Experiments, add_labelled_membership
from lobench.engine.store.network import LocalCopy, OnProblem, is_on_network_disk
from lobench.engine.store.plans import Plans
from lobench.engine.store.programs import register_program
from lobench.engine.store.reader import EVALUATION_COLUMNS, LedgerReader, case_to_json
from lobench.engine.store.restarts import Restart, Restarts
from lobench.engine.store.schema import open_ledger_database, store_errors, was_used
from lobench.engine.store.subject_rows import SIGHTING_COLUMNS, subject_columns
from lobench.engine.store.summaries import Summaries

__all__ = ["EvaluationRow", "Ledger"]

# Columns that identify an evaluation, in the order of the values in `identity`.
_IDENTITY = (
    *("checkpoint_sha256", "optimizer_hash", "case_identity"),
    *("seed_start", "seed_count", "program_version", "code"),
)


class Ledger(Experiments, SuiteDescriptions, Plans, Summaries, LedgerReader):
    """Ledger of a store: the records of the chief. Open it with `Ledger.open`."""

    def __init__(
        self,
        store: Path,
        connection: sqlite3.Connection,
        lock: StoreLock | None = None,
        local_copy: LocalCopy | None = None,
    ) -> None:
        super().__init__(store, connection)
        self._lock, self._local_copy = lock, local_copy
        self._file = local_copy.database if local_copy is not None else ledger_database(store)
        self._inode = retried_briefly(self._file.stat).st_ino
        self._transaction_depth = 0

    @classmethod
    def open(
        cls, store: Path, *, name: str = "", read_only: bool = False, on_problem: OnProblem = lambda problem: None
    ) -> Ledger:
        """Opens the ledger of a store folder.

        Args:
          store: Folder of the store. Created if it does not exist, unless `read_only`.
          name: Name of the writer, shown to processes that find the store locked.
          read_only: Whether the ledger is only read, possibly while a writer has it open.
          on_problem: Called with a message if records do not reach a store on a network file system (from another
            thread), or if a store that was used before has lost its ledger.
        Raises:
          StoreBusy: Another chief writes the store. The message names it.
          StoreError: The disk is full, or the store is read-only, damaged or of another schema.
        """
        if read_only:
            return cls(store, open_ledger_database(store, read_only=True))
        if store.is_file() and has_ledger(store):
            raise StoreError(
                "a bundle cannot be changed",
                where=str(store),
                next_step=f"`lobench merge {store} --output STORE` copies its content into a store",
            )
        lock = StoreLock(store, name)
        try:
            was_emptied = _is_emptied(store)
            local_copy = LocalCopy(store, on_problem) if is_on_network_disk(store) else None
            database = local_copy.database if local_copy is not None else None
            ledger = cls(store, open_ledger_database(store, read_only=False, database=database), lock, local_copy)
            if local_copy is not None:
                local_copy.start()
            ledger.compute_summaries()
            if was_emptied and not ledger.sightings():
                on_problem(f"{store / 'ledger.sqlite'} was empty, though the store was used before: it starts empty")
            return ledger
        except BaseException:
            lock.release()
            raise

    def open_reader(self) -> Ledger:
        """Returns a ledger for reading in another thread, which sees every commit of this one."""
        return Ledger(self.store, open_ledger_database(self.store, read_only=True, database=self._file, is_live=True))

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the ledger. On a network file system, it first waits until the store has all records.

        Raises:
          StoreError: The store cannot be written. The message names the file that has the records.
        """
        self._db.close()
        try:
            if self._local_copy is not None:
                self._local_copy.close()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def publish(self) -> None:
        """Waits until all records are in the store's own file. On a local file system they always are.

        Raises:
          StoreError: The store cannot be written.
        """
        if self._local_copy is not None:
            self._local_copy.publish()

    def num_transactions(self) -> int:
        """Returns the number of transactions so far, to be passed to `is_published`; 0 on a local file system."""
        return self._local_copy.num_changes if self._local_copy is not None else 0

    def is_published(self, num_changes: int) -> bool:
        return self._local_copy is None or self._local_copy.num_published >= num_changes

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits the body's writes together. Nested transactions join the outer one."""
        if self._transaction_depth:
            yield
            return
        self._refuse_if_removed()
        try:
            with store_errors(self.store), transaction(self._db):
                self._transaction_depth += 1
                try:
                    yield
                finally:
                    self._transaction_depth -= 1
        except BaseException:
            self.reset_codes()  # the ids of evaluations that are rolled back are used again, as are positions
            self.reset_sightings()
            raise
        if self._local_copy is not None:
            self._local_copy.count_change()

    def _refuse_if_removed(self) -> None:
        """Raises StoreError if the ledger's file was removed or replaced. Further writes to it would be lost."""
        try:
            is_present = self._file.stat().st_ino == self._inode
        except OSError as error:
            is_present = is_transient(error)  # whether it is there is unknown while the disk fails
        if not is_present:
            raise StoreError(
                "the store was removed or replaced while it was in use",
                where=str(self.store),
                next_step="start again: its evaluations are repeated",
            )

    @property
    def connection(self) -> sqlite3.Connection:
        """Connection to the database, for merges and imports. Write through it within a `transaction` only."""
        return self._db

    # Writing, for the chief.

    def record_sighting(
        self,
        subject: Subject,
        fingerprint: str = "",
        *,
        restarts_from: int | None = None,
        has_returned: bool = False,
        on_restart: Callable[[Restart], None] | None = None,
    ) -> int:
        """Records a sighting, and returns its position: 0, 1, 2, ... in order of first sight.

        Args:
          subject: Subject that was seen.
          fingerprint: Fingerprint of the files it was read from, so that a restart need not read them again.
          restarts_from: Outer step from which earlier sightings are superseded, if a restart is known. None: restarts
            are inferred.
          has_returned: Whether the run that superseded the subject has written it again.
          on_restart: Called if the sighting is the first of a restart in place: other content at the path of an earlier
            sighting, at its outer step or a lower one. See `lobench.engine.store.restarts`. None: restarts are not
            recorded.
        """
        values = subject_columns(subject)
        where = " AND ".join(f"{column} = :{column}" for column in SIGHTING_COLUMNS)
        with self.transaction():
            row = self._db.execute(f"SELECT position FROM subjects WHERE {where}", values).fetchone()
            if row is None:
                row = self._db.execute("SELECT COALESCE(MAX(position) + 1, 0) FROM subjects").fetchone()
                values |= {"position": row[0], "seen_at": time.time()}
                self._db.execute(
                    f"INSERT INTO subjects ({', '.join(values)}) VALUES ({', '.join(map(':{}'.format, values))})",
                    values,
                )
            elif values["label"]:
                self._db.execute(f"UPDATE subjects SET label = :label WHERE {where}", values)
            self.record_fingerprint(subject.uri, fingerprint)
            position = int(row[0])
            if subject.has_theta:
                self.current_restarts.add_sighting(position, subject)
                restart = self.current_restarts.restart_shown_by(
                    position, subject, from_step=restarts_from, has_returned=has_returned
                )
                if restart is not None and on_restart is not None:
                    self.record_event(restart.kind, **restart.detail)
                    self.current_restarts.add_event(restart.kind, restart.detail)
                    on_restart(restart)
            return position

    @functools.cached_property
    def current_restarts(self) -> Restarts:
        """Sightings and restarts recorded so far. Cached, since this process is the only writer."""
        return Restarts.of(self.recorded_sightings(), self.restart_events())

    def has_sighting(self, sha256: str) -> bool:
        """Returns whether the store has a sighting of a theta with this hash."""
        return bool(self._fetch_rows("SELECT 1 FROM subjects WHERE sha256 = ? LIMIT 1", (sha256,)))

    def record_fingerprint(self, uri: str, fingerprint: str) -> None:
        """Records the fingerprint of a location's files when they were last read. "" is not recorded."""
        if not fingerprint:
            return
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO fingerprints VALUES (?, ?)", (uri, fingerprint))

    def record_admission(self, position: int, admission: Literal["admitted", "skipped"]) -> None:
        with self.transaction():
            self._db.execute("UPDATE subjects SET admission = ? WHERE position = ?", (admission, position))
            if admission == "skipped":
                self.record_event("skipped", position=position)

    def record_evaluation(
        self,
        key: EvaluationKey,
        case: CaseInfo,
        outcome: Outcome,
        *,
        curves: Curves | None,
        message: str = "",
        labels: Labels = NO_LABELS,
        positions: Collection[int] | None = None,
        replace: bool = False,
        program: Program | None = None,
        expected: Program | None = None,
    ) -> bool:
        """Records an outcome and its deliveries, in one transaction.

        Args:
          key: Key of the evaluation.
          case: Case that was evaluated.
          outcome: Outcome to record.
          curves: Curves of the evaluation. None: the outcome has none.
          message: Error message, if any.
          labels: Labels given to `lobench watch`.
          positions: Positions of the sightings for which it was computed. None: unknown; then a sighting of a theta
            that was seen with several bindings receives the evaluation when it is finished.
          replace: Whether an outcome that the evaluation already has is replaced.
          program: Program that computed it; the key only has its hash.
          expected: Program that was expected to compute it.
        Returns:
          Whether the outcome was recorded. False if the evaluation already has one and `replace` is False.
        """
        seconds = curves.compile_seconds + curves.wall_seconds if curves is not None else 0.0
        payload = curves.to_payload() if curves is not None else None
        block = key.seed_block
        identity = (
            *(key.checkpoint_sha256, key.optimizer_hash, key.case_identity),
            *(block.start, block.size, key.program_version, key.code),
        )
        values = (
            *identity[:-1],
            case_to_json(case),
            str(outcome),
            message.encode("utf-8", "backslashreplace").decode(),  # may contain a file name that is not valid UTF-8
            payload,
            seconds,
            time.time(),
            key.code,
        )
        conflict_clause = "DO NOTHING"
        if replace:
            columns = ("case_json", "outcome", "message", "payload", "seconds", "recorded_at")
            conflict_clause = "DO UPDATE SET " + ", ".join(f"{column} = excluded.{column}" for column in columns)
        with self.transaction():
            if replace and key.code:  # results of unknown code are replaced like those of the current code
                where = " AND ".join(f"{column} = ?" for column in _IDENTITY[:-1])
                query = f"UPDATE OR IGNORE evaluations SET code = ? WHERE {where} AND code = ''"
                if self._db.execute(query, (key.code, *identity[:-1])).rowcount:
                    self.reset_codes()
            cursor = self._db.execute(
                f"INSERT INTO evaluations ({EVALUATION_COLUMNS}) VALUES ({', '.join('?' * len(values))}) "
                "ON CONFLICT (checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, "
                f"program_version, code) {conflict_clause}",
                values,
            )
            if cursor.rowcount == 0:
                return False
            if curves is not None:
                where = " AND ".join(f"{column} = ?" for column in _IDENTITY)
                row = self._db.execute(f"SELECT id FROM evaluations WHERE {where}", identity).fetchone()
                self.record_summary(row[0], curves, case)
            if program is not None:
                register_program(self._db, program, expected)
            if labels.experiment or labels.trial or labels.session:
                add_labelled_membership(self._db, identity, labels)
            if positions is None or positions:
                self._add_deliveries(identity, positions)
        return True

    def _add_deliveries(self, identity: tuple[object, ...], positions: Collection[int] | None) -> None:
        """Adds deliveries of an evaluation for its subject's sightings that are admitted and unfinished."""
        condition = (
            "c.position IN (SELECT value FROM json_each(?))"
            if positions is not None
            else "(SELECT COUNT(DISTINCT o.variant) FROM subjects o WHERE o.sha256 = c.sha256) = 1"
        )
        self._db.execute(
            "INSERT OR IGNORE INTO deliveries (position, evaluation) SELECT c.position, e.id "
            "FROM evaluations e JOIN subjects c ON c.sha256 = e.checkpoint_sha256 WHERE e.checkpoint_sha256 = ? "
            "AND e.optimizer_hash = ? AND e.case_identity = ? AND e.seed_start = ? AND e.seed_count = ? "
            f"AND e.program_version = ? AND e.code = ? AND c.admission = 'admitted' AND c.finished = 0 AND {condition}",
            (*identity, *(() if positions is None else (json.dumps(sorted(positions)),))),
        )

    def record_incident(self, kind: Literal["death", "split"], evaluation: EvaluationId) -> None:
        """Records that a worker died during an evaluation, or that its block was split for lack of memory.

        A restarted chief reads these incidents.
        """
        block = evaluation.block
        with self.transaction():
            self._db.execute(
                "INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?)",
                (kind, evaluation.sha256, evaluation.case_key, block.start, block.size, time.time()),
            )

    def reopen_checkpoint(self, position: int) -> None:
        """Records that a finished or skipped position is in progress again. Its evaluations are kept."""
        with self.transaction():
            self._db.execute("UPDATE subjects SET admission = 'admitted', finished = 0 WHERE position = ?", (position,))
            query = "SELECT sequence FROM deliveries WHERE evaluation IS NULL AND position = ?"
            for (sequence,) in self._db.execute(query, (position,)).fetchall():
                self.record_event("reopened", position=position, sequence=sequence)
            self._db.execute("DELETE FROM completions WHERE position = ?", (position,))
            self._db.execute("DELETE FROM deliveries WHERE evaluation IS NULL AND position = ?", (position,))
            detail = json.dumps({"position": position})
            self._db.execute("DELETE FROM events WHERE kind = 'skipped' AND detail = ?", (detail,))

    def forget_evaluations(
        self,
        evaluations: Collection[EvaluationId],
        *,
        programs: Collection[str],
        codes: Mapping[str, str] | None = None,
    ) -> None:
        """Drops outcomes that another attempt may change (`--retry-errors`), and the counts of workers lost on them.

        Args:
          evaluations: Evaluations to drop.
          programs: Keys of the programs whose results are dropped.
          codes: Current code by `CaseInfo.key`. Results of other code are kept. None: unknown, and all are dropped.
        """
        current_codes = codes or {}
        conditions = "checkpoint_sha256 = ? AND {} = ? AND seed_start = ? AND seed_count = ?"
        where = conditions.format("case_identity || ':' || optimizer_hash")
        placeholders = ", ".join("?" * len(programs))
        with self.transaction():
            for evaluation in evaluations:
                values = (evaluation.sha256, evaluation.case_key, evaluation.block.start, evaluation.block.size)
                rows = self._db.execute(
                    f"SELECT id, code FROM evaluations WHERE {where} AND program_version IN ({placeholders})",
                    (*values, *programs),
                ).fetchall()
                evaluation_ids = [
                    evaluation_id
                    for evaluation_id, code in rows
                    if self.counts_as_current(code, current_codes.get(evaluation.case_key, ""))
                ]
                for row in ((evaluation_id,) for evaluation_id in evaluation_ids):
                    self._db.execute("DELETE FROM deliveries WHERE evaluation = ?", row)
                    self._db.execute("DELETE FROM completions WHERE evaluation = ?", row)
                    self._db.execute("DELETE FROM memberships WHERE evaluation = ?", row)
                    self._db.execute("DELETE FROM evaluations WHERE id = ?", row)
                    self.reset_codes()
                where_case = conditions.format("case_key")
                self._db.execute(f"DELETE FROM incidents WHERE kind = 'death' AND {where_case}", values)

    def finish_checkpoint(
        self,
        position: int,
        *,
        programs: Collection[str],
        case_keys: Collection[str],
        codes: Mapping[str, str] | None = None,
        blocks: Mapping[str, Sequence[SeedBlock]] | None = None,
    ) -> None:
        """Records that a position is complete, with deliveries of its evaluations that have none yet.

        Args:
          position: Position to finish.
          programs: Keys of the programs whose results count. Of several results, the latest counts.
          case_keys: `CaseInfo.key` of the cases that count. The store may have results of the same theta on other cases
            or with other optimizers.
          codes: Current code by `CaseInfo.key`. Results of any code count for cases without an entry.
          blocks: Planned seed blocks by case key. If the theta was seen with several bindings, which may differ in
            their seeds only, evaluations outside these blocks do not count. None: every seed counts.
        """
        ranges = [
            [key, min(block.start for block in case_blocks), max(block.start + block.size for block in case_blocks)]
            for key, case_blocks in (blocks or {}).items()
            if case_blocks
        ]
        with self.transaction():
            finished_row = self._db.execute("SELECT finished FROM subjects WHERE position = ?", (position,)).fetchone()
            if finished_row is None or finished_row[0]:
                return
            self._db.execute(
                "INSERT OR IGNORE INTO completions SELECT c.position, MAX(e.id) FROM subjects c "
                "JOIN evaluations e ON e.checkpoint_sha256 = c.sha256 WHERE c.position = ? "
                "AND e.program_version IN (SELECT value FROM json_each(?)) "
                f"AND {CASE_CONDITION} "
                "AND (? OR (SELECT COUNT(DISTINCT o.variant) FROM subjects o WHERE o.sha256 = c.sha256) = 1 "
                "OR EXISTS (SELECT 1 FROM json_each(?) p "
                "WHERE json_extract(p.value, '$[0]') = e.case_identity || ':' || e.optimizer_hash "
                "AND json_extract(p.value, '$[1]') <= e.seed_start "
                "AND json_extract(p.value, '$[2]') >= e.seed_start + e.seed_count)) "
                "GROUP BY e.case_identity, e.optimizer_hash, e.seed_start, e.seed_count",
                (
                    position,
                    json.dumps(sorted(programs)),
                    self.case_filter(case_keys, codes or {}),
                    blocks is None,
                    json.dumps(ranges),
                ),
            )
            self._db.execute(
                "INSERT OR IGNORE INTO deliveries (position, evaluation) SELECT d.position, e.id FROM completions d "
                "JOIN evaluations e ON e.id = d.evaluation WHERE d.position = ? ORDER BY e.case_identity, e.seed_start",
                (position,),
            )
            self._db.execute("INSERT INTO deliveries (position, evaluation) VALUES (?, NULL)", (position,))
            self._db.execute("UPDATE subjects SET finished = 1 WHERE position = ?", (position,))

    def record_event(self, kind: str, **detail: Any) -> None:
        with self.transaction():
            text = json.dumps(detail, sort_keys=True)
            self._db.execute("INSERT INTO events (kind, detail, at) VALUES (?, ?, ?)", (kind, text, time.time()))

    def advance_cursor(self, sink: str, sequence: int) -> None:
        with self.transaction():
            self._db.execute(
                "INSERT INTO cursors VALUES (?, ?) ON CONFLICT (sink) DO UPDATE SET "
                "sequence = MAX(sequence, excluded.sequence)",
                (sink, sequence),
            )


def _is_emptied(store: Path) -> bool:
    """Returns whether the ledger's file is empty although the store was used, as after a full disk or a bad copy."""
    file = store / "ledger.sqlite"
    return file.is_file() and file.stat().st_size == 0 and was_used(store)
