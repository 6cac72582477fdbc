"""What a run has done, in SQLite: enough that a killed one goes on with the same bits, and that any run replays."""

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
from lobench_evolve.differences import LINES, differences, refusal
from lobench_evolve.truncation_ga import Generation

__all__ = ["Block", "Closed", "RunJournal", "RunReached", "read_generations", "read_run", "unpacked"]

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
    """The fitness of one block of members, as it came from a worker."""

    block: int
    fitness: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A generation that ended: what came of it, and in how many seconds of its last session."""

    generation: int
    ended: Generation
    seconds: float


class RunJournal:
    """One run's journal; its process is the only writer.

    Args:
      folder: Of the run.
      identity: What must be the same when a run goes on: settings, bindings, seed.
      bindings: The cases' own lines, of which the identity has a hash: they say what differs.
    Raises:
      StoreBusy: another process writes it. UsageError: it belongs to another run. StoreError: it cannot be written.
    """

    def __init__(self, folder: Path, identity: Mapping[str, str], *, bindings: str = "") -> None:
        self._bindings = bindings
        self._path = folder / "evolve.sqlite"
        self._lock = StoreLock(folder, file="evolve.lock", busy="another `lobench evolve` writes this run")
        with _using(self._path):
            self._connection = open_to_write(self._path)
            write_ahead(self._connection)
            self._connection.executescript(_SCHEMA)
        self.check({"schema_version": str(_SCHEMA_VERSION), **identity})

    def check(self, values: Mapping[str, str]) -> None:
        """Writes values into a new run, or one that has no result yet; compares them with those of another.

        Raises:
          UsageError: some differ; each field is named with both values.
        """
        with self._transaction() as connection:
            has_results = connection.execute("SELECT 1 FROM results LIMIT 1").fetchone() is not None
            known = dict(connection.execute("SELECT name, value FROM run"))
            changed = {name: value for name, value in values.items() if known.get(name) != value}
            if has_results and changed.keys() & known.keys():
                now = {**known, **values, LINES: self._bindings}
                raise refusal(str(self._path.parent), differences(known, now), values=now)
            if "bindings" in changed and self._bindings:
                changed[LINES] = self._bindings
            for name, value in changed.items():
                connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (name, value))
            if changed.keys() & known.keys():
                connection.execute("DELETE FROM state")

    def blocks(self, generation: int, phase: str) -> list[Block]:
        """Returns the results of a phase in their order of arrival."""
        query = "SELECT block, fitness FROM results WHERE generation = ? AND phase = ? ORDER BY arrival"
        with _using(self._path):
            rows = self._connection.execute(query, (generation, phase)).fetchall()
        return [Block(block=block, fitness=unpacked(data)) for block, data in rows]

    def add(self, generation: int, phase: str, block: int, fitness: bytes) -> None:
        """Keeps one message's results; durable when it returns."""
        columns = "(generation, phase, block, fitness)"
        with self._transaction() as connection:
            connection.execute(
                f"INSERT INTO results {columns} VALUES (?, ?, ?, ?)", (generation, phase, block, fitness)
            )

    def state(self) -> tuple[int, bytes] | None:
        """Returns the generation that starts from the state, and the state; None where there is none."""
        with _using(self._path):
            return _state(self._connection)

    def close_generation(self, closed: Closed, state: bytes | None) -> None:
        """Ends a generation, with the state that the next one starts from."""
        record = json.dumps(_finite_or_text(dataclasses.asdict(closed.ended)))
        with self._transaction() as connection:
            connection.execute("INSERT INTO generations VALUES (?, ?, ?)", (closed.generation, record, closed.seconds))
            if state is not None:
                self._keep_state(connection, closed.generation + 1, state)

    def begin_state(self, generation: int, state: bytes) -> None:
        """Keeps what the run's first generation starts from."""
        with self._transaction() as connection:
            self._keep_state(connection, generation, state)

    def _keep_state(self, connection: sqlite3.Connection, generation: int, state: bytes) -> None:
        connection.execute("INSERT OR REPLACE INTO state VALUES (0, ?, ?)", (generation, state))

    def generations(self) -> list[Closed]:
        with _using(self._path):
            return _generations(self._connection)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _using(self._path), transaction(self._connection):
            yield self._connection

    def close(self) -> None:
        self._connection.close()
        self._lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReached:
    """What a run that is extended has reached.

    Attributes:
      values: What its identity was, and its bindings' lines.
      state: That its next generation would start from, and which one that is; None where there is none.
    """

    values: Mapping[str, str]
    state: tuple[int, bytes] | None


def read_run(folder: Path) -> RunReached:
    """Returns what there is of a run.

    Raises:
      StoreError: there is no run.
    """
    with _opened(folder) as connection:
        values = dict(connection.execute("SELECT name, value FROM run"))
        return RunReached(values=values, state=_state(connection))


def read_generations(folder: Path) -> list[Closed]:
    """Returns the generations of a run, which may be under way.

    Raises:
      StoreError: there is no run.
    """
    with _opened(folder) as connection:
        return _generations(connection)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[sqlite3.Connection]:
    path = folder / "evolve.sqlite"
    if not path.is_file():
        raise StoreError(
            "there is no run", where=str(folder), next_step="`lobench evolve CONFIG.gin --store` makes one"
        )
    with _using(path), contextlib.closing(open_to_read(path)) as connection:
        yield connection


def _state(connection: sqlite3.Connection) -> tuple[int, bytes] | None:
    row = connection.execute("SELECT generation, data FROM state").fetchone()
    return (row[0], row[1]) if row else None


def _using(path: Path) -> contextlib.AbstractContextManager[None]:
    """Says in a line what is wrong with a journal that SQLite does not take."""
    return database_errors(path, "the run's journal")


def _generations(connection: sqlite3.Connection) -> list[Closed]:
    rows = connection.execute("SELECT generation, record, seconds FROM generations ORDER BY generation")
    return [
        Closed(generation=generation, ended=Generation(**_numbers(json.loads(record))), seconds=seconds)
        for generation, record, seconds in rows
    ]


def unpacked(data: bytes) -> tuple[float, ...]:
    """Returns the fitness of a block's members."""
    return struct.unpack(f"<{len(data) // 4}f", data)


def _finite_or_text(record: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {
        name: repr(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def _numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: float(value) if isinstance(value, str) else value for name, value in record.items()}
