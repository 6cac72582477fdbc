"""Tables of the ledger, its lock, and what SQLite's errors mean."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lobench.core.errors import StoreBusy, StoreError
from lobench.core.headline import cause
from lobench.engine.store.program_keys import migrate

__all__ = ["SCHEMA_VERSION", "StoreLock", "connect", "store_errors"]

SCHEMA_VERSION = 1
_LOCK_SECONDS = 30.0  # for so long another program may hold the database

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoints (
  position INTEGER PRIMARY KEY, uri TEXT NOT NULL, sha256 TEXT NOT NULL, outer_step INTEGER NOT NULL,
  generation INTEGER NOT NULL, run TEXT NOT NULL, admission TEXT NOT NULL DEFAULT 'waiting',
  finished INTEGER NOT NULL DEFAULT 0, seen_at REAL NOT NULL, UNIQUE (uri, sha256, generation, outer_step));
CREATE TABLE IF NOT EXISTS evaluations (
  id INTEGER PRIMARY KEY, checkpoint_sha256 TEXT NOT NULL, optimizer_hash TEXT NOT NULL, case_identity TEXT NOT NULL,
  seed_start INTEGER NOT NULL, seed_count INTEGER NOT NULL, program_version TEXT NOT NULL, case_json TEXT NOT NULL,
  outcome TEXT NOT NULL, message TEXT NOT NULL, payload BLOB, seconds REAL NOT NULL, experiment TEXT NOT NULL,
  trial TEXT NOT NULL, session TEXT NOT NULL, recorded_at REAL NOT NULL,
  UNIQUE (checkpoint_sha256, optimizer_hash, case_identity, seed_start, seed_count, program_version));
CREATE TABLE IF NOT EXISTS incidents (
  kind TEXT NOT NULL, checkpoint_sha256 TEXT NOT NULL, case_key TEXT NOT NULL, seed_start INTEGER NOT NULL,
  seed_count INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, position INTEGER NOT NULL, evaluation INTEGER,
  UNIQUE (position, evaluation));
CREATE TABLE IF NOT EXISTS completions (position INTEGER NOT NULL, evaluation INTEGER NOT NULL,
  PRIMARY KEY (position, evaluation)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fingerprints (uri TEXT PRIMARY KEY, fingerprint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS programs (id TEXT PRIMARY KEY, parts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS expectations (expected TEXT NOT NULL, program TEXT NOT NULL, PRIMARY KEY (expected, program))
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursors (sink TEXT PRIMARY KEY, sequence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, detail TEXT NOT NULL, at REAL NOT NULL);
"""


@contextlib.contextmanager
def store_errors(store: Path) -> Iterator[None]:
    """Turns SQLite's and the system's errors into one clear line."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "full" in text:
            step = "free some space and start again: nothing acknowledged is lost"
        elif "readonly" in text or "unable to open" in text:
            step = "choose another folder with --store"
        elif "locked" in text or "busy" in text:
            step = (
                f"another program has held its lock for {_LOCK_SECONDS:g} s (an sqlite3 shell, a backup?): end that, "
                "and the same command goes on; nothing acknowledged is lost"
            )
        elif "malformed" in text or "not a database" in text:
            step = "move the file away, or restore a copy"
        elif "no such table" in text:
            step = "was its ledger.sqlite emptied? restore a copy, or start the watch again, which begins anew"
        else:
            step = ""
        raise StoreError("cannot use the result store", where=str(store), got=text, next_step=step) from error
    except OSError as error:
        raise StoreError(
            "cannot use the result store",
            where=str(store),
            got=cause(error),
            next_step="choose another folder with --store",
        ) from error


@contextlib.contextmanager
def intact_rows(where: Path | str) -> Iterator[None]:
    """Turns what goes wrong when a row's content is read into one clear line."""
    try:
        yield
    except (ValueError, TypeError, KeyError, struct.error) as error:
        raise StoreError(
            "a row of the ledger is damaged",
            where=str(where),
            got=cause(error),
            next_step="move the store away, or restore a copy",
        ) from error


def connect(store: Path, *, read_only: bool, database: Path | None = None) -> sqlite3.Connection:
    """Opens the ledger of a store, making its tables where there are none.

    Args:
      database: Its file, where that does not lie in the store.
    Raises:
      StoreError: not readable, not writable, not a ledger, or one of a newer lobench.
    """
    database = database or store / "ledger.sqlite"
    if read_only and not database.is_file():
        raise StoreError("there is no result store here", where=str(store), next_step="is --store right?")
    with store_errors(store):
        connection, version = _look_on(database) if read_only else _write(database)
    if version > SCHEMA_VERSION:
        connection.close()
        raise StoreError(
            "the store was written by a newer lobench",
            where=str(store),
            got=f"schema version {version}",
            expected=f"{SCHEMA_VERSION} or older",
            next_step="upgrade lobench",
        )
    return connection


def _write(database: Path) -> tuple[sqlite3.Connection, int]:
    connection = _open(database, "mode=rwc")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(_TABLES)
    connection.execute("INSERT OR IGNORE INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
    version = _version(connection)
    if version <= SCHEMA_VERSION:
        migrate(connection)
    return connection, version


def _look_on(database: Path) -> tuple[sqlite3.Connection, int]:
    """A log of writes cannot be read without writing beside it; where that is not allowed a copy is read."""
    connection = _open(database, "mode=ro")
    try:
        return connection, _version(connection)
    except sqlite3.OperationalError as error:
        connection.close()
        if "readonly" not in str(error) and "unable to open" not in str(error):
            raise
    log = database.with_name(f"{database.name}-wal")
    if not log.is_file() or log.stat().st_size == 0:
        connection = _open(database, "immutable=1")
        return connection, _version(connection)
    with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
        copy = Path(folder) / database.name
        for file in (database, log):
            shutil.copyfile(file, copy.with_name(file.name))
        connection = _open(Path(":memory:"), "")
        with contextlib.closing(_open(copy, "mode=rw")) as copied:
            copied.backup(connection)
        return connection, _version(connection)


def _open(database: Path, mode: str) -> sqlite3.Connection:
    name = f"{database.absolute().as_uri()}?{mode}" if mode else str(database)
    return sqlite3.connect(name, uri=bool(mode), isolation_level=None, check_same_thread=False, timeout=_LOCK_SECONDS)


def _version(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    text = str(found[0]) if found is not None else "none"
    if not text.isdecimal():
        raise sqlite3.DatabaseError(f"not a database of lobench: its schema version is {text!r}, and no number")
    return int(text)


class StoreLock:
    """One writer a store: an advisory lock that the system drops when its holder dies, however it dies."""

    def __init__(self, store: Path, name: str) -> None:
        with store_errors(store):
            store.mkdir(parents=True, exist_ok=True)
            self._file = os.open(store / "chief.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(self._file)
                raise StoreError(
                    "this file system cannot lock files, which is what keeps two chiefs apart",
                    where=str(store),
                    got=cause(error),
                    next_step="choose another folder with --store",
                ) from error
            holder = _describe(os.pread(self._file, 4096, 0))
            os.close(self._file)
            raise StoreBusy(
                "another chief writes this store",
                where=str(store),
                got=holder,
                next_step="stop it, or give this one another --name or --store",
            ) from error
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "name": name, "since": since})
        with store_errors(store):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, holder.encode(), 0)

    def release(self) -> None:
        os.close(self._file)


def _describe(content: bytes) -> str:
    try:
        holder = json.loads(content)
        return f"{holder['name']!r}, process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown holder"
