"""Database of a store: tables, opening, and rows of studies."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from pathlib import Path

from lobench import StoreError
from lobench.extend import database_errors, newer_schema, open_to_read, open_to_write, schema_version, write_ahead

__all__ = ["StudyRow", "connect", "convert_errors", "read_studies"]

_VERSION = 1

# Each index is used by a statement of `table.py`; tests check the plan of each statement. The index of deadlines is
# partial: only trials that train or wait for their fitness have one. Triggers maintain `counts`, because counting a
# study's trials otherwise reads all of them.
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS studies (
  name TEXT PRIMARY KEY, config TEXT NOT NULL, stopped INTEGER NOT NULL DEFAULT 0, next_id INTEGER NOT NULL DEFAULT 1,
  next_seq INTEGER NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS trials (
  study TEXT NOT NULL, id INTEGER NOT NULL, state TEXT NOT NULL, is_terminal INTEGER NOT NULL,
  generation INTEGER NOT NULL, slot INTEGER NOT NULL, initiator_id INTEGER, opponent_id INTEGER,
  parent_ids TEXT NOT NULL, params TEXT NOT NULL, start_step INTEGER NOT NULL, n_steps INTEGER NOT NULL,
  warm_checkpoint TEXT, warm_state TEXT, checkpoint TEXT, train_state TEXT, seed INTEGER NOT NULL,
  attempt INTEGER NOT NULL, worker_id TEXT NOT NULL, lease_deadline REAL, fitness_deadline REAL, metrics TEXT,
  fitness TEXT, score REAL, reason TEXT NOT NULL, completed_seq INTEGER, has_child INTEGER NOT NULL,
  is_kept INTEGER NOT NULL, PRIMARY KEY (study, id), UNIQUE (study, initiator_id));
CREATE INDEX IF NOT EXISTS by_state ON trials (study, state, worker_id, id);
CREATE INDEX IF NOT EXISTS by_generation ON trials (study, generation, is_terminal);
CREATE INDEX IF NOT EXISTS childless ON trials (study, has_child, is_terminal, generation, completed_seq);
CREATE INDEX IF NOT EXISTS kept ON trials (study, is_kept, generation);
CREATE INDEX IF NOT EXISTS by_score ON trials (study, score DESC, id);
CREATE INDEX IF NOT EXISTS leases ON trials (study, lease_deadline) WHERE lease_deadline IS NOT NULL;
CREATE INDEX IF NOT EXISTS awaited ON trials (study, fitness_deadline) WHERE fitness_deadline IS NOT NULL;
CREATE TABLE IF NOT EXISTS measurements (
  study TEXT NOT NULL, trial INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, seconds REAL NOT NULL,
  metrics TEXT NOT NULL, PRIMARY KEY (study, trial, attempt, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS scores (
  study TEXT NOT NULL, trial INTEGER NOT NULL, sha256 TEXT NOT NULL, metrics TEXT, reason TEXT NOT NULL,
  PRIMARY KEY (study, trial, sha256)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holders (
  study TEXT NOT NULL, trial INTEGER NOT NULL, process TEXT NOT NULL, PRIMARY KEY (study, trial)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts (
  study TEXT NOT NULL, state TEXT NOT NULL, num INTEGER NOT NULL, PRIMARY KEY (study, state)) WITHOUT ROWID;
INSERT INTO counts SELECT study, state, COUNT(*) FROM trials WHERE NOT EXISTS (SELECT 1 FROM counts)
  GROUP BY study, state;
CREATE TRIGGER IF NOT EXISTS count_new AFTER INSERT ON trials BEGIN
  INSERT INTO counts VALUES (new.study, new.state, 1) ON CONFLICT DO UPDATE SET num = num + 1;
END;
CREATE TRIGGER IF NOT EXISTS count_changed AFTER UPDATE OF state ON trials WHEN old.state != new.state BEGIN
  UPDATE counts SET num = num - 1 WHERE study = old.study AND state = old.state;
  INSERT INTO counts VALUES (new.study, new.state, 1) ON CONFLICT DO UPDATE SET num = num + 1;
END;
CREATE TRIGGER IF NOT EXISTS count_gone AFTER DELETE ON trials BEGIN
  UPDATE counts SET num = num - 1 WHERE study = old.study AND state = old.state;
END;
"""


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Opens the database of a store, and creates missing tables.

    Commits are ordered, and on disk once a `CommitLog` has synced them.

    Raises:
      StoreError: The database does not exist, cannot be used, or is of a newer version.
    """
    no_study = StoreError("no study found", where=str(path.parent), next_step="is --store right?")
    if read_only and not path.is_file():
        raise no_study
    with convert_errors(path):
        db = open_to_read(path) if read_only else open_to_write(path)
        is_new = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None
        if is_new and read_only:  # its controller has just begun, or had no space
            db.close()
            raise no_study
        if (version := _VERSION if is_new else schema_version(db)) > _VERSION:
            db.close()
            raise newer_schema(path, got=version, expected=_VERSION)
        if not read_only:
            write_ahead(db, synced=False)
            db.executescript(_TABLES)
            db.execute("INSERT OR IGNORE INTO meta VALUES ('schema_version', ?)", (str(_VERSION),))
    return db


def convert_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    """Converts errors of SQLite into a `StoreError` with one line."""
    return database_errors(path, "the study's database")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """Row of a study in the database."""

    name: str
    config: str
    stopped: bool


def read_studies(db: sqlite3.Connection, name: str = "") -> list[StudyRow]:
    """Returns all studies, or the one with a name."""
    condition, values = ("WHERE name = ?", (name,)) if name else ("ORDER BY name", ())
    rows = db.execute(f"SELECT name, config, stopped FROM studies {condition}", values)
    return [StudyRow(name=row[0], config=row[1], stopped=bool(row[2])) for row in rows]
