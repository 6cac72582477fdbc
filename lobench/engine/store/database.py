"""SQLite files of a store: opening, locking, one writer and many readers, and the meaning of SQLite's errors."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import sqlite3
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lobench.core.errors import StoreBusy, StoreError
from lobench.core.wording import cause, one_line_of

__all__ = [
    "LedgerPart",
    "StoreLock",
    "database_errors",
    "newer_schema",
    "open_to_read",
    "open_to_write",
    "schema_version",
    "transaction",
    "unusable_store",
    "write_ahead",
]

_BUSY_SECONDS = 30.0  # for so long another program may hold the database

_FREE_SPACE = "free some space and start again: nothing acknowledged is lost"
_ANOTHER_FOLDER = "choose another folder"
_LOCKED = (
    f"another program has held its lock for {_BUSY_SECONDS:g} s (an sqlite3 shell, a backup?): end that, "
    "and the same command goes on; nothing acknowledged is lost"
)
_RESTORE = "move the file away, or restore a copy"
_NEXT_STEPS = {
    "FULL": _FREE_SPACE,
    "IOERR": f"is the disk full, or failing? {_FREE_SPACE}",  # a disk without room for the log's index says so, too
    "READONLY": _ANOTHER_FOLDER,
    "CANTOPEN": _ANOTHER_FOLDER,
    "BUSY": _LOCKED,
    "LOCKED": _LOCKED,
    "CORRUPT": _RESTORE,
    "NOTADB": _RESTORE,
}


@contextlib.contextmanager
def database_errors(where: Path | str, what: str) -> Iterator[None]:
    """Turns SQLite's errors into one clear line.

    Args:
      where: The store, or the file.
      what: What cannot be used: "the result store".
    """
    try:
        yield
    except sqlite3.Error as error:
        got = cause(error)
        raise StoreError(f"cannot use {what}", where=str(where), got=got, next_step=_next_step(error)) from error


def _next_step(error: sqlite3.Error) -> str:
    if "no such table" in str(error):
        return "was its database emptied? restore a copy, or start again, which begins anew"
    name = getattr(error, "sqlite_errorname", "SQLITE_NOTADB")  # SQLITE_IOERR_WRITE, say; none: see `schema_version`
    return next((text for kind, text in _NEXT_STEPS.items() if name.startswith(f"SQLITE_{kind}")), "")


def open_to_write(database: Path) -> sqlite3.Connection:
    """Opens a database, making its file where there is none; `write_ahead` comes next, once its schema is looked at."""
    return _open(database, "mode=rwc")


def write_ahead(connection: sqlite3.Connection, *, synced: bool = True) -> None:
    """Has commits go to a log beside the database, which readers do not wait for.

    Args:
      synced: Each commit is on the disk when it returns. Otherwise its caller syncs the log, which may then serve
        many commits at once; where the file system knows no log of this kind, each is synced all the same.
    """
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' and not synced else 'FULL'}")


def open_to_read(database: Path) -> sqlite3.Connection:
    """Opens a database that another process may be writing.

    A log of writes cannot be read without writing beside it; where that is not allowed a copy is read.
    """
    connection = _open(database, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if "readonly" not in str(error) and "unable to open" not in str(error):
            raise
    log = database.with_name(f"{database.name}-wal")
    if not log.is_file() or log.stat().st_size == 0:
        return _open(database, "immutable=1")
    with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
        copy = Path(folder) / database.name
        for file in (database, log):
            shutil.copyfile(file, copy.with_name(file.name))
        connection = _open(Path(":memory:"), "")
        with contextlib.closing(_open(copy, "mode=rw")) as copied:
            copied.backup(connection)
        return connection


def _open(database: Path, mode: str) -> sqlite3.Connection:
    name = f"{database.absolute().as_uri()}?{mode}" if mode else str(database)
    return sqlite3.connect(name, uri=bool(mode), isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits what the body writes, together; undone if it raises, and where the disk does not take it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def schema_version(connection: sqlite3.Connection) -> int:
    """Returns which schema a database has, by its table `meta`."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    text = str(found[0]) if found is not None else "none"
    if not text.isdecimal():
        raise sqlite3.DatabaseError(f"not a database of lobench: its schema version is {text!r}, and no number")
    return int(text)


def newer_schema(where: Path, *, got: int, expected: int) -> StoreError:
    """Returns the error of a database that a later version wrote; nothing of it is touched."""
    return StoreError(
        "the store was written by a newer lobench",
        where=str(where),
        got=f"schema version {got}",
        expected=f"{expected} or older",
        next_step="upgrade lobench",
    )


class StoreLock:
    """One writer a store: an advisory lock that the system drops when its holder dies, however it dies.

    Args:
      file: Its name in the store.
      name: Of the holder, for those whom it keeps out.
      busy: What these are told.
    Raises:
      StoreBusy: somebody holds it; the message says who. StoreError: the folder cannot be written, or not locked.
    """

    def __init__(
        self, store: Path, name: str = "", *, file: str = "chief.lock", busy: str = "another chief writes this store"
    ) -> None:
        with unusable_store(store):
            store.mkdir(parents=True, exist_ok=True)
            self._file = os.open(store / file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(store, name, busy)
        except BaseException:
            os.close(self._file)
            raise

    def _take(self, store: Path, name: str, busy: str) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                got = _describe(os.pread(self._file, 4096, 0))
                step = "stop it, or give this one another --name or --store"
                raise StoreBusy(busy, where=str(store), got=got, next_step=step) from error
            with unusable_store(store, "this file system cannot lock files, which is what keeps two writers apart"):
                raise
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "name": name, "since": since})
        with unusable_store(store):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, holder.encode(), 0)

    def release(self) -> None:
        os.close(self._file)


def unusable_store(store: Path, what: str = "cannot use the result store") -> contextlib.AbstractContextManager[None]:
    """Turns what the system says against a store's folder into one clear line."""
    return one_line_of(OSError, StoreError, what, where=store, next_step="choose another folder")


def _describe(content: bytes) -> str:
    try:
        holder = json.loads(content)
        name = f"{holder['name']!r}, " if holder["name"] else ""
        return f"{name}process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown holder"


class LedgerPart:
    """A part of `lobench.engine.store.ledger.Ledger`, which opens the database and knows its transactions."""

    store: Path
    _db: sqlite3.Connection

    @abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Commits the body's writes together."""
