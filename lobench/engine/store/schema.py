"""Opening a ledger's database, its lock, and what SQLite's errors mean."""

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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from lobench.core.errors import StoreBusy, StoreError
from lobench.core.headline import cause
from lobench.engine.store.migrations import SCHEMA_VERSION, keep_copy, make_current, see_as_now

__all__ = ["StoreLock", "connect", "intact_rows", "store_errors"]

_LOCK_SECONDS = 30.0  # for so long another program may hold the database


@contextlib.contextmanager
def store_errors(store: Path) -> Iterator[None]:
    """Turns SQLite's and the system's errors into one clear line."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "full" in text:
            step = "free some space and start again: nothing acknowledged is lost"
        elif "disk I/O error" in text:  # a disk without room for the log's index says so, too
            step = "is the disk full, or failing? free some space and start again: nothing acknowledged is lost"
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


def connect(
    store: Path, *, read_only: bool, database: Path | None = None, say: Callable[[str], None] = lambda line: None
) -> sqlite3.Connection:
    """Opens the ledger of a store as one of today's schema.

    A writer makes its tables where there are none, and takes an older ledger over, of which it keeps a copy. Who only
    looks on sees an older one as it would be then.

    Args:
      database: Its file, where that does not lie in the store.
      say: Told, in a line, that an older ledger was taken over.
    Raises:
      StoreError: not readable, not writable, not a ledger, or one of a newer lobench, which is left as it is.
    """
    database = database or store / "ledger.sqlite"
    if read_only and not database.is_file():
        raise StoreError("there is no result store here", where=str(store), next_step="is --store right?")
    with store_errors(store):
        connection, version = _look_on(database) if read_only else _open_to_write(database)
    try:
        if version > SCHEMA_VERSION:
            raise StoreError(
                "the store was written by a newer lobench",
                where=str(store),
                got=f"schema version {version}",
                expected=f"{SCHEMA_VERSION} or older",
                next_step="upgrade lobench",
            )
        with store_errors(store):
            if not read_only:
                _prepare(connection, version, database, store, say)
            elif version < SCHEMA_VERSION:
                see_as_now(connection, version)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_to_write(database: Path) -> tuple[sqlite3.Connection, int]:
    connection = _open(database, "mode=rwc")
    try:
        return connection, _version_or_none(connection)
    except BaseException:
        connection.close()
        raise


def _prepare(
    connection: sqlite3.Connection, version: int, database: Path, store: Path, say: Callable[[str], None]
) -> None:
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    if not 0 < version < SCHEMA_VERSION:
        make_current(connection, version)
        return
    copy = keep_copy(connection, database, store, version)
    make_current(connection, version)
    say(f"{store / 'ledger.sqlite'}: taken from schema {version} to {SCHEMA_VERSION}; {copy.name} is what it was")


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


def _version_or_none(connection: sqlite3.Connection) -> int:
    """Returns the schema of a ledger that is to be written; 0 for one without content, as a kill may have left it."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "meta" in names and connection.execute("SELECT 1 FROM meta WHERE key = 'schema_version'").fetchone() is not None:
        return _version(connection)
    # Schema 1 was made statement by statement, its number last.
    return 1 if {"checkpoints", "evaluations"} <= names else 0


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
        try:
            with store_errors(store):
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, holder.encode(), 0)
        except BaseException:  # a full disk
            self.release()
            raise

    def release(self) -> None:
        os.close(self._file)


def _describe(content: bytes) -> str:
    try:
        holder = json.loads(content)
        return f"{holder['name']!r}, process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown holder"
