"""The ledger's tables, and the way to them from a ledger of schema 1.

Schema 2 has subjects where schema 1 had checkpoints, and knows experiments: an evaluation is computed once and may be a
member of many. What schema 2 says of the content of schema 1 is written once, as queries: who only looks on reads them
as temporary views, and a writer fills the new tables with them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

from lobench.engine.store.database import transaction
from lobench.engine.store.programs import name_programs

__all__ = ["SCHEMA_VERSION", "keep_copy", "make_current", "see_as_now"]

SCHEMA_VERSION = 2
_PREFIX = "optimizer: "  # of the uri of an optimizer without theta, in schema 1

_EVALUATIONS = """CREATE TABLE IF NOT EXISTS {name} (
  id INTEGER PRIMARY KEY, checkpoint_sha256 TEXT NOT NULL, optimizer_hash TEXT NOT NULL, case_identity TEXT NOT NULL,
  seed_start INTEGER NOT NULL, seed_count INTEGER NOT NULL, program_version TEXT NOT NULL, case_json TEXT NOT NULL,
  outcome TEXT NOT NULL, message TEXT NOT NULL, payload BLOB, seconds REAL NOT NULL, recorded_at REAL NOT NULL,
  UNIQUE (checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, program_version))"""

# Those that schema 1 has too, as they are; a ledger of its first days lacks some of them.
_COMMON = (
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS incidents (
  kind TEXT NOT NULL, checkpoint_sha256 TEXT NOT NULL, case_key TEXT NOT NULL, seed_start INTEGER NOT NULL,
  seed_count INTEGER NOT NULL, at REAL NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS deliveries (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, position INTEGER NOT NULL, evaluation INTEGER,
  UNIQUE (position, evaluation))""",
    """CREATE TABLE IF NOT EXISTS completions (position INTEGER NOT NULL, evaluation INTEGER NOT NULL,
  PRIMARY KEY (position, evaluation)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS fingerprints (uri TEXT PRIMARY KEY, fingerprint TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS programs (id TEXT PRIMARY KEY, parts TEXT NOT NULL)",
    """CREATE TABLE IF NOT EXISTS expectations (expected TEXT NOT NULL, program TEXT NOT NULL,
  PRIMARY KEY (expected, program)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS cursors (sink TEXT PRIMARY KEY, sequence INTEGER NOT NULL)",
    """CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, detail TEXT NOT NULL, at REAL NOT NULL)""",
)

# `trial` and `session` of a membership have no type: numbers in an experiment, any text where `lobench watch --trial`
# gave one.
_TABLES = (
    *_COMMON,
    """CREATE TABLE IF NOT EXISTS subjects (
  position INTEGER PRIMARY KEY, kind TEXT NOT NULL, label TEXT NOT NULL, variant TEXT NOT NULL, bindings TEXT NOT NULL,
  trainer_config TEXT, uri TEXT NOT NULL, sha256 TEXT NOT NULL, outer_step INTEGER NOT NULL,
  generation INTEGER NOT NULL, run TEXT NOT NULL,
  admission TEXT NOT NULL DEFAULT 'waiting', finished INTEGER NOT NULL DEFAULT 0, seen_at REAL NOT NULL,
  UNIQUE (uri, sha256, generation, outer_step, variant))""",
    "CREATE INDEX IF NOT EXISTS subjects_by_sha256 ON subjects (sha256)",
    _EVALUATIONS.format(name="evaluations"),
    """CREATE TABLE IF NOT EXISTS experiments (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, config TEXT NOT NULL, config_sha256 TEXT NOT NULL,
  git_revision TEXT NOT NULL, git_dirty INTEGER NOT NULL, patch BLOB, patch_sha256 TEXT NOT NULL,
  patch_note TEXT NOT NULL, versions TEXT NOT NULL, created_at REAL NOT NULL, last_at REAL NOT NULL,
  UNIQUE (name, config_sha256, git_revision, git_dirty, patch_sha256))""",
    """CREATE TABLE IF NOT EXISTS trials (
  experiment INTEGER NOT NULL, method TEXT NOT NULL, number INTEGER NOT NULL, parameters TEXT NOT NULL,
  state TEXT NOT NULL, fitness REAL, wave INTEGER NOT NULL, UNIQUE (experiment, method, number))""",
    """CREATE TABLE IF NOT EXISTS memberships (
  experiment INTEGER NOT NULL, method TEXT NOT NULL, trial NOT NULL, session NOT NULL, evaluation INTEGER NOT NULL,
  UNIQUE (experiment, method, trial, session, evaluation))""",
    "CREATE INDEX IF NOT EXISTS memberships_by_evaluation ON memberships (evaluation)",
    """CREATE TABLE IF NOT EXISTS described (
  variant TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, cases_json TEXT NOT NULL, files_json TEXT NOT NULL)""",
    # What were columns of the evaluations in schema 1: of several memberships the first one.
    """CREATE VIEW IF NOT EXISTS labels AS SELECT evaluation, name AS experiment, method, trial, session FROM
  (SELECT experiment, method, trial, session, evaluation, MIN(rowid) FROM memberships GROUP BY evaluation) m
  JOIN experiments x ON x.id = m.experiment""",
    f"INSERT OR IGNORE INTO meta VALUES ('schema_version', '{SCHEMA_VERSION}')",
)

_IS_OPTIMIZER = f"uri GLOB '{_PREFIX}*'"
_LABELLED = "(experiment <> '' OR trial <> '' OR session <> '')"

# What schema 2 says of a ledger of schema 1, in the database `db`: each table's columns in their order.
_SEEN_AS_NOW = {
    "subjects": f"""SELECT position, CASE WHEN {_IS_OPTIMIZER} THEN 'optimizer' ELSE 'checkpoint' END AS kind,
  '' AS label, '' AS variant, '[]' AS bindings, NULL AS trainer_config,
  CASE WHEN {_IS_OPTIMIZER} THEN substr(uri, {len(_PREFIX) + 1}) ELSE uri END AS uri,
  sha256, outer_step, generation, run, admission, finished, seen_at FROM {{db}}.checkpoints""",
    "evaluations": """SELECT id, checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count,
  program_version, case_json, outcome, message, payload, seconds, recorded_at FROM {db}.evaluations""",
    "experiments": f"""SELECT ROW_NUMBER() OVER (ORDER BY MIN(id)) AS id, experiment AS name, '' AS config,
  '' AS config_sha256, '' AS git_revision, 0 AS git_dirty, NULL AS patch, '' AS patch_sha256, '' AS patch_note,
  '{{{{}}}}' AS versions, MIN(recorded_at) AS created_at, MAX(recorded_at) AS last_at
  FROM {{db}}.evaluations WHERE {_LABELLED} GROUP BY experiment""",
    "memberships": f"""SELECT DENSE_RANK() OVER (ORDER BY first) AS experiment, '' AS method, trial, session,
  id AS evaluation FROM (SELECT id, trial, session, MIN(id) OVER (PARTITION BY experiment) AS first
  FROM {{db}}.evaluations WHERE {_LABELLED}) ORDER BY id""",
    "labels": f"""SELECT id AS evaluation, experiment, '' AS method, trial, session FROM {{db}}.evaluations
  WHERE {_LABELLED}""",
    "trials": """SELECT 0 AS experiment, '' AS method, 0 AS number, '' AS parameters, '' AS state, NULL AS fitness,
  0 AS wave WHERE 0""",
    "described": "SELECT '' AS variant, '' AS fingerprint, '' AS cases_json, '' AS files_json WHERE 0",
}


def see_as_now(db: sqlite3.Connection, version: int, *, source: str = "main", prefix: str = "") -> tuple[str, ...]:
    """Makes temporary views that show a ledger as one of today's, and returns their names.

    Nothing is written to it: its own chief, of an older lobench, may be at work, and its folder may be read-only.

    Args:
      version: Schema of the ledger.
      source: Name of its database in the connection.
      prefix: Of the views' names; without one they hide the tables of these names.
    """
    for name, query in _SEEN_AS_NOW.items():
        seen = query.format(db=source) if version == 1 else f"SELECT * FROM {source}.{name}"
        db.execute(f"CREATE TEMP VIEW {prefix}{name} AS {seen}")
    return tuple(prefix + name for name in _SEEN_AS_NOW)


def make_current(db: sqlite3.Connection, version: int) -> None:
    """Makes what tables are missing, and takes a ledger of schema 1 over, in one transaction.

    Args:
      version: Of the ledger; 0 for a new one.
    """
    with transaction(db):
        for statement in _TABLES:
            db.execute(statement)
        if version == 1:
            _take_over(db)
        name_programs(db)


def _take_over(db: sqlite3.Connection) -> None:
    """Fills the tables that schema 1 lacks from those that go, and drops what memberships say now."""
    for name in ("subjects", "experiments", "memberships"):
        db.execute(f"INSERT INTO {name} {_SEEN_AS_NOW[name].format(db='main')}")
    if sqlite3.sqlite_version_info >= (3, 35):
        for column in ("experiment", "trial", "session"):
            db.execute(f"ALTER TABLE evaluations DROP COLUMN {column}")
    else:  # which leaves the file twice as large, half of it free
        db.execute(_EVALUATIONS.format(name="new_evaluations"))
        db.execute(f"INSERT INTO new_evaluations {_SEEN_AS_NOW['evaluations'].format(db='main')} ORDER BY id")
        db.execute("DROP TABLE evaluations")
        db.execute("ALTER TABLE new_evaluations RENAME TO evaluations")
    db.execute("DROP TABLE checkpoints")
    db.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))


def keep_copy(db: sqlite3.Connection, database: Path, store: Path, version: int) -> Path:
    """Puts a whole copy of a ledger, with what its log holds, beside it, and returns its file.

    Args:
      database: The ledger's file, which does not lie in the store where that is on a network file system.
    """
    kept = store / f"ledger.schema{version}.sqlite"
    copy, temporary = (folder / f".ledger-{os.getpid()}.tmp" for folder in (database.parent, store))
    for leftover in (*copy.parent.glob(".ledger-*.tmp*"), *store.glob(".ledger-*.tmp*")):  # of one that was killed
        leftover.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as target:
            db.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")  # one file, which may be moved
        if copy != temporary:
            shutil.copyfile(copy, temporary)
        temporary.replace(kept)
    finally:
        copy.unlink(missing_ok=True)
        temporary.unlink(missing_ok=True)
    return kept
