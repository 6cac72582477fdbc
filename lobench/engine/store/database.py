"""SQLite files of a store: opening, locking, one writer and many readers, and explanations of SQLite's errors."""

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
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from lobench.core.errors import StoreBusy, StoreError
from lobench.core.wording import cause
from lobench.engine.group_files import open_to_group, open_tree_to_group
from lobench.engine.paths import path_exists
from lobench.engine.retries import retried
from lobench.engine.whole_file import write_whole

__all__ = [
    "StoreLock",
    "access_advice",
    "database_errors",
    "is_of_other_user",
    "may_write",
    "newer_schema",
    "open_to_read",
    "open_to_write",
    "refused_ownership",
    "schema_version",
    "transaction",
    "unusable_store",
    "write_ahead",
]

_MAX_COPIED_BYTES = 64 << 20  # largest database that is read as a copy
_PATIENCE_SECONDS = 10.0  # retries while a disk fails
_ENDED_HOLDER_SECONDS, _ENDED_HOLDER_PAUSE = 10.0, 0.05  # wait for the lock of a process that has ended
_BUSY_SECONDS = 30.0  # wait for another program that holds the database

_FREE_SPACE = "free some space and start again: nothing acknowledged is lost"
_ANOTHER_FOLDER = "choose another folder"
_LOCKED_ADVICE = (
    f"another program has held its lock for {_BUSY_SECONDS:g} s (an sqlite3 shell, a backup?): end that, "
    "and the same command goes on; nothing acknowledged is lost"
)
_RESTORE_ADVICE = "move the file away, or restore a copy"
# SQLite also reports CORRUPT for an intact file if a read failed (EIO).
_DISK_ADVICE = (
    "if its disk failed for a moment, the same command goes on; if this message comes again, check the file "
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
    "IOERR": f"is the disk full, or failing? {_FREE_SPACE}",  # also reported if a disk has no room for the log's index
    "READONLY": _ANOTHER_FOLDER,
    "CANTOPEN": _ANOTHER_FOLDER,
    "BUSY": _LOCKED_ADVICE,
    "LOCKED": _LOCKED_ADVICE,
    "CORRUPT": _DISK_ADVICE,
    "NOTADB": _RESTORE_ADVICE,
}


@contextlib.contextmanager
def database_errors(where: Path | str, database_name: str) -> Iterator[None]:
    """Turns SQLite's errors into a `StoreError` with a next step.

    Args:
      where: Path of the store or of the file.
      database_name: Name of the thing that cannot be used: "the result store".

    >>> with database_errors("results", "the result store"):
    ...     raise sqlite3.DatabaseError("file is not a database")
    Traceback (most recent call last):
    lobench.core.errors.StoreError: ...
    """
    try:
        yield
    except sqlite3.Error as error:
        got = cause(error)
        next_step = _next_step(error)
        if next_step == _LOCKED_ADVICE and (problem := _lock_problem(Path(where))):
            got, next_step = problem, _NO_LOCKS  # SQLite cannot tell an impossible lock from a held one
        elif next_step == _ANOTHER_FOLDER and (owner := _unreadable_owner(Path(where))):
            got = f"Permission denied: {owner}"
            next_step = access_advice(Path(where))
        raise StoreError(f"cannot use {database_name}", where=str(where), got=got, next_step=next_step) from error


def _next_step(error: sqlite3.Error) -> str:
    if "no such table" in str(error):
        return "was its database emptied? restore a copy, or start again, with an empty store"
    name = getattr(error, "sqlite_errorname", "SQLITE_NOTADB")  # "SQLITE_IOERR_WRITE", say
    return next((text for kind, text in _NEXT_STEPS.items() if name.startswith(f"SQLITE_{kind}")), "")


def _unreadable_owner(where: Path) -> str:
    """Returns the owner of the first file of a store that this user may not read; "" if all are readable."""
    files = sorted(where.glob("ledger.sqlite*")) if where.is_dir() else [where]
    file = next((file for file in files if file.exists() and not _has_access(file, os.R_OK)), None)
    return "" if file is None else _ownership_text(file)


def access_advice(store: Path) -> str:
    """Returns the next step for a user who may not use a store."""
    return f"its owner can let the group in: chmod -R g+rwX {store}; or choose another folder"


def _lock_problem(where: Path) -> str:
    """Returns the reason why files in a folder cannot be locked; "" if they can, or if the folder is read-only."""
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
    """Opens a database, or creates it. The caller checks its schema and then calls `write_ahead`.

    New files, including the log and its index, follow the umask. SQLite's default would not let a group write.

    Raises:
      StoreError: The file belongs to another user, and this user may not write it.

    >>> connection = open_to_write(Path("own.sqlite"))
    >>> connection.execute("CREATE TABLE found (value REAL)").close()
    """
    with contextlib.suppress(FileExistsError, OSError):  # SQLite reports the problem below
        os.close(os.open(database, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        open_to_group(database, store=database.parent)
    _take_over_log(database)
    if is_of_other_user(database) and not may_write(database):
        raise StoreError(
            "this user may not write the database",
            where=str(database),
            got=_ownership_text(database),
            next_step=f"its owner can let the group write: chmod -R g+w {database.parent}; or choose another --store",
        )
    return _open(database, "mode=rwc")


def _take_over_log(database: Path) -> None:
    """Replaces a log and its index if another user left them and this user may not write them.

    Readers of earlier versions of lobench left such files. The caller holds the store's lock, so no other process is
    writing them.
    """
    for suffix in ("-wal", "-shm"):
        file = database.with_name(database.name + suffix)
        with contextlib.suppress(OSError):
            if file.exists() and is_of_other_user(file) and not may_write(file):
                if suffix == "-wal" and file.stat().st_size:
                    write_whole(file, file.read_bytes(), durable=True)
                else:
                    file.unlink()  # made again from the log


def is_of_other_user(path: Path) -> bool:
    """Returns whether a file belongs to another user. Root counts as the owner of every file.

    >>> is_of_other_user(Path("results/ledger.sqlite"))
    False
    """
    try:
        return path.stat().st_uid != os.geteuid() != 0
    except OSError:
        return False


def may_write(path: Path) -> bool:
    """Returns whether this process may write a file, or create files in a folder."""
    return _has_access(path, os.W_OK)


def _has_access(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _ownership_text(path: Path) -> str:
    """Returns `NAME belongs to alice (mode 644), and this is bob`; "" if the file's status cannot be read."""
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
    """Puts a database into write-ahead mode: commits go to a log next to it, and readers do not block.

    Args:
      connection: Connection to the database.
      synced: Whether each commit is on the disk when it returns. If not, the caller syncs the log, once for many
        commits. On file systems without write-ahead mode, each commit is synced anyway.

    >>> connection = open_to_write(Path("ahead.sqlite"))
    >>> write_ahead(connection)
    >>> connection.execute("PRAGMA journal_mode").fetchone()
    ('wal',)
    """
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' and not synced else 'FULL'}")


def open_to_read(database: Path, *, is_live: bool = True) -> sqlite3.Connection:
    """Opens a database for reading, without leaving files that prevent its owner from writing.

    SQLite creates a log and its index next to a database that it reads. If another user created them, the owner could
    no longer write. So other users, and readers that need no later commits, read a copy in memory if there is no log. A
    log can be opened only with write access to its folder; without it, a copy is read too.

    Args:
      database: File to open.
      is_live: Whether the connection sees later commits. If False, it may be a copy of the present content, and no
        files are created even if the owner reads.

    >>> connection = open_to_write(Path("other.sqlite"))
    >>> connection.execute("CREATE TABLE found (value REAL)").close()
    >>> open_to_read(Path("other.sqlite")).execute("SELECT count(*) FROM found").fetchone()
    (0,)
    """
    log, index = (database.with_name(database.name + suffix) for suffix in ("-wal", "-shm"))
    has_log = log.is_file() and index.is_file()
    if not has_log and (not is_live or is_of_other_user(database)):
        memory_copy = _copy_with_log(database) if _is_filled(log) else _memory_copy(database)
        if memory_copy is not None:
            return memory_copy
    connection = _open(database, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master")
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if "readonly" not in str(error) and "unable to open" not in str(error):
            raise
    return _copy_with_log(database) if _is_filled(log) else _open(database, "immutable=1")


def _is_filled(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


def _memory_copy(database: Path) -> sqlite3.Connection | None:
    """Copies a database that has no write-ahead log into memory; None if it is being written or cannot be read.

    A database of more than 64 MiB is not copied: another user's is opened read-only, and one's own gives None.
    """
    log = database.with_name(f"{database.name}-wal")
    try:
        old_status = database.stat()
        if old_status.st_size > _MAX_COPIED_BYTES:
            return _open(database, "immutable=1") if is_of_other_user(database) else None
        connection = _open(Path(":memory:"), "")
        with contextlib.closing(_open(database, "immutable=1")) as file:
            file.backup(connection)
        new_status = database.stat()
    except (OSError, sqlite3.Error):
        return None
    stamps = [(status.st_ino, status.st_size, status.st_mtime_ns) for status in (old_status, new_status)]
    if stamps[0] != stamps[1] or log.exists():
        connection.close()
        return None
    connection.execute("PRAGMA query_only=1")
    return connection


def _copy_with_log(database: Path) -> sqlite3.Connection:
    """Returns a copy in memory of a database and its log."""
    with tempfile.TemporaryDirectory(prefix="lobench-") as folder:
        copied_file = Path(folder) / database.name
        for file in (database, database.with_name(f"{database.name}-wal")):
            shutil.copyfile(file, copied_file.with_name(file.name))
        connection = _open(Path(":memory:"), "")
        with contextlib.closing(_open(copied_file, "mode=rw")) as copied_database:
            copied_database.backup(connection)
        connection.execute("PRAGMA query_only=1")
        return connection


def _open(database: Path, mode: str) -> sqlite3.Connection:
    name = f"{database.absolute().as_uri()}?{mode}" if mode else str(database)
    return sqlite3.connect(name, uri=bool(mode), isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits the body's writes together. They are rolled back if the body raises or the commit fails.

    >>> connection = open_to_write(Path("written.sqlite"))
    >>> with transaction(connection):
    ...     connection.execute("CREATE TABLE found (value REAL)").close()
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def schema_version(connection: sqlite3.Connection) -> int:
    """Returns the version of a database's schema, from its table `meta`.

    >>> schema_version(open_to_read(Path("results/ledger.sqlite"))) > 0
    True
    """
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    text = str(row[0]) if row is not None else "none"
    if not text.isdecimal():
        raise sqlite3.DatabaseError(f"not a database of lobench: its schema version is {text!r}, which is not a number")
    return int(text)


def newer_schema(where: Path, *, got: int, expected: int) -> StoreError:
    """Returns the error for a database that a later version wrote. The database is left unchanged.

    >>> str(newer_schema(Path("own.sqlite"), got=3, expected=2))
    'own.sqlite: the store was written by a newer lobench; got schema version 3; expected 2 or older; upgrade lobench'
    """
    return StoreError(
        "the store was written by a newer lobench",
        where=str(where),
        got=f"schema version {got}",
        expected=f"{expected} or older",
        next_step="upgrade lobench",
    )


class StoreLock:
    """Advisory lock that admits one writer per store. The system releases it when its holder dies.

    Args:
      store: Folder of the store.
      name: Name of the holder, shown to processes that find the store locked.
      file: Name of the lock's file in the store.
      busy_message: Message of the `StoreBusy` error.
      parent: Id of the process that started this one, and whose end ends it.
      on_wait: Called once with a text that names the holder, if the lock is waited for, because the holder or its
        parent has ended. None: no call.
    Raises:
      StoreBusy: Another process holds the lock. The message names it.
      StoreError: The folder cannot be written or locked.

    >>> lock = StoreLock(Path("locked"))
    >>> StoreLock(Path("locked"))
    Traceback (most recent call last):
    lobench.core.errors.StoreBusy: ...
    >>> lock.release()
    """

    FILE = "chief.lock"

    def __init__(
        self,
        store: Path,
        name: str = "",
        *,
        file: str = FILE,
        busy_message: str = "another chief writes this store",
        parent: int | None = None,
        on_wait: Callable[[str], object] | None = None,
    ) -> None:
        self._store = store
        while True:
            with unusable_store(store):
                self._file = retried(
                    lambda: _open_lock_file(store / file), retries_forbidden=False, most_seconds=_PATIENCE_SECONDS
                )
            try:
                self._acquire(store, name, busy_message, parent, on_wait)
            except BaseException:
                os.close(self._file)
                raise
            if _is_file_at(self._file, store / file):
                open_to_group(store / file, store=store)
                open_tree_to_group(store)  # a killed process of this user may have left files closed to the group
                break
            os.close(self._file)  # its holder has removed the new store since the file was opened

    def _acquire(
        self, store: Path, name: str, busy_message: str, parent: int | None, on_wait: Callable[[str], object] | None
    ) -> None:
        deadline = time.monotonic() + _ENDED_HOLDER_SECONDS
        try:
            while not _lock(self._file, waits=self._is_ending(deadline)):
                if on_wait is not None:
                    on_wait(_holder_text(os.pread(self._file, 4096, 0)))
                    on_wait = None
                time.sleep(_ENDED_HOLDER_PAUSE)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                got = _holder_text(os.pread(self._file, 4096, 0))
                advice = "stop it, or give this one another --store"
                raise StoreBusy(busy_message, where=str(store), got=got, next_step=advice) from error
            with unusable_store(store, "this file system cannot lock files, which is what keeps two writers apart"):
                raise
        locked_since = datetime.now(UTC).isoformat(timespec="seconds")
        parent_field = {} if parent is None else {"parent": parent}
        holder = json.dumps({**_process_identity(), **parent_field, "name": name, "since": locked_since})
        if fcntl.fcntl(self._file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            return  # another user's file, which cannot be written
        with unusable_store(store):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, holder.encode(), 0)

    def _is_ending(self, deadline: float) -> bool:
        """Returns whether the holder of the lock ends by itself, because a process named in the lock has ended.

        A child process that the named holder was starting may hold the lock for a moment longer, until the deadline. A
        holder whose parent has ended still finishes its work.
        """
        if self._has_ended("pid"):
            return time.monotonic() < deadline
        return self._has_ended("parent")

    def _has_ended(self, role: str) -> bool:
        """Returns whether a process named in the lock, `pid` or `parent`, ran on this machine and has ended."""
        try:
            holder = json.loads(os.pread(self._file, 4096, 0))
            if holder["host"] != socket.gethostname():
                return False
            os.kill(holder[role], 0)
        except ProcessLookupError:
            return True
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return False
        return False

    def release(self) -> None:
        """Releases the lock. In a shared store, gives the group access to the files that this user wrote."""
        open_tree_to_group(self._store)  # includes files that sinks and commands wrote
        os.close(self._file)

    @classmethod
    def is_anothers(cls, store: Path) -> bool:
        """Returns whether the last holder of a store's lock was another process; True if unknown."""
        try:
            holder = json.loads((store / cls.FILE).read_bytes())
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True
        return not isinstance(holder, dict) or not _process_identity().items() <= holder.items()


def _process_identity() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname()}


def _open_lock_file(file: Path) -> int:
    """Opens a lock's file, which follows the umask.

    Another user's file is opened read-only, which suffices for locking.
    """
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if file.parent.is_dir():
                raise
            # Another process has removed its refused store since `mkdir`.
        except PermissionError:
            if not is_of_other_user(file):
                raise
            return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def _is_file_at(descriptor: int, path: Path) -> bool:
    """Returns whether a path still names an open file; True if the disk fails for the moment."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _lock(descriptor: int, *, waits: bool) -> bool:
    """Tries to take a lock, and retries only while the file system is out of locks (ENOLCK).

    Args:
      descriptor: Descriptor of the file.
      waits: Whether to return False if another process holds the lock, so that the caller can wait. If not, the error
        is raised.
    """

    def try_lock() -> OSError | None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            return error  # held by another process: do not retry
        return None

    lock_error = retried(try_lock, most_seconds=_PATIENCE_SECONDS)
    if lock_error is not None and not waits:
        raise lock_error
    return lock_error is None


def refused_ownership(error: PermissionError, store: Path) -> str:
    """Returns the owner and mode of the file to which this user has no access; "" if they are unknown."""
    refused_path = Path(error.filename) if isinstance(error.filename, str) else store
    return _ownership_text(_existing_ancestor(refused_path))


@contextlib.contextmanager
def unusable_store(store: Path, problem: str = "cannot use the result store") -> Iterator[None]:
    """Turns an `OSError` on a store's folder into a `StoreError` with a next step."""
    try:
        yield
    except OSError as error:
        got = cause(error)
        next_step = "choose another folder"
        if isinstance(error, FileExistsError | NotADirectoryError) and path_exists(store, kind="file"):
            raise StoreError(
                problem, where=str(store), got="a file", expected="a folder", next_step=next_step
            ) from error
        if error.errno == errno.ENOLCK:
            got, next_step = f"{got} (ENOLCK)", _NO_LOCKS
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            next_step = _FREE_SPACE
        elif isinstance(error, PermissionError) and (owner := refused_ownership(error, store)):
            got = f"{got}: {owner}"
            next_step = access_advice(store)
        raise StoreError(problem, where=str(store), got=got, next_step=next_step) from error


def _existing_ancestor(path: Path) -> Path:
    """Returns a path, or the nearest folder above it that exists and is accessible."""
    for candidate in (path, *path.absolute().parents):
        with contextlib.suppress(OSError):
            candidate.stat()
            return candidate
    return path


def _holder_text(content: bytes) -> str:
    try:
        holder = json.loads(content)
        name = f"{holder['name']!r}, " if holder["name"] else ""
        return f"{name}process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown holder"
