"""Opening of a ledger database at the current schema."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

from lobench.core.errors import StoreError
from lobench.core.wording import one_line_of
from lobench.engine.store.bundle import ledger_file
from lobench.engine.store.database import (
    database_errors,
    newer_schema,
    open_to_read,
    open_to_write,
    schema_version,
    unusable_store,
    write_ahead,
)
from lobench.engine.store.tables import OLDEST_SCHEMA, SCHEMA_VERSION, make_tables, show_code

_TAKES_OVER = "59df9d4"  # the last one that reads schema 1

__all__ = ["check_schema", "connect", "intact_rows", "store_errors"]


@contextlib.contextmanager
def store_errors(store: Path) -> Iterator[None]:
    """Turns SQLite's and the system's errors into one clear line."""
    with unusable_store(store), database_errors(store, "the result store"):
        yield


def intact_rows(where: Path | str) -> contextlib.AbstractContextManager[None]:
    """Turns what goes wrong when a row's content is read into one clear line."""
    errors = (ValueError, TypeError, KeyError, struct.error)
    next_step = "move the store away, or restore a copy"
    return one_line_of(errors, StoreError, "a row of the ledger is damaged", where=where, next_step=next_step)


def connect(store: Path, *, read_only: bool, database: Path | None = None, is_live: bool = False) -> sqlite3.Connection:
    """Opens the ledger of a store. A writer makes its tables where there are none.

    Args:
      is_live: A reader that sees what is committed later.
      database: Its file, where that does not lie in the store.
    Raises:
      StoreError: not readable, not writable, not a ledger, or one of another schema, which is left as it is.
    """
    database = database or ledger_file(store)
    with unusable_store(store):
        is_there = not read_only or database.is_file()
    if not is_there:
        raise StoreError("there is no result store here", where=str(store), next_step="is the path right?")
    with store_errors(store):
        connection, version = _look_on(database, is_live=is_live) if read_only else _open_to_write(database)
    try:
        check_schema(version, store)
        if not read_only:
            with store_errors(store):
                write_ahead(connection)
                make_tables(connection)
        else:
            with store_errors(store):
                show_code(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_to_write(database: Path) -> tuple[sqlite3.Connection, int]:
    connection = open_to_write(database)
    try:
        return connection, _version_or_none(connection)
    except BaseException:
        connection.close()
        raise


def check_schema(version: int, where: Path) -> None:
    """Raises StoreError for a ledger of a schema that cannot be read; 0 is of a new one."""
    if version > SCHEMA_VERSION:
        raise newer_schema(where, got=version, expected=SCHEMA_VERSION)
    if 0 < version < OLDEST_SCHEMA:
        raise StoreError(
            f"the store has schema {version}, of a lobench before 0.1.0",
            where=str(where),
            expected=f"schema {OLDEST_SCHEMA} or {SCHEMA_VERSION}",
            next_step=f"lobench at revision {_TAKES_OVER} takes it over: `lobench merge STORE --output NEW` there",
        )


def _look_on(database: Path, *, is_live: bool) -> tuple[sqlite3.Connection, int]:
    connection = open_to_read(database, is_live=is_live)
    return connection, schema_version(connection)


def _version_or_none(connection: sqlite3.Connection) -> int:
    """Returns the schema of a ledger that is to be written; 0 for one without content, as a kill may have left it."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "meta" in names and connection.execute("SELECT 1 FROM meta WHERE key = 'schema_version'").fetchone() is not None:
        return schema_version(connection)
    # Schema 1 was made statement by statement, its number last.
    return 1 if {"checkpoints", "evaluations"} <= names else 0
