"""Summaries of a ledger's evaluations, recorded with their payloads, or computed later in older stores.

Only a writer stores summaries. If a summary is missing, a reader decodes the payload and stores nothing.
"""

from __future__ import annotations

import functools
import json
import sqlite3
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path

from lobench.core.case import CaseInfo
from lobench.core.curve_summary import SUMMARY_VERSION, CurveSummary, read_summary, summarize
from lobench.core.errors import StoreError
from lobench.core.result import Curves
from lobench.engine.store.ledger_part import LedgerPart
from lobench.engine.store.schema import decoding_errors, open_ledger_database, store_errors

__all__ = ["StoredSummaries", "Summaries", "copy_summaries"]

_BATCH_SIZE = 500
_VERSION_KEY = "summary_version"  # key of `meta`


class Summaries(LedgerPart):
    """Part of a ledger: writing of summaries."""

    def record_summary(self, evaluation: int, curves: Curves, case: CaseInfo) -> None:
        """Records the summary of an evaluation that has just been recorded."""
        text, packed_numbers = summarize(curves, case.primary_metric)
        with self.transaction():
            self._db.execute("INSERT OR IGNORE INTO summary_heads (text) VALUES (?)", (text,))
            self._db.execute(
                "UPDATE summaries SET head = (SELECT id FROM summary_heads WHERE text = ?), numbers = ? "
                "WHERE evaluation = ?",
                (text, packed_numbers, evaluation),
            )

    def compute_summaries(self) -> None:
        """Computes and records missing summaries. Damaged payloads are skipped."""
        with store_errors(self.store):
            if _version(self._db) != SUMMARY_VERSION:
                with self.transaction():
                    self._db.execute("UPDATE summaries SET head = NULL, numbers = NULL")
                    self._db.execute("DELETE FROM summary_heads")
                    self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_VERSION_KEY, SUMMARY_VERSION))
            for batch in self._missing_batches():
                with self.transaction():
                    for evaluation in batch:
                        query = "SELECT case_json, payload FROM evaluations WHERE id = ?"
                        case_text, payload = self._db.execute(query, (evaluation,)).fetchone()
                        try:
                            curves = Curves.from_payload(payload)
                            case = CaseInfo(**json.loads(case_text))
                        except (ValueError, TypeError, KeyError, struct.error):
                            continue  # reported when the row is read
                        self.record_summary(evaluation, curves, case)

    def _missing_batches(self) -> Iterator[list[int]]:
        last_evaluation = 0
        query = (
            f"SELECT evaluation FROM summaries WHERE numbers IS NULL AND evaluation > ? ORDER BY 1 LIMIT {_BATCH_SIZE}"
        )
        while batch := [evaluation for (evaluation,) in self._db.execute(query, (last_evaluation,)).fetchall()]:
            yield batch
            last_evaluation = batch[-1]


def _version(db: sqlite3.Connection, schema: str = "main") -> str:
    """Returns the version of a ledger's summaries; "" if it has none."""
    row = db.execute(f"SELECT value FROM {schema}.meta WHERE key = ?", (_VERSION_KEY,)).fetchone()
    return str(row[0]) if row is not None else ""


def copy_summaries(db: sqlite3.Connection, rows: str) -> None:
    """Copies the summaries of evaluations that were just merged from the attached ledger `source`.

    Args:
      db: Connection to the target, with the source attached.
      rows: Name of a view of the source's evaluations in the current columns.
    """
    if _version(db, "source") != _version(db):
        return
    db.execute("INSERT OR IGNORE INTO main.summary_heads (text) SELECT text FROM source.summary_heads ORDER BY id")
    key_columns = (
        "checkpoint_sha256",
        "optimizer_hash",
        "case_identity",
        "seed_start",
        "seed_count",
        "program_version",
        "code",
    )
    same_key = " AND ".join(f"se.{column} = me.{column}" for column in key_columns)
    db.execute(
        "UPDATE main.summaries SET (head, numbers) = (SELECT mh.id, ss.numbers FROM main.evaluations me "
        f"JOIN {rows} se ON {same_key} AND se.payload = me.payload AND se.case_json = me.case_json "
        "JOIN source.summaries ss ON ss.evaluation = se.id JOIN source.summary_heads sh ON sh.id = ss.head "
        "JOIN main.summary_heads mh ON mh.text = sh.text WHERE me.id = main.summaries.evaluation) "
        "WHERE numbers IS NULL"
    )


class StoredSummaries:
    """Reads summaries from a ledger, and the curves behind them on access.

    Args:
      store: Folder of the store.
      db: Connection to the ledger. Must stay open while rows are read.
    """

    def __init__(self, store: Path, db: sqlite3.Connection) -> None:
        self._store, self._db, self._payloads = store, db, _CurveReader(store)
        with store_errors(store):
            self._has_summaries = _version(db) == SUMMARY_VERSION
            self._heads = self._read_heads() if self._has_summaries else {}

    def _read_heads(self) -> dict[int, str]:
        return dict(self._db.execute("SELECT id, text FROM summary_heads").fetchall())

    @property
    def columns(self) -> tuple[str, str]:
        """SQL columns to select: the payload, which is NULL in rows with a summary, and those of the summary."""
        if self._has_summaries:
            return "CASE WHEN s.numbers IS NULL THEN payload END", "s.head, s.numbers"
        return "payload", "NULL, NULL"

    @property
    def join_clause(self) -> str:
        return "LEFT JOIN summaries s ON s.evaluation = evaluations.id" if self._has_summaries else ""

    def summary(
        self, evaluation: int, recorded_at: float, case: CaseInfo, head_id: int, packed_numbers: bytes
    ) -> CurveSummary:
        """Returns the summary of an evaluation. The caller turns errors of a damaged summary into `StoreError`s.

        Args:
          evaluation: Id of the evaluation.
          recorded_at: Time of its record, to detect that it was replaced.
          case: Case of the evaluation.
          head_id, packed_numbers: Columns of the stored summary.
        """
        if head_id not in self._heads:  # recorded with the evaluation, after the heads were read
            self._heads = self._read_heads()
        return read_summary(
            self._heads[head_id], packed_numbers, _CurveLoader(self._payloads, evaluation, recorded_at, case)
        )


class _CurveLoader:
    """Function that reads the curves of an evaluation. A partial function would take three times the memory."""

    __slots__ = ("_case", "_evaluation", "_payloads", "_recorded_at")

    def __init__(self, payloads: _CurveReader, evaluation: int, recorded_at: float, case: CaseInfo) -> None:
        self._payloads = payloads
        self._evaluation = evaluation
        self._recorded_at = recorded_at
        self._case = case

    def __call__(self) -> Curves:
        return self._payloads.curves(self._evaluation, self._recorded_at, self._case)


class _CurveReader:
    """Reads curves from a ledger.

    Every summary holds a reference to this reader. It is a class of its own so that a summary does not keep all of
    `StoredSummaries` in memory.

    Args:
      store: Folder of the store.
    """

    def __init__(self, store: Path) -> None:
        self._store = store

    def curves(self, evaluation: int, recorded_at: float, case: CaseInfo) -> Curves:
        with store_errors(self._store):
            query = "SELECT payload FROM evaluations WHERE id = ? AND recorded_at = ?"
            row = self._database.execute(query, (evaluation, recorded_at)).fetchone()
        if row is None or row[0] is None:
            raise StoreError(
                "an evaluation was replaced while the store was read",
                where=str(self._store),
                got=f"no evaluation {evaluation} of that time any more",
                next_step="run the command again",
            )
        with decoding_errors(f"{case.suite}/{case.name}, evaluation {evaluation}"):
            return Curves.from_payload(row[0])

    @functools.cached_property
    def _database(self) -> sqlite3.Connection:
        connection = open_ledger_database(self._store, read_only=True)
        weakref.finalize(self, connection.close)
        return connection
