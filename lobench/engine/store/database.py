"""SQLite files of a store: opening, locking, one writer and many readers, and the meaning of SQLite's errors."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import pwd
import shutil
import socket
import sqlite3
import stat
import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lobench.core.errors import StoreBusy, StoreError
from lobench.core.wording import cause
from lobench.engine.retries import retried
from lobench.engine.whole_file import write_whole

__all__ = [
    "LedgerPart",
    "StoreLock",
    "database_errors",
    "may_write",
    "newer_schema",
    "open_to_read",
    "open_to_write",
    "schema_version",
    "transaction",
    "unusable_store",
    "write_ahead",
]

_MOST_COPIED_BYTES = 64 << 20  # of a database that is read as a copy
_PATIENCE_SECONDS = 10.0  # for a disk that fails for a moment
_BUSY_SECONDS = 30.0  # for so long another program may hold the database

_FREE_SPACE = "free some space and start again: nothing acknowledged is lost"
_ANOTHER_FOLDER = "choose another folder"
_LOCKED = (
    f"another program has held its lock for {_BUSY_SECONDS:g} s (an sqlite3 shell, a backup?): end that, "
    "and the same command goes on; nothing acknowledged is lost"
)
_RESTORE = "move the file away, or restore a copy"
# SQLite also says so of a good file if a read failed (EIO).
_PERHAPS_THE_DISK = (
    "if its disk failed for a moment, the same command goes on; if it says this again, check the file "
    "(sqlite3 FILE 'PRAGMA integrity_check'), and restore a copy"
)
_NETWORK_DISK = "LOBENCH_NETWORK_STORE=1 keeps the ledger on a local disk; or choose another folder"
_NO_MAPS = f"the disk is full, or this file system maps no shared memory, which a ledger needs: {_NETWORK_DISK}"
_NO_LOCKS = f"this file system cannot lock files, which is what keeps two writers apart: {_NETWORK_DISK}"
_NEXT_STEPS = {
    "FULL": _FREE_SPACE,
    "IOERR_SHMMAP": _NO_MAPS,
    "IOERR_SHMOPEN": _NO_MAPS,
    "IOERR_SHMLOCK": _NO_MAPS,
    "IOERR_LOCK": _NO_LOCKS,
    "IOERR_RDLOCK": _NO_LOCKS,
    "IOERR_UNLOCK": _NO_LOCKS,
    "IOERR": f"is the disk full, or failing? {_FREE_SPACE}",  # a disk without room for the log's index says so, too
    "READONLY": _ANOTHER_FOLDER,
    "CANTOPEN": _ANOTHER_FOLDER,
    "BUSY": _LOCKED,
    "LOCKED": _LOCKED,
    "CORRUPT": _PERHAPS_THE_DISK,
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
        got, next_step = cause(error), _next_step(error)
        if next_step == _LOCKED and (why := _lock_problem(Path(where))):
            got, next_step = why, _NO_LOCKS  # SQLite takes a lock that cannot be had for one that is held
        elif next_step == _ANOTHER_FOLDER and (whose := _unreadable(Path(where))):
            got, next_step = f"Permission denied: {whose}", _let_in(Path(where))
        raise StoreError(f"cannot use {what}", where=str(where), got=got, next_step=next_step) from error


def _next_step(error: sqlite3.Error) -> str:
    if "no such table" in str(error):
        return "was its database emptied? restore a copy, or start again, which begins anew"
    name = getattr(error, "sqlite_errorname", "SQLITE_NOTADB")  # SQLITE_IOERR_WRITE, say; none: see `schema_version`
    return next((text for kind, text in _NEXT_STEPS.items() if name.startswith(f"SQLITE_{kind}")), "")


def _unreadable(where: Path) -> str:
    """Returns whose file of a store, or which file itself, this user may not read; "" if it may read all."""
    files = sorted(where.glob("ledger.sqlite*")) if where.is_dir() else [where]
    file = next((one for one in files if one.exists() and not _may(one, os.R_OK)), None)
    return "" if file is None else _ownership(file)


def _let_in(store: Path) -> str:
    return f"its owner can let the group in: chmod -R g+rwX {store}; or choose another folder"


def _lock_problem(where: Path) -> str:
    """Returns why a file in a folder cannot be locked; "" if it can, or if no file can be written there."""
    folder = where if where.is_dir() else where.parent
    probe = folder / f".tmp-{uuid.uuid4().hex}"
    try:
        with probe.open("wb") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                return cause(error)
    except OSError:
        return ""
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""


def open_to_write(database: Path) -> sqlite3.Connection:
    """Opens a database, making its file where there is none; `write_ahead` comes next, once its schema is looked at.

    A new file follows the umask, and so do its log and the log's index. SQLite's own choice is that no group may write.

    Raises:
      StoreError: it is another user's, and this one may not write it.
    """
    with contextlib.suppress(FileExistsError, OSError):  # SQLite says what is wrong
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    _take_over_log(database)
    if _is_anothers(database) and not may_write(database):
        raise StoreError(
            "this user may not write the database",
            where=str(database),
            got=_ownership(database),
            next_step=f"its owner can let the group write: chmod -R g+w {database.parent}; or choose another --store",
        )
    return _open(database, "mode=rwc")


def _take_over_log(database: Path) -> None:
    """Replaces a log, and a log's index, that another user left and that this one may not write.

    A reader of an earlier version of lobench left them. The caller holds the store's lock, so that nobody writes them.
    """
    for suffix in ("-wal", "-shm"):
        file = database.with_name(database.name + suffix)
        with contextlib.suppress(OSError):
            if file.exists() and _is_anothers(file) and not may_write(file):
                if suffix == "-wal" and file.stat().st_size:
                    write_whole(file, file.read_bytes(), durable=True)
                else:
                    file.unlink()  # made again from the log


def _is_anothers(path: Path) -> bool:
    try:
        return path.stat().st_uid != os.geteuid() != 0
    except OSError:
        return False


def may_write(path: Path) -> bool:
    """Returns whether the process may write a file, or into a folder."""
    return _may(path, os.W_OK)


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _ownership(path: Path) -> str:
    """Returns `NAME belongs to alice (mode 644), and this is bob`; "" if that cannot be found out."""
    try:
        status = path.stat()
    except OSError:
        return ""
    mode = stat.S_IMODE(status.st_mode)
    return f"{path.name or path} belongs to {_user(status.st_uid)} (mode {mode:o}), and this is {_user(os.geteuid())}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def write_ahead(connection: sqlite3.Connection, *, synced: bool = True) -> None:
    """Has commits go to a log beside the database, which readers do not wait for.

    Args:
      synced: Each commit is on the disk when it returns. Otherwise its caller syncs the log, which may then serve
        many commits at once; where the file system knows no log of this kind, each is synced all the same.
    """
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' and not synced else 'FULL'}")


def open_to_read(database: Path, *, is_live: bool = True) -> sqlite3.Connection:
    """Opens a database that another process may be writing, and leaves nothing beside it that locks its owner out.

    SQLite makes a log and its index beside a database that it reads. Made by another user they would be that user's,
    and the owner could not write any more. So that only happens to the owner's own reading; others read a copy if no
    log is there. A log of writes cannot be read without writing beside it; if that is not allowed, a copy is read, too.

    Args:
      is_live: The connection sees what is committed later. False: it may see the content as it is now, for ever, and
        then the owner's reading leaves nothing either.
    """
    log, index = (database.with_name(database.name + suffix) for suffix in ("-wal", "-shm"))
    has_log = log.is_file() and index.is_file()
    if not has_log and (not is_live or _is_anothers(database)):
        copied = _copied(database) if _is_filled(log) else _at_rest(database)
        if copied is not None:
            return copied
    connection = _open(database, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if "readonly" not in str(error) and "unable to open" not in str(error):
            raise
    return _copied(database) if _is_filled(log) else _open(database, "immutable=1")


def _is_filled(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


def _at_rest(database: Path) -> sqlite3.Connection | None:
    """Returns the content of a database without a log, in memory; None if it is being written, or is none.

    A large one is read in place.
    """
    log = database.with_name(f"{database.name}-wal")
    try:
        before = database.stat()
        if before.st_size > _MOST_COPIED_BYTES:
            return _open(database, "immutable=1") if _is_anothers(database) else None
        connection = _open(Path(":memory:"), "")
        with contextlib.closing(_open(database, "immutable=1")) as file:
            file.backup(connection)
        after = database.stat()
    except (OSError, sqlite3.Error):
        return None
    marks = [(one.st_ino, one.st_size, one.st_mtime_ns) for one in (before, after)]
    if marks[0] != marks[1] or log.exists():
        connection.close()
        return None
    connection.execute("PRAGMA query_only=1")
    return connection


def _copied(database: Path) -> sqlite3.Connection:
    """Returns the content of a database and its log, in memory."""
    with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
        copy = Path(folder) / database.name
        for file in (database, database.with_name(f"{database.name}-wal")):
            shutil.copyfile(file, copy.with_name(file.name))
        connection = _open(Path(":memory:"), "")
        with contextlib.closing(_open(copy, "mode=rw")) as copied:
            copied.backup(connection)
        connection.execute("PRAGMA query_only=1")
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
            self._file = retried(lambda: _opened_lock(store / file), may_forbid=False, most_seconds=_PATIENCE_SECONDS)
        try:
            self._take(store, name, busy)
        except BaseException:
            os.close(self._file)
            raise

    def _take(self, store: Path, name: str, busy: str) -> None:
        try:
            _lock(self._file)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                got = _describe(os.pread(self._file, 4096, 0))
                step = "stop it, or give this one another --name or --store"
                raise StoreBusy(busy, where=str(store), got=got, next_step=step) from error
            with unusable_store(store, "this file system cannot lock files, which is what keeps two writers apart"):
                raise
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "name": name, "since": since})
        if fcntl.fcntl(self._file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            return  # another user's file, which keeps that user's name
        with unusable_store(store):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, holder.encode(), 0)

    def release(self) -> None:
        os.close(self._file)


def _opened_lock(file: Path) -> int:
    """Opens a lock's file, which follows the umask; another user's file that may only be read locks as well."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except PermissionError:
        if not _is_anothers(file):
            raise
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def _lock(file: int) -> None:
    """Takes a lock, and asks again while the file system has none to give (ENOLCK)."""

    def take() -> OSError | None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            return error  # held: no matter of patience
        return None

    held = retried(take, most_seconds=_PATIENCE_SECONDS)
    if held is not None:
        raise held


@contextlib.contextmanager
def unusable_store(store: Path, what: str = "cannot use the result store") -> Iterator[None]:
    """Turns what the system says against a store's folder into one clear line."""
    try:
        yield
    except OSError as error:
        got, next_step = cause(error), "choose another folder"
        if error.errno == errno.ENOLCK:
            got, next_step = f"{got} (ENOLCK)", _NO_LOCKS
        elif isinstance(error, PermissionError):
            refused = Path(error.filename) if isinstance(error.filename, str) else store
            if whose := _ownership(_first_that_exists(refused)):
                got, next_step = f"{got}: {whose}", _let_in(store)
        raise StoreError(what, where=str(store), got=got, next_step=next_step) from error


def _first_that_exists(path: Path) -> Path:
    """Returns a path, or the nearest folder above it that is there and can be looked at."""
    for one in (path, *path.absolute().parents):
        with contextlib.suppress(OSError):
            one.stat()
            return one
    return path


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
