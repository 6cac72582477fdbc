"""Opening of a ledger database at the current schema."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lobench.core.errors import StoreError
from lobench.core.wording import convert_errors
from lobench.engine.store.bundle import ledger_database, no_store_error
from lobench.engine.store.database import (
    database_errors,
    is_of_other_user,
    may_write,
    newer_schema,
    open_to_read,
    open_to_write,
    schema_version,
    unusable_store,
    write_ahead,
)
from lobench.engine.store.ledger_tables import OLDEST_SCHEMA, SCHEMA_VERSION, make_tables, show_code
from lobench.engine.store.network import READS_LOCAL_COPY, newer_local_database

_LAST_REVISION = "59df9d4"  # last revision that reads schema 1

__all__ = ["attached", "check_schema", "decoding_errors", "open_ledger_database", "store_errors", "was_used"]


@contextlib.contextmanager
def store_errors(store: Path) -> Iterator[None]:
    """Turns errors of SQLite and of the system into a `StoreError` with a next step."""
    with unusable_store(store), database_errors(store, "the result store"):
        yield


def decoding_errors(where: Path | str) -> contextlib.AbstractContextManager[None]:
    """Turns errors in decoding a row into a `StoreError`."""
    errors = (ValueError, TypeError, KeyError, struct.error)
    next_step = "move the store away, or restore a copy"
    return convert_errors(errors, StoreError, "a row of the ledger is damaged", where=where, next_step=next_step)


def open_ledger_database(
    store: Path, *, read_only: bool, database: Path | None = None, is_live: bool = False
) -> sqlite3.Connection:
    """Opens the ledger of a store. A writer creates missing tables.

    A ledger without tables reads as an empty one: its first writer has just begun, was killed, or had no space. If the
    store was used before, its ledger was emptied, which is an error.

    Args:
      store: Folder of the store, or a bundle.
      read_only: Whether the ledger is only read.
      database: Path of the database. None: the one in the store.
      is_live: Whether a reader sees later commits.
    Raises:
      StoreError: The ledger cannot be read or written, is not a ledger, or has another schema. It is left unchanged.
    """
    if database is None and read_only and os.environ.get(READS_LOCAL_COPY):
        database = newer_local_database(store)
    database = database or ledger_database(store)
    with unusable_store(store):
        is_present = not read_only or database.is_file()
    if not is_present:
        raise no_store_error(store)
    with store_errors(store):
        connection = open_to_read(database, is_live=is_live) if read_only else open_to_write(database)
    try:
        with store_errors(store):
            if read_only and not _has_tables(connection) and not was_used(store):
                connection.close()
                connection = _empty_ledger()
            check_schema(schema_version(connection) if read_only else _version_or_zero(connection), store)
            if read_only:
                show_code(connection)
            else:
                write_ahead(connection)
                make_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def attached(connection: sqlite3.Connection, store: Path) -> Iterator[None]:
    """Attaches the ledger of a store as `source` while the body runs, to be read only.

    SQLite creates side files next to a database that it attaches. A copy is attached if that is impossible, as on a
    read-only disk, if the files would be in the way of another user, or if readers have a copy in memory anyway.

    Raises:
      StoreError: The ledger cannot be read.
    """
    file = ledger_database(store).absolute()
    with contextlib.ExitStack() as stack:
        with store_errors(store):
            with contextlib.closing(open_ledger_database(store, read_only=True)) as source:
                _, _, open_file = source.execute("PRAGMA database_list").fetchone()
                if not open_file or is_of_other_user(file) or not may_write(file.parent):
                    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lobench-"))
                    file = Path(folder) / file.name
                    with contextlib.closing(sqlite3.connect(file)) as copy:
                        source.backup(copy)
            # A file name, not a URI: SQLite must be able to create the side files of a log that is being written.
            connection.execute("ATTACH ? AS source", (str(file),))
        stack.callback(connection.execute, "DETACH source")
        yield


def was_used(store: Path) -> bool:
    """Returns whether a store has been used: a watch makes these folders once the ledger has its tables."""
    return any((store / name).is_dir() for name in ("spool", "logs"))


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None


def _empty_ledger() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    make_tables(connection)
    connection.execute("PRAGMA query_only=1")
    return connection


def check_schema(version: int, where: Path) -> None:
    """Raises StoreError if a ledger's schema cannot be read. Version 0 stands for a new ledger."""
    if version > SCHEMA_VERSION:
        raise newer_schema(where, got=version, expected=SCHEMA_VERSION)
    if 0 < version < OLDEST_SCHEMA:
        raise StoreError(
            f"the store has schema {version}, of a lobench before 0.1.0",
            where=str(where),
            expected=f"schema {OLDEST_SCHEMA} or {SCHEMA_VERSION}",
            next_step=f"lobench at revision {_LAST_REVISION} takes it over: `lobench merge STORE --output NEW` there",
        )


def _version_or_zero(connection: sqlite3.Connection) -> int:
    """Returns the schema of a ledger that is to be written; 0 if it is empty, as a kill may leave it."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "meta" in names and connection.execute("SELECT 1 FROM meta WHERE key = 'schema_version'").fetchone() is not None:
        return schema_version(connection)
    # Schema 1 wrote its version last, so an interrupted creation has none.
    return 1 if {"checkpoints", "evaluations"} <= names else 0
