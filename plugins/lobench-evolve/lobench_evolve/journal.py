"""Journal of a run in SQLite, from which a killed run resumes with the same bits, and any run can be replayed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lobench import StoreError
from lobench.extend import StoreLock, database_errors, open_to_read, open_to_write, transaction, write_ahead
from lobench_evolve.differences import BINDINGS_FIELD, continuation_error, differences
from lobench_evolve.truncation_ga import Generation

__all__ = ["Block", "ClosedGeneration", "RunJournal", "RunProgress", "decode_fitness", "read_generations", "read_run"]

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS run (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results (
  arrival INTEGER PRIMARY KEY,      -- order in which results came: where the first N close a generation it decides
  generation INTEGER NOT NULL,
  phase TEXT NOT NULL,              -- population, elite
  block INTEGER NOT NULL,           -- members_per_program members
  fitness BLOB NOT NULL,            -- float32 little-endian, a value a member
  UNIQUE (generation, phase, block)
);
CREATE TABLE IF NOT EXISTS generations (
  generation INTEGER PRIMARY KEY,
  record TEXT NOT NULL,             -- JSON: `Generation`, and how many results closed it
  seconds REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS state (only INTEGER PRIMARY KEY CHECK (only = 0), generation INTEGER, data BLOB);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Fitness of one block of members, as received from a worker."""

    block: int
    fitness: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedGeneration:
    """A generation that ended, its result, and its duration in the session that ended it."""

    generation: int
    result: Generation
    seconds: float


class RunJournal:
    """Journal of one run. The process of the run is its only writer.

    Args:
      folder: Folder of the run.
      identity: Settings, bindings and seed, which must not change when a run is resumed.
      bindings: Bindings of the cases, of which `identity` has a hash. Used to report differences.
    Raises:
      StoreBusy: Another process writes the journal.
      UsageError: The journal belongs to another run.
      StoreError: The journal cannot be written.
    """

    def __init__(self, folder: Path, identity: Mapping[str, str], *, bindings: str = "") -> None:
        self._bindings = bindings
        self._path = folder / "evolve.sqlite"
        self._lock = StoreLock(folder, file="evolve.lock", busy_message="another `lobench evolve` writes this run")
        with _convert_errors(self._path):
            self._connection = open_to_write(self._path)
            write_ahead(self._connection)
            self._connection.executescript(_SCHEMA)
        self.check({"schema_version": str(_SCHEMA_VERSION), **identity})

    def check(self, identity_values: Mapping[str, str]) -> None:
        """Stores values in a journal without results. Compares them with the stored ones if there are results.

        Raises:
          UsageError: Values differ. The message has each field with both values.
        """
        with self._transaction() as connection:
            has_results = connection.execute("SELECT 1 FROM results LIMIT 1").fetchone() is not None
            recorded_values = dict(connection.execute("SELECT name, value FROM run"))
            changed_values = {
                name: value for name, value in identity_values.items() if recorded_values.get(name) != value
            }
            if has_results and changed_values.keys() & recorded_values.keys():
                new_values = {**recorded_values, **identity_values, BINDINGS_FIELD: self._bindings}
                raise continuation_error(
                    str(self._path.parent), differences(recorded_values, new_values), values=new_values
                )
            if "bindings" in changed_values and self._bindings:
                changed_values[BINDINGS_FIELD] = self._bindings
            for name, value in changed_values.items():
                connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (name, value))
            if changed_values.keys() & recorded_values.keys():
                connection.execute("DELETE FROM state")

    def stored_blocks(self, generation: int, phase: str) -> list[Block]:
        """Returns the results of a phase in their order of arrival."""
        query = "SELECT block, fitness FROM results WHERE generation = ? AND phase = ? ORDER BY arrival"
        with _convert_errors(self._path):
            rows = self._connection.execute(query, (generation, phase)).fetchall()
        return [Block(block=block, fitness=decode_fitness(data)) for block, data in rows]

    def add_block(self, generation: int, phase: str, block: int, fitness: bytes) -> None:
        """Stores the results of one message durably."""
        columns = "(generation, phase, block, fitness)"
        with self._transaction() as connection:
            connection.execute(
                f"INSERT INTO results {columns} VALUES (?, ?, ?, ?)", (generation, phase, block, fitness)
            )

    def state(self) -> tuple[int, bytes] | None:
        """Returns the stored state and the generation that starts from it, or None."""
        with _convert_errors(self._path):
            return _read_state(self._connection)

    def store_generation(self, closed_generation: ClosedGeneration, state: bytes | None) -> None:
        """Stores the result of a generation, and the state that the next one starts from."""
        record = json.dumps(_finite_or_text(dataclasses.asdict(closed_generation.result)))
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO generations VALUES (?, ?, ?)",
                (closed_generation.generation, record, closed_generation.seconds),
            )
            if state is not None:
                self._store_state(connection, closed_generation.generation + 1, state)

    def begin_state(self, generation: int, state: bytes) -> None:
        """Stores the state that the run's first generation starts from."""
        with self._transaction() as connection:
            self._store_state(connection, generation, state)

    def _store_state(self, connection: sqlite3.Connection, generation: int, state: bytes) -> None:
        connection.execute("INSERT OR REPLACE INTO state VALUES (0, ?, ?)", (generation, state))

    def generations(self) -> list[ClosedGeneration]:
        with _convert_errors(self._path):
            return _read_generations(self._connection)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _convert_errors(self._path), transaction(self._connection):
            yield self._connection

    def close(self) -> None:
        self._connection.close()
        self._lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Progress of a run that is to be extended.

    Attributes:
      values: Identity of the run, and its bindings.
      state: Number of the next generation, and the state that it starts from; None at the start of a run.
    """

    values: Mapping[str, str]
    state: tuple[int, bytes] | None


def read_run(folder: Path) -> RunProgress:
    """Returns the identity, bindings and last state of a run from its journal.

    Raises:
      StoreError: The store has no run.
    """
    with _open_database(folder) as connection:
        values = dict(connection.execute("SELECT name, value FROM run"))
        return RunProgress(values=values, state=_read_state(connection))


def read_generations(folder: Path) -> list[ClosedGeneration]:
    """Returns the closed generations of a run, which may be in progress.

    Raises:
      StoreError: The store has no run.
    """
    with _open_database(folder) as connection:
        return _read_generations(connection)


@contextlib.contextmanager
def _open_database(folder: Path) -> Iterator[sqlite3.Connection]:
    path = folder / "evolve.sqlite"
    if not path.is_file():
        raise StoreError(
            "no run of an evolution found", where=str(folder), next_step="`lobench evolve CONFIG.gin --store` makes one"
        )
    with _convert_errors(path), contextlib.closing(open_to_read(path)) as connection:
        yield connection


def _read_state(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    row = connection.execute("SELECT generation, data FROM state").fetchone()
    return (row[0], row[1]) if row else None


def _convert_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    """Converts SQLite's errors about a journal into one line."""
    return database_errors(path, "the run's journal")


def _read_generations(connection: sqlite3.Connection) -> list[ClosedGeneration]:
    rows = connection.execute("SELECT generation, record, seconds FROM generations ORDER BY generation")
    return [
        ClosedGeneration(generation=generation, result=Generation(**_with_floats(json.loads(record))), seconds=seconds)
        for generation, record, seconds in rows
    ]


def decode_fitness(data: bytes) -> tuple[float, ...]:
    """Returns the fitness of a block's members."""
    return struct.unpack(f"<{len(data) // 4}f", data)


def _finite_or_text(record: Mapping[str, Any]) -> dict[str, Any]:
    """Converts non-finite floats to text, because JSON has no NaN."""
    return {
        name: repr(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def _with_floats(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: float(value) if isinstance(value, str) else value for name, value in record.items()}
