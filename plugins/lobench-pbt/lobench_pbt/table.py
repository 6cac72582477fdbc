"""The trial table in SQLite. What a decision reads costs no more for a longer history: every query has an index."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lobench import StoreError
from lobench_pbt.transitions import Score
from lobench_pbt.trial import Artifact, State, Trial

__all__ = ["StudyRow", "TrialTable", "connect", "reading", "studies", "transaction"]

SCHEMA_VERSION = 1

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS studies (
  name TEXT PRIMARY KEY, config TEXT NOT NULL, stopped INTEGER NOT NULL DEFAULT 0, next_id INTEGER NOT NULL DEFAULT 1,
  next_seq INTEGER NOT NULL DEFAULT 1);
CREATE TABLE IF NOT EXISTS trials (
  study TEXT NOT NULL, id INTEGER NOT NULL, state TEXT NOT NULL, is_terminal INTEGER NOT NULL,
  generation INTEGER NOT NULL, slot INTEGER NOT NULL, initiator_id INTEGER, opponent_id INTEGER,
  parent_ids TEXT NOT NULL, params TEXT NOT NULL, start_step INTEGER NOT NULL, n_steps INTEGER NOT NULL,
  warm_checkpoint TEXT, warm_state TEXT, checkpoint TEXT, train_state TEXT, seed INTEGER NOT NULL,
  attempt INTEGER NOT NULL, worker_id TEXT NOT NULL, lease_deadline REAL, fitness_deadline REAL, metrics TEXT,
  fitness TEXT, score REAL, reason TEXT NOT NULL, completed_seq INTEGER, has_child INTEGER NOT NULL,
  is_kept INTEGER NOT NULL, PRIMARY KEY (study, id), UNIQUE (study, initiator_id));
CREATE INDEX IF NOT EXISTS by_state ON trials (study, state, worker_id, id);
CREATE INDEX IF NOT EXISTS by_generation ON trials (study, generation, is_terminal);
CREATE INDEX IF NOT EXISTS childless ON trials (study, has_child, is_terminal, generation, completed_seq);
CREATE INDEX IF NOT EXISTS kept ON trials (study, is_kept, generation);
CREATE INDEX IF NOT EXISTS by_score ON trials (study, score DESC, id);
CREATE TABLE IF NOT EXISTS measurements (
  study TEXT NOT NULL, trial INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, seconds REAL NOT NULL,
  metrics TEXT NOT NULL, PRIMARY KEY (study, trial, attempt, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS scores (
  study TEXT NOT NULL, trial INTEGER NOT NULL, sha256 TEXT NOT NULL, metrics TEXT, reason TEXT NOT NULL,
  PRIMARY KEY (study, trial, sha256)) WITHOUT ROWID;
"""

_ENCODED: dict[str, Callable[[Any], str | None]] = {
    "state": str,
    "parent_ids": lambda ids: json.dumps(list(ids)),
    "params": lambda params: json.dumps(dict(params), sort_keys=True),
    "metrics": lambda metrics: None if metrics is None else json.dumps(dict(metrics), sort_keys=True),
    "fitness": lambda fitness: None if fitness is None else json.dumps(list(fitness)),
    **dict.fromkeys(
        ("warm_checkpoint", "warm_state", "checkpoint", "train_state"),
        lambda artifact: None if artifact is None else json.dumps([artifact.uri, artifact.sha256]),
    ),
}
_FIELDS = tuple(field.name for field in dataclasses.fields(Trial))
_COLUMNS = ", ".join(_FIELDS)
_ACTIVE = f"('{State.ACTIVE}', '{State.STOPPING}')"


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Opens a store's database, making its tables where there are none.

    Raises:
      StoreError: it is not there, cannot be used, or is of a newer version.
    """
    if read_only and not path.is_file():
        raise StoreError("there is no study here", where=str(path.parent), next_step="is --store right?")
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    if read_only and not path.with_name(f"{path.name}-wal").exists() and not _may_write(path.parent):
        uri += "&immutable=1"  # nobody serves it, and SQLite would make files beside it even to read
    try:
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30)
        if not read_only:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.executescript(_TABLES)
            db.execute("INSERT OR IGNORE INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
        (version,) = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    except sqlite3.DatabaseError as error:
        raise StoreError("cannot use the study's database", where=str(path), got=str(error)) from error
    if int(version) > SCHEMA_VERSION:
        raise StoreError("the database is of a newer version", where=str(path), got=version)
    return db


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """A study as the database has it."""

    name: str
    config: str
    stopped: bool


def studies(db: sqlite3.Connection, name: str = "") -> list[StudyRow]:
    """Returns the studies, or the one of a name."""
    rows = db.execute("SELECT name, config, stopped FROM studies WHERE ? IN ('', name) ORDER BY name", (name,))
    return [StudyRow(name=row[0], config=row[1], stopped=bool(row[2])) for row in rows]


def _artifact(text: str | None) -> Artifact | None:
    if text is None:
        return None
    uri, sha256 = json.loads(text)
    return Artifact(uri=uri, sha256=sha256)


def _trial(row: Sequence[Any]) -> Trial:
    values: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    values["state"] = State(values["state"])
    values["parent_ids"] = tuple(json.loads(values["parent_ids"]))
    values["params"] = json.loads(values["params"])
    for name in ("warm_checkpoint", "warm_state", "checkpoint", "train_state"):
        values[name] = _artifact(values[name])
    values["metrics"] = json.loads(values["metrics"]) if values["metrics"] is not None else None
    values["fitness"] = tuple(json.loads(values["fitness"])) if values["fitness"] is not None else None
    values["has_child"], values["is_kept"] = bool(values["has_child"]), bool(values["is_kept"])
    return Trial(**values)


class TrialTable:
    """The trials of one study; what a `decide.Table` asks for, and what the service writes."""

    def __init__(self, db: sqlite3.Connection, study: str) -> None:
        self._db, self._study = db, study

    def _select(self, condition: str, *values: object) -> list[Trial]:
        query = f"SELECT {_COLUMNS} FROM trials WHERE study = ? AND {condition}"
        return [_trial(row) for row in self._db.execute(query, (self._study, *values))]

    def _one(self, condition: str, *values: object) -> Trial | None:
        return next(iter(self._select(f"{condition} LIMIT 1", *values)), None)

    def _number(self, query: str, *values: object) -> int:
        return int(self._db.execute(query, (self._study, *values)).fetchone()[0])

    # What decisions read.

    def trial(self, id: int) -> Trial | None:
        return self._one("id = ?", id) if abs(id) < 1 << 63 else None  # SQLite has no larger number to look for

    def owned(self, worker: str) -> Trial | None:
        return self._one("state = ? AND worker_id = ? ORDER BY id", State.ACTIVE, worker)

    def oldest_requested(self) -> Trial | None:
        return self._one("state = ? AND worker_id = '' ORDER BY id", State.REQUESTED)

    def next_id(self) -> int:
        return self._number("SELECT next_id FROM studies WHERE name = ?")

    def next_seq(self) -> int:
        return self._number("SELECT next_seq FROM studies WHERE name = ?")

    def num_trials(self, generation: int, *, terminal: bool = False) -> int:
        query = "SELECT COUNT(*) FROM trials WHERE study = ? AND generation = ?"
        return self._number(query + (" AND is_terminal = 1" if terminal else ""), generation)

    def childless(self, below: int) -> Iterator[Trial]:
        condition = "has_child = 0 AND is_terminal = 1 AND generation < ? ORDER BY generation, completed_seq"
        yield from self._select(condition, below)

    def of_generations(self, generations: Sequence[int]) -> list[Trial]:
        places = ", ".join("?" * len(generations))
        return self._select(f"generation IN ({places}) ORDER BY id", *generations)

    def has_unfinished(self, below: int) -> bool:
        query = f"SELECT EXISTS (SELECT 1 FROM trials WHERE study = ? AND state IN {_ACTIVE})"
        waiting = "SELECT EXISTS (SELECT 1 FROM trials WHERE study = ? AND state = ? AND generation < ?)"
        return bool(self._number(query) or self._number(waiting, State.AWAITING_FITNESS, below))

    def overdue(self, now: float) -> list[Trial]:
        """Returns the trials whose lease or fitness is past its deadline, by id."""
        return self._select(
            f"((state IN {_ACTIVE} AND lease_deadline < ?) OR (state = ? AND fitness_deadline < ?)) ORDER BY id",
            now,
            State.AWAITING_FITNESS,
            now,
        )

    def unfinished(self) -> list[Trial]:
        states = (State.REQUESTED, State.ACTIVE, State.STOPPING, State.AWAITING_FITNESS)
        return self._select("state IN (?, ?, ?, ?) ORDER BY id", *states)

    def page(self, after: int, limit: int) -> list[Trial]:
        return self._select("id > ? ORDER BY id LIMIT ?", after, limit)

    def counts(self) -> dict[str, int]:
        query = "SELECT state, COUNT(*) FROM trials WHERE study = ? GROUP BY state"
        return dict(self._db.execute(query, (self._study,)).fetchall())

    # What the service writes, within its transaction.

    def write(self, trial: Trial) -> None:
        """Writes a row, new or changed."""
        values = {name: getattr(trial, name) for name in _FIELDS}
        values.update({name: encode(values[name]) for name, encode in _ENCODED.items()})
        score = trial.fitness[0] if trial.fitness is not None and len(trial.fitness) == 1 else None
        values |= {"study": self._study, "is_terminal": trial.is_terminal, "score": score}
        before = self.trial(trial.id)
        names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
        changes = ", ".join(f"{name} = excluded.{name}" for name in values)
        # Not OR REPLACE: a second child of one initiator must fail, not take the place of the first.
        self._db.execute(
            f"INSERT INTO trials ({names}) VALUES ({places}) ON CONFLICT (study, id) DO UPDATE SET {changes}", values
        )
        if before is None:
            self._db.execute("UPDATE studies SET next_id = ? WHERE name = ?", (trial.id + 1, self._study))
            self._db.execute(
                "UPDATE trials SET has_child = 1 WHERE study = ? AND id = ?", (self._study, trial.initiator_id)
            )
        if trial.completed_seq is not None and (before is None or before.completed_seq is None):
            self._db.execute("UPDATE studies SET next_seq = ? WHERE name = ?", (trial.completed_seq + 1, self._study))

    def extend(self, *, lease: float, fitness: float) -> None:
        """Moves deadlines that are earlier to the times given."""
        self._db.execute(
            f"UPDATE trials SET lease_deadline = ? WHERE study = ? AND state IN {_ACTIVE} AND lease_deadline < ?",
            (lease, self._study, lease),
        )
        self._db.execute(
            "UPDATE trials SET fitness_deadline = ? WHERE study = ? AND state = ? AND fitness_deadline < ?",
            (fitness, self._study, State.AWAITING_FITNESS, fitness),
        )

    def stop(self) -> None:
        self._db.execute("UPDATE studies SET stopped = 1 WHERE name = ?", (self._study,))

    def add_measurement(self, id: int, attempt: int, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Writes a measurement; the same step again replaces it."""
        self._db.execute(
            "INSERT OR REPLACE INTO measurements VALUES (?, ?, ?, ?, ?, ?)",
            (self._study, id, attempt, step, seconds, json.dumps(dict(metrics), sort_keys=True)),
        )

    def measurements(self, id: int) -> list[tuple[int, int, float, dict[str, float]]]:
        """Returns (attempt, step, seconds, metrics) of a trial, in that order."""
        query = "SELECT attempt, step, seconds, metrics FROM measurements WHERE study = ? AND trial = ?"
        rows = self._db.execute(f"{query} ORDER BY attempt, step", (self._study, id))
        return [(attempt, step, seconds, json.loads(text)) for attempt, step, seconds, text in rows]

    def hold_score(self, id: int, sha256: str, score: Score) -> None:
        """Keeps a score that came before its trial was complete."""
        metrics = None if score.metrics is None else json.dumps(dict(score.metrics), sort_keys=True)
        self._db.execute(
            "INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?)", (self._study, id, sha256, metrics, score.reason)
        )

    def take_score(self, id: int, sha256: str) -> Score | None:
        """Returns the score that was kept for a checkpoint, and forgets those of the trial's other checkpoints."""
        query = "SELECT metrics, reason FROM scores WHERE study = ? AND trial = ? AND sha256 = ?"
        row = self._db.execute(query, (self._study, id, sha256)).fetchone()
        self._db.execute("DELETE FROM scores WHERE study = ? AND trial = ?", (self._study, id))
        if row is None:
            return None
        return Score(metrics=json.loads(row[0]) if row[0] is not None else None, reason=row[1])

    def drop_unneeded(self, generations: int) -> list[Artifact]:
        """Marks checkpoints that no live trial may need any more; returns them.

        Needed are those of the last two generations of any trial that is unfinished or has no child yet, those that an
        unfinished trial starts from, the best, and those of the last generation.
        """
        low = self._db.execute(
            "SELECT MIN(generation) FROM (SELECT MIN(generation) AS generation FROM trials WHERE study = :study AND "
            "has_child = 0 AND is_terminal = 1 AND generation < :last UNION ALL SELECT MIN(generation) FROM trials "
            "WHERE study = :study AND has_child = 0 AND is_terminal = 0)",
            {"study": self._study, "last": generations},
        ).fetchone()[0]
        oldest = generations if low is None else min(low - 1, generations)
        stale = self._select("is_kept = 1 AND generation < ?", oldest)
        if not stale:
            return []
        warm = {trial.warm_checkpoint for trial in self.unfinished()}
        best = self._one("score IS NOT NULL ORDER BY score DESC, id")
        dropped = [trial for trial in stale if trial.checkpoint not in warm and (best is None or trial.id != best.id)]
        for trial in dropped:
            self._db.execute("UPDATE trials SET is_kept = 0 WHERE study = ? AND id = ?", (self._study, trial.id))
        return [trial.checkpoint for trial in dropped if trial.checkpoint is not None]

    def kept(self) -> list[Artifact]:
        return [trial.checkpoint for trial in self._select("is_kept = 1") if trial.checkpoint is not None]


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """What is read within needs no transaction.

    Raises:
      StoreError: the database cannot be read.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError("cannot read the study's database", got=str(error)) from error


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Runs the body in one transaction, durable when it ends; undone if it raises, also where the disk is full.

    Raises:
      StoreError: the database cannot be read or written.
    """
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError("cannot write the study's database", got=str(error)) from error
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
