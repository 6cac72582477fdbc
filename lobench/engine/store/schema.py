"""Opening a ledger's database, as one of today's schema."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from lobench.core.errors import StoreError
from lobench.core.wording import one_line_of
from lobench.engine.store.database import (
    database_errors,
    newer_schema,
    open_to_read,
    open_to_write,
    schema_version,
    unusable_store,
    write_ahead,
)
from lobench.engine.store.migrations import SCHEMA_VERSION, keep_copy, make_current, see_as_now

__all__ = ["connect", "intact_rows", "store_errors"]


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
        raise StoreError("there is no result store here", where=str(store), next_step="is the path right?")
    with store_errors(store):
        connection, version = _look_on(database) if read_only else _open_to_write(database)
    try:
        if version > SCHEMA_VERSION:
            raise newer_schema(store, got=version, expected=SCHEMA_VERSION)
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
    connection = open_to_write(database)
    try:
        return connection, _version_or_none(connection)
    except BaseException:
        connection.close()
        raise


def _prepare(
    connection: sqlite3.Connection, version: int, database: Path, store: Path, say: Callable[[str], None]
) -> None:
    write_ahead(connection)
    if not 0 < version < SCHEMA_VERSION:
        make_current(connection, version)
        return
    copy = keep_copy(connection, database, store, version)
    make_current(connection, version)
    say(f"{store / 'ledger.sqlite'}: taken from schema {version} to {SCHEMA_VERSION}; {copy.name} is what it was")


def _look_on(database: Path) -> tuple[sqlite3.Connection, int]:
    connection = open_to_read(database)
    return connection, schema_version(connection)


def _version_or_none(connection: sqlite3.Connection) -> int:
    """Returns the schema of a ledger that is to be written; 0 for one without content, as a kill may have left it."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "meta" in names and connection.execute("SELECT 1 FROM meta WHERE key = 'schema_version'").fetchone() is not None:
        return schema_version(connection)
    # Schema 1 was made statement by statement, its number last.
    return 1 if {"checkpoints", "evaluations"} <= names else 0
