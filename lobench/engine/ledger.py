"""The ledger: every sighting, outcome and delivery in one SQLite file, durable before it is acknowledged.

Only the chief writes; readers may look on meanwhile. What a restart needs is all here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.core.schedule import EvaluationId, History
from lobench.engine.ledger_schema import StoreLock, connect, store_errors
from lobench.hookspecs import CheckpointFinished, Delivery, EvaluationFinished

__all__ = ["EvaluationRow", "Ledger"]

_EVALUATION = (
    "checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, program_version, case_json, outcome, "
    "message, payload, seconds, experiment, trial, session, recorded_at"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """One evaluation as it is stored, with every sighting of its checkpoint."""

    key: EvaluationKey
    case: CaseInfo
    outcome: Outcome
    message: str
    curves: Curves | None
    checkpoints: tuple[Checkpoint, ...]
    experiment: str
    trial: str
    session: str
    recorded_at: float


class Ledger:
    """Use `Ledger.open`."""

    def __init__(self, store: Path, connection: sqlite3.Connection, lock: StoreLock | None) -> None:
        self.store, self._db, self._lock = store, connection, lock
        self._depth = 0

    @classmethod
    def open(cls, store: Path, *, name: str = "", read_only: bool = False) -> Ledger:
        """Opens the ledger of a store folder.

        Args:
          store: The folder; made where there is none, unless `read_only`.
          name: Who opens it, for those whom the lock keeps out.
          read_only: Look on, beside a writer or without one.
        Raises:
          StoreBusy: another chief writes it; the message names it.
          StoreError: full, read-only, corrupt, or written by a newer lobench.
        """
        lock = None if read_only else StoreLock(store, name)
        try:
            return cls(store, connect(store, read_only=read_only), lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits the body's writes together, once; nested ones join the outer one."""
        if self._depth:
            yield
            return
        with store_errors(self.store):
            self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            else:
                self._db.execute("COMMIT")
            finally:
                self._depth -= 1

    # What the chief writes.

    def record_sighting(self, checkpoint: Checkpoint) -> int:
        """Returns the position of a sighting, 0, 1, 2, ... in order of first sight."""
        values = (checkpoint.uri, checkpoint.sha256, checkpoint.generation, checkpoint.outer_step)
        where = "uri = ? AND sha256 = ? AND generation = ? AND outer_step = ?"
        with self.transaction():
            found = self._db.execute(f"SELECT position FROM checkpoints WHERE {where}", values).fetchone()
            if found is not None:
                return int(found[0])
            (position,) = self._db.execute("SELECT COALESCE(MAX(position) + 1, 0) FROM checkpoints").fetchone()
            self._db.execute(
                "INSERT INTO checkpoints (position, uri, sha256, generation, outer_step, run, seen_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (position, *values, checkpoint.run, time.time()),
            )
            return int(position)

    def set_admission(self, position: int, admission: Literal["admitted", "skipped"]) -> None:
        with self.transaction():
            self._db.execute("UPDATE checkpoints SET admission = ? WHERE position = ?", (admission, position))
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
        experiment: str = "",
        trial: str = "",
        session: str = "",
        replace: bool = False,
    ) -> bool:
        """Records an outcome and what is to be delivered of it, in one transaction.

        Returns:
          False where the evaluation has an outcome already, which stays unless `replace`.
        """
        seconds = curves.compile_seconds + curves.wall_seconds if curves is not None else 0.0
        payload = curves.to_payload() if curves is not None else None
        block = key.seed_block
        identity = (key.checkpoint_sha256, key.optimizer_hash, key.case_identity, block.start, block.size)
        values = (
            *identity,
            key.program_version,
            json.dumps(dataclasses.asdict(case)),
            str(outcome),
            message,
            payload,
            seconds,
            experiment,
            trial,
            session,
            time.time(),
        )
        conflict = "DO NOTHING"
        if replace:
            columns = ("case_json", "outcome", "message", "payload", "seconds", "recorded_at")
            conflict = "DO UPDATE SET " + ", ".join(f"{column} = excluded.{column}" for column in columns)
        with self.transaction():
            cursor = self._db.execute(
                f"INSERT INTO evaluations ({_EVALUATION}) VALUES ({', '.join('?' * len(values))}) "
                "ON CONFLICT (checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, "
                f"program_version) {conflict}",
                values,
            )
            if cursor.rowcount == 0:
                return False
            self._db.execute(
                "INSERT OR IGNORE INTO deliveries (position, evaluation) SELECT c.position, e.id "
                "FROM evaluations e JOIN checkpoints c ON c.sha256 = e.checkpoint_sha256 AND c.admission = 'admitted' "
                "AND c.finished = 0 WHERE e.checkpoint_sha256 = ? AND e.optimizer_hash = ? AND e.case_identity = ? "
                "AND e.seed_start = ? AND e.seed_count = ? AND e.program_version = ?",
                (*identity, key.program_version),
            )
        return True

    def record_incident(self, kind: Literal["death", "split"], evaluation: EvaluationId) -> None:
        """Records a lost worker, or a block halved for want of memory, so that a restart knows."""
        block = evaluation.block
        with self.transaction():
            self._db.execute(
                "INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?)",
                (kind, evaluation.sha256, evaluation.case_key, block.start, block.size, time.time()),
            )

    def finish_checkpoint(self, position: int) -> None:
        """Records that a position is complete, and whatever of it was not announced yet."""
        with self.transaction():
            done = self._db.execute("SELECT finished FROM checkpoints WHERE position = ?", (position,)).fetchone()
            if done is None or done[0]:
                return
            self._db.execute(
                "INSERT OR IGNORE INTO deliveries (position, evaluation) SELECT c.position, e.id FROM checkpoints c "
                "JOIN evaluations e ON e.checkpoint_sha256 = c.sha256 WHERE c.position = ? "
                "ORDER BY e.case_identity, e.seed_start",
                (position,),
            )
            self._db.execute("INSERT INTO deliveries (position, evaluation) VALUES (?, NULL)", (position,))
            self._db.execute("UPDATE checkpoints SET finished = 1 WHERE position = ?", (position,))

    def record_event(self, kind: str, **detail: Any) -> None:
        """Records what is worth remembering and is no result: skipped, expired, unreadable, started."""
        with self.transaction():
            text = json.dumps(detail, sort_keys=True)
            self._db.execute("INSERT INTO events (kind, detail, at) VALUES (?, ?, ?)", (kind, text, time.time()))

    def forget_errors(self) -> int:
        """Drops outcomes that another try may change (`--retry-errors`); returns how many."""
        outcomes = (Outcome.ERROR, Outcome.TIMEOUT, Outcome.OOM, Outcome.POISONED)
        marks = ", ".join("?" * len(outcomes))
        with self.transaction():
            self._db.execute(
                "UPDATE checkpoints SET finished = 0 WHERE sha256 IN "
                f"(SELECT checkpoint_sha256 FROM evaluations WHERE outcome IN ({marks}))",
                outcomes,
            )
            self._db.execute(
                "DELETE FROM deliveries WHERE evaluation IS NULL AND position IN "
                "(SELECT position FROM checkpoints WHERE finished = 0)"
            )
            self._db.execute(
                f"DELETE FROM deliveries WHERE evaluation IN (SELECT id FROM evaluations WHERE outcome IN ({marks}))",
                outcomes,
            )
            self._db.execute("DELETE FROM incidents WHERE kind = 'death'")
            return self._db.execute(f"DELETE FROM evaluations WHERE outcome IN ({marks})", outcomes).rowcount

    # What a restart reads.

    def sightings(self) -> dict[int, Checkpoint]:
        with store_errors(self.store):
            rows = self._db.execute(
                "SELECT position, uri, sha256, outer_step, generation, run FROM checkpoints ORDER BY position"
            ).fetchall()
        return {row[0]: _checkpoint(row[1:]) for row in rows}

    def history(self, program_version: str) -> History:
        """Returns what the scheduler must know to go on."""
        with store_errors(self.store):
            recorded = self._db.execute(
                "SELECT checkpoint_sha256, case_identity || ':' || optimizer_hash, seed_start, seed_count, seconds "
                "FROM evaluations WHERE program_version = ?",
                (program_version,),
            ).fetchall()
            incidents = self._db.execute(
                "SELECT kind, checkpoint_sha256, case_key, seed_start, seed_count FROM incidents"
            ).fetchall()
            positions = self._db.execute("SELECT position, admission, finished FROM checkpoints").fetchall()
        seconds: dict[str, list[float]] = {}
        deaths: dict[EvaluationId, int] = {}
        splits = set()
        for row in recorded:
            seconds.setdefault(row[1], []).append(row[4])
        for kind, sha256, case_key, start, size in incidents:
            evaluation = EvaluationId(sha256, case_key, SeedBlock(start=start, size=size))
            if kind == "split":
                splits.add(evaluation)
            else:
                deaths[evaluation] = deaths.get(evaluation, 0) + 1
        return History(
            recorded={EvaluationId(r[0], r[1], SeedBlock(start=r[2], size=r[3])) for r in recorded},
            splits=splits,
            deaths=deaths,
            admissions={position: admission for position, admission, _ in positions if admission != "waiting"},
            finished={position for position, _, finished in positions if finished},
            durations={key: statistics.median(values) for key, values in seconds.items()},
        )

    # Deliveries.

    def deliveries_after(self, sequence: int, limit: int = 256) -> list[Delivery]:
        """Returns what comes after a place in the ledger's order, at most `limit`."""
        with store_errors(self.store):
            rows = self._db.execute(
                "SELECT d.sequence, d.evaluation, c.uri, c.sha256, c.outer_step, c.generation, c.run FROM deliveries d "
                "JOIN checkpoints c ON c.position = d.position WHERE d.sequence > ? ORDER BY d.sequence LIMIT ?",
                (sequence, limit),
            ).fetchall()
            return [Delivery(sequence=row[0], event=self._event(row[1], _checkpoint(row[2:]))) for row in rows]

    def checkpoint_finished(self, position: int) -> CheckpointFinished:
        """Returns the event of a finished position, as the sinks get it."""
        event = self._event(None, self.sightings()[position])
        assert isinstance(event, CheckpointFinished)
        return event

    def _event(self, evaluation: int | None, checkpoint: Checkpoint) -> EvaluationFinished | CheckpointFinished:
        columns = "case_json, seed_start, seed_count, outcome, message, payload"
        if evaluation is not None:
            row = self._db.execute(f"SELECT {columns} FROM evaluations WHERE id = ?", (evaluation,)).fetchone()
            return _finished(checkpoint, row)
        rows = self._db.execute(
            f"SELECT {columns} FROM evaluations WHERE checkpoint_sha256 = ? ORDER BY case_identity, seed_start",
            (checkpoint.sha256,),
        ).fetchall()
        return CheckpointFinished(checkpoint=checkpoint, evaluations=tuple(_finished(checkpoint, row) for row in rows))

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

    def advance(self, sink: str, sequence: int) -> None:
        with self.transaction():
            self._db.execute(
                "INSERT INTO cursors VALUES (?, ?) ON CONFLICT (sink) DO UPDATE SET "
                "sequence = MAX(sequence, excluded.sequence)",
                (sink, sequence),
            )

    # Reading.

    def evaluations(self) -> Iterator[EvaluationRow]:
        """Yields every evaluation in the order of its recording."""
        sightings: dict[str, list[Checkpoint]] = {}
        for checkpoint in self.sightings().values():
            sightings.setdefault(checkpoint.sha256, []).append(checkpoint)
        with store_errors(self.store):
            for row in self._db.execute(f"SELECT {_EVALUATION} FROM evaluations ORDER BY id"):
                yield EvaluationRow(
                    key=EvaluationKey(
                        checkpoint_sha256=row[0],
                        optimizer_hash=row[1],
                        case_identity=row[2],
                        seed_block=SeedBlock(start=row[3], size=row[4]),
                        program_version=row[5],
                    ),
                    case=CaseInfo(**json.loads(row[6])),
                    outcome=Outcome(row[7]),
                    message=row[8],
                    curves=Curves.from_payload(row[9]) if row[9] is not None else None,
                    checkpoints=tuple(sightings.get(row[0], ())),
                    experiment=row[11],
                    trial=row[12],
                    session=row[13],
                    recorded_at=row[14],
                )

    def events(self, kind: str = "") -> list[tuple[str, dict[str, Any]]]:
        with store_errors(self.store):
            rows = self._db.execute("SELECT kind, detail FROM events ORDER BY id").fetchall()
        return [(found, json.loads(detail)) for found, detail in rows if not kind or found == kind]


def _checkpoint(row: tuple[Any, ...]) -> Checkpoint:
    uri, sha256, outer_step, generation, run = row
    return Checkpoint(uri=uri, sha256=sha256, outer_step=outer_step, generation=generation, run=run)


def _finished(checkpoint: Checkpoint, row: tuple[Any, ...]) -> EvaluationFinished:
    case_json, start, size, outcome, message, payload = row
    return EvaluationFinished(
        checkpoint=checkpoint,
        case=CaseInfo(**json.loads(case_json)),
        seed_block=SeedBlock(start=start, size=size),
        outcome=Outcome(outcome),
        curves=Curves.from_payload(payload) if payload is not None else None,
        message=message,
    )
