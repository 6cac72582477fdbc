"""Tables of the ledger.

An evaluation is stored once, and may be a member of many experiments.
"""

from __future__ import annotations

import sqlite3

from lobench.engine.store.database import transaction
from lobench.engine.store.programs import replace_program_versions

__all__ = ["COUNT_CHANGE", "MEMBERSHIP_TRIGGER", "OLDEST_SCHEMA", "SCHEMA_VERSION", "make_tables", "show_code"]

SCHEMA_VERSION = 3
OLDEST_SCHEMA = 2  # has no code of evaluations; a writer adds the column

MEMBERSHIP_TRIGGER = "membership_removed"  # stores that only an older lobench wrote lack it
COUNT_CHANGE = "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'num_changes'"

# `trial` and `session` of a membership have no type: they are numbers in an experiment, and texts if
# `lobench watch --trial` set them.
_TABLES = (
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
    """CREATE TABLE IF NOT EXISTS subjects (
  position INTEGER PRIMARY KEY, kind TEXT NOT NULL, label TEXT NOT NULL, variant TEXT NOT NULL, bindings TEXT NOT NULL,
  trainer_config TEXT, uri TEXT NOT NULL, sha256 TEXT NOT NULL, outer_step INTEGER NOT NULL,
  generation INTEGER NOT NULL, run TEXT NOT NULL,
  admission TEXT NOT NULL DEFAULT 'waiting', finished INTEGER NOT NULL DEFAULT 0, seen_at REAL NOT NULL,
  UNIQUE (uri, sha256, generation, outer_step, variant))""",
    "CREATE INDEX IF NOT EXISTS subjects_by_sha256 ON subjects (sha256)",
    """CREATE TABLE IF NOT EXISTS evaluations (
  id INTEGER PRIMARY KEY, checkpoint_sha256 TEXT NOT NULL, optimizer_hash TEXT NOT NULL, case_identity TEXT NOT NULL,
  seed_start INTEGER NOT NULL, seed_count INTEGER NOT NULL, program_version TEXT NOT NULL, case_json TEXT NOT NULL,
  outcome TEXT NOT NULL, message TEXT NOT NULL, payload BLOB, seconds REAL NOT NULL, recorded_at REAL NOT NULL,
  code TEXT NOT NULL DEFAULT '',
  UNIQUE (checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, program_version, code))""",
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
    # Locations of suites, with the sha256 of their baseline files, and of the store. The last row counts.
    """CREATE TABLE IF NOT EXISTS suites (
  id INTEGER PRIMARY KEY, suite TEXT NOT NULL, path TEXT NOT NULL, baselines TEXT NOT NULL, UNIQUE (suite, path))""",
    "CREATE TABLE IF NOT EXISTS data_files (name TEXT PRIMARY KEY, digest TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS locations (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE)",
    # Summaries of payloads, NULL until computed. Triggers maintain the table for writers of an older lobench too, which
    # do not know it.
    "CREATE TABLE IF NOT EXISTS summary_heads (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS summaries (evaluation INTEGER PRIMARY KEY, head INTEGER, numbers BLOB)",
    "CREATE INDEX IF NOT EXISTS summaries_to_compute ON summaries (evaluation) WHERE numbers IS NULL",
    """CREATE TRIGGER IF NOT EXISTS payload_recorded AFTER INSERT ON evaluations WHEN NEW.payload IS NOT NULL
  BEGIN
    DELETE FROM summaries WHERE evaluation = NEW.id;
    INSERT INTO summaries (evaluation) VALUES (NEW.id);
  END""",
    """CREATE TRIGGER IF NOT EXISTS payload_replaced AFTER UPDATE OF payload, case_json ON evaluations
  BEGIN
    DELETE FROM summaries WHERE evaluation = OLD.id;
    INSERT INTO summaries (evaluation) SELECT NEW.id WHERE NEW.payload IS NOT NULL;
  END""",
    """CREATE TRIGGER IF NOT EXISTS payload_dropped AFTER DELETE ON evaluations
  BEGIN DELETE FROM summaries WHERE evaluation = OLD.id; END""",
    # Number of changes of evaluations, memberships and completions that existed. While it stays the same, they are only
    # added.
    f"""CREATE TRIGGER IF NOT EXISTS evaluation_changed AFTER UPDATE ON evaluations
  BEGIN {COUNT_CHANGE}; END""",
    f"""CREATE TRIGGER IF NOT EXISTS evaluation_removed AFTER DELETE ON evaluations
  BEGIN {COUNT_CHANGE}; END""",
    f"""CREATE TRIGGER IF NOT EXISTS {MEMBERSHIP_TRIGGER} AFTER DELETE ON memberships
  BEGIN {COUNT_CHANGE}; END""",
    f"""CREATE TRIGGER IF NOT EXISTS completion_removed AFTER DELETE ON completions
  BEGIN {COUNT_CHANGE}; END""",
    "INSERT OR IGNORE INTO meta VALUES ('num_changes', '0')",
    # The first membership of each evaluation. Older versions of lobench read it.
    """CREATE VIEW IF NOT EXISTS labels AS SELECT evaluation, name AS experiment, method, trial, session FROM
  (SELECT experiment, method, trial, session, evaluation, MIN(rowid) FROM memberships GROUP BY evaluation) m
  JOIN experiments x ON x.id = m.experiment""",
    f"INSERT OR IGNORE INTO meta VALUES ('schema_version', '{SCHEMA_VERSION}')",
)


def make_tables(db: sqlite3.Connection) -> None:
    """Creates missing tables, in one transaction, and upgrades those of an older schema."""
    with transaction(db):
        is_old = bool(_columns(db)) and "code" not in _columns(db)
        if is_old:
            db.execute("ALTER TABLE evaluations RENAME TO evaluations_of_schema_2")
        has_summaries = bool(_columns(db, "summaries"))
        for statement in _TABLES:
            db.execute(statement)
        if is_old:
            # A new table, since SQLite cannot widen the key of an existing one.
            columns = ", ".join(_columns(db, "evaluations_of_schema_2"))
            db.execute(f"INSERT INTO evaluations ({columns}) SELECT {columns} FROM evaluations_of_schema_2")
            db.execute("DROP TABLE evaluations_of_schema_2")
            db.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),))
        if not has_summaries:
            evaluations_query = "SELECT id FROM evaluations WHERE payload IS NOT NULL"
            db.execute(f"INSERT OR IGNORE INTO summaries (evaluation) {evaluations_query}")
        replace_program_versions(db)


def show_code(db: sqlite3.Connection) -> None:
    """Creates a temporary view that shows a read-only ledger of schema 2 in the current schema."""
    if "code" not in _columns(db):
        columns = ", ".join(_columns(db))
        (reads_only,) = db.execute("PRAGMA query_only").fetchone()
        db.execute("PRAGMA query_only=0")  # it forbids a temporary view too
        db.execute(f"CREATE TEMP VIEW evaluations AS SELECT {columns}, '' AS code FROM main.evaluations")
        db.execute(f"PRAGMA query_only={reads_only}")


def _columns(db: sqlite3.Connection, table: str = "evaluations") -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA main.table_info({table})")]
