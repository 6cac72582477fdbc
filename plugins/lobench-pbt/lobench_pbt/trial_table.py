"""Trial table in SQLite. Reads do not take longer with a longer history, since every statement has an index."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lobench.extend import Member, front
from lobench_pbt.transitions import Score
from lobench_pbt.trial import ARTIFACTS, Artifact, Outline, State, StudyTrial

__all__ = ["TrialTable"]

_ENCODERS: dict[str, Callable[[Any], str | None]] = {
    "state": str,
    "parent_ids": lambda ids: json.dumps(list(ids)),
    "params": lambda params: json.dumps(dict(params), sort_keys=True),
    "metrics": lambda metrics: None if metrics is None else json.dumps(dict(metrics), sort_keys=True),
    "fitness": lambda fitness: None if fitness is None else json.dumps(list(fitness)),
    **dict.fromkeys(
        ARTIFACTS,
        lambda artifact: None if artifact is None else json.dumps([artifact.uri, artifact.sha256]),
    ),
}
_FIELDS = tuple(field.name for field in dataclasses.fields(StudyTrial))
_COLUMNS = ", ".join(_FIELDS)
_WRITTEN_COLUMNS = (*_FIELDS, "study", "is_terminal", "score")
# Without OR REPLACE, because a second child of an initiator must fail and not replace the first.
_UPSERT = (
    f"INSERT INTO trials ({', '.join(_WRITTEN_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _WRITTEN_COLUMNS)}) "
    f"ON CONFLICT (study, id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _WRITTEN_COLUMNS)}"
)
_ACTIVE_STATES = f"('{State.ACTIVE}', '{State.STOPPING}')"
_STATES = {state.value: state for state in State}
_OUTLINE_COLUMNS = "id, state, generation, slot, attempt, score, fitness"


def _artifact_from_text(text: str | None) -> Artifact | None:
    if text is None:
        return None
    uri, sha256 = json.loads(text)
    return Artifact(uri=uri, sha256=sha256)


def _trial_from_row(row: Sequence[Any]) -> StudyTrial:
    values: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    values["state"] = State(values["state"])
    values["parent_ids"] = tuple(json.loads(values["parent_ids"]))
    values["params"] = json.loads(values["params"])
    for name in ARTIFACTS:
        values[name] = _artifact_from_text(values[name])
    values["metrics"] = json.loads(values["metrics"]) if values["metrics"] is not None else None
    values["fitness"] = tuple(json.loads(values["fitness"])) if values["fitness"] is not None else None
    values["has_child"], values["is_kept"] = bool(values["has_child"]), bool(values["is_kept"])
    return StudyTrial(**values)


def _outline_from_row(row: Sequence[Any]) -> Outline:
    """Converts a row of `trials` to an `Outline`. With one objective, the score column is the fitness."""
    id, state, generation, slot, attempt, score, fitness = row
    fitness_values = (score,) if score is not None else None if fitness is None else tuple(json.loads(fitness))
    return Outline(
        id=id, state=_STATES[state], generation=generation, slot=slot, attempt=attempt, fitness=fitness_values
    )


class TrialTable:
    """Trials of one study, as read by `decide` and written by the service."""

    def __init__(self, db: sqlite3.Connection, study: str) -> None:
        self._db, self._study = db, study

    def _select_trials(self, condition: str, *values: object) -> list[StudyTrial]:
        query = f"SELECT {_COLUMNS} FROM trials WHERE study = ? AND {condition}"
        return [_trial_from_row(row) for row in self._db.execute(query, (self._study, *values))]

    def _select_outlines(self, condition: str, *values: object) -> Iterator[Outline]:
        query = f"SELECT {_OUTLINE_COLUMNS} FROM trials WHERE study = ? AND {condition}"
        return map(_outline_from_row, self._db.execute(query, (self._study, *values)))

    def _first_trial(self, condition: str, *values: object) -> StudyTrial | None:
        return next(iter(self._select_trials(f"{condition} LIMIT 1", *values)), None)

    def _query_number(self, query: str, *values: object) -> int:
        return int(self._db.execute(query, (self._study, *values)).fetchone()[0])

    # Reads by `decide`.

    def trial(self, id: int) -> StudyTrial | None:
        return self._first_trial("id = ?", id) if abs(id) < 1 << 63 else None  # SQLite has no larger integers

    def outline(self, id: int) -> Outline | None:
        return next(self._select_outlines("id = ?", id), None) if abs(id) < 1 << 63 else None

    def active_trial_of(self, worker: str) -> StudyTrial | None:
        return self._first_trial("state = ? AND worker_id = ? ORDER BY id", State.ACTIVE, worker)

    def oldest_requested(self) -> StudyTrial | None:
        return self._first_trial("state = ? AND worker_id = '' ORDER BY id", State.REQUESTED)

    def next_id(self) -> int:
        return self._query_number("SELECT next_id FROM studies WHERE name = ?")

    def next_seq(self) -> int:
        return self._query_number("SELECT next_seq FROM studies WHERE name = ?")

    def num_trials(self, generation: int, *, terminal: bool = False) -> int:
        query = "SELECT COUNT(*) FROM trials WHERE study = ? AND generation = ?"
        return self._query_number(query + (" AND is_terminal = 1" if terminal else ""), generation)

    def childless_trials(self, end_generation: int) -> Iterator[Outline]:
        condition = "has_child = 0 AND is_terminal = 1 AND generation < ? ORDER BY generation, completed_seq"
        return self._select_outlines(condition, end_generation)

    def trials_of_generations(self, generations: Sequence[int]) -> list[Outline]:
        placeholders = ", ".join("?" * len(generations))
        # Sorted here and below without ORDER BY, for which SQLite would read the whole study.
        return sorted(
            self._select_outlines(f"generation IN ({placeholders})", *generations), key=lambda trial: trial.id
        )

    def has_unfinished(self, end_generation: int) -> bool:
        query = f"SELECT EXISTS (SELECT 1 FROM trials WHERE study = ? AND state IN {_ACTIVE_STATES})"
        awaiting_query = "SELECT EXISTS (SELECT 1 FROM trials WHERE study = ? AND state = ? AND generation < ?)"
        return bool(
            self._query_number(query) or self._query_number(awaiting_query, State.AWAITING_FITNESS, end_generation)
        )

    def overdue_trials(self, now: float) -> list[StudyTrial]:
        """Returns the trials whose lease or fitness is past its deadline, by id."""
        query = " UNION ALL ".join(
            f"SELECT id FROM trials WHERE study = ?1 AND {deadline} < ?2"
            for deadline in ("lease_deadline", "fitness_deadline")
        )
        overdue_ids = sorted(row[0] for row in self._db.execute(query, (self._study, now)))
        return [trial for id in overdue_ids if (trial := self.trial(id)) is not None]

    def unfinished_trials(self) -> list[StudyTrial]:
        states = (State.REQUESTED, State.ACTIVE, State.STOPPING, State.AWAITING_FITNESS)
        return sorted(self._select_trials("state IN (?, ?, ?, ?)", *states), key=lambda trial: trial.id)

    def trials_after(self, last_id: int, limit: int) -> list[StudyTrial]:
        return self._select_trials("id > ? ORDER BY id LIMIT ?", last_id, limit)

    def counts_by_state(self) -> dict[str, int]:
        query = "SELECT state, num FROM counts WHERE study = ? AND num > 0"
        return dict(self._db.execute(query, (self._study,)).fetchall())

    def holder_of(self, id: int) -> str:
        """Returns the process that holds a trial; "" if unknown."""
        query = "SELECT process FROM holders WHERE study = ? AND trial = ?"
        row = self._db.execute(query, (self._study, id)).fetchone()
        return "" if row is None else str(row[0])

    # Writes, within a transaction of the service:

    def write_trial(self, trial: StudyTrial) -> None:
        """Writes a new or changed row."""
        values = {name: getattr(trial, name) for name in _FIELDS}
        values.update({name: encode(values[name]) for name, encode in _ENCODERS.items()})
        score = trial.fitness[0] if trial.fitness is not None and len(trial.fitness) == 1 else None
        values |= {"study": self._study, "is_terminal": trial.is_terminal, "score": score}
        query = "SELECT completed_seq FROM trials WHERE study = ? AND id = ?"
        stored_row = self._db.execute(query, (self._study, trial.id)).fetchone()
        self._db.execute(_UPSERT, values)
        if stored_row is None:
            self._db.execute("UPDATE studies SET next_id = ? WHERE name = ?", (trial.id + 1, self._study))
            self._db.execute(
                "UPDATE trials SET has_child = 1 WHERE study = ? AND id = ?", (self._study, trial.initiator_id)
            )
        if trial.completed_seq is not None and (stored_row is None or stored_row[0] is None):
            self._db.execute("UPDATE studies SET next_seq = ? WHERE name = ?", (trial.completed_seq + 1, self._study))

    def renew_lease(self, trial_id: int, deadline: float) -> None:
        self._db.execute(
            "UPDATE trials SET lease_deadline = ? WHERE study = ? AND id = ?", (deadline, self._study, trial_id)
        )

    def set_holder(self, trial_id: int, process: str) -> None:
        """Stores the process that holds a trial."""
        self._db.execute("INSERT OR REPLACE INTO holders VALUES (?, ?, ?)", (self._study, trial_id, process))

    def restart_deadlines(
        self, *, lease_deadline: float, first_fitness_deadline: float, last_fitness_deadline: float
    ) -> None:
        """Sets the deadline of every lease, and moves deadlines of fitnesses into a range.

        Args:
          lease_deadline: Deadline of all leases.
          first_fitness_deadline, last_fitness_deadline: First and last deadline of a fitness.
        """
        self._db.execute(
            "UPDATE trials SET lease_deadline = ? WHERE study = ? AND lease_deadline IS NOT NULL",
            (lease_deadline, self._study),
        )
        self._db.execute(
            "UPDATE trials SET fitness_deadline = MIN(MAX(fitness_deadline, ?), ?) "
            "WHERE study = ? AND fitness_deadline IS NOT NULL",
            (first_fitness_deadline, last_fitness_deadline, self._study),
        )

    def stop(self) -> None:
        self._db.execute("UPDATE studies SET stopped = 1 WHERE name = ?", (self._study,))

    def add_measurement(self, id: int, attempt: int, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Writes a measurement. Replaces one of the same step."""
        self._db.execute(
            "INSERT OR REPLACE INTO measurements VALUES (?, ?, ?, ?, ?, ?)",
            (self._study, id, attempt, step, seconds, json.dumps(dict(metrics), sort_keys=True)),
        )

    def measurements(self, id: int) -> list[tuple[int, int, float, dict[str, float]]]:
        """Returns (attempt, step, seconds, metrics) of a trial, in that order."""
        query = "SELECT attempt, step, seconds, metrics FROM measurements WHERE study = ? AND trial = ?"
        rows = self._db.execute(f"{query} ORDER BY attempt, step", (self._study, id))
        return [(attempt, step, seconds, json.loads(text)) for attempt, step, seconds, text in rows]

    def store_early_score(self, id: int, sha256: str, score: Score) -> None:
        """Stores a score that arrived before its trial was complete."""
        metrics = None if score.metrics is None else json.dumps(dict(score.metrics), sort_keys=True)
        self._db.execute(
            "INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?)", (self._study, id, sha256, metrics, score.reason)
        )

    def pop_score(self, id: int, sha256: str) -> Score | None:
        """Returns the stored score of a checkpoint, and deletes all stored scores of its trial."""
        query = "SELECT metrics, reason FROM scores WHERE study = ? AND trial = ? AND sha256 = ?"
        row = self._db.execute(query, (self._study, id, sha256)).fetchone()
        self._db.execute("DELETE FROM scores WHERE study = ? AND trial = ?", (self._study, id))
        if row is None:
            return None
        return Score(metrics=json.loads(row[0]) if row[0] is not None else None, reason=row[1])

    def drop_unneeded_checkpoints(self, generations: int) -> list[Artifact]:
        """Marks checkpoints that no live trial can need any more, and returns them.

        A checkpoint is kept if a trial may still start from its generation, an unfinished trial starts from it, it is
        one of the best (on the Pareto front, for several objectives), or it is of the last generation.
        """
        stale_trials = self._select_trials("is_kept = 1 AND generation < ?", self._first_needed_generation(generations))
        if not stale_trials:
            return []
        warm_checkpoints = {trial.warm_checkpoint for trial in self.unfinished_trials()}
        best_ids = self._best_ids()
        dropped_trials = [
            trial for trial in stale_trials if trial.checkpoint not in warm_checkpoints and trial.id not in best_ids
        ]
        for trial in dropped_trials:
            self._db.execute("UPDATE trials SET is_kept = 0 WHERE study = ? AND id = ?", (self._study, trial.id))
        return [trial.checkpoint for trial in dropped_trials if trial.checkpoint is not None]

    def _first_needed_generation(self, generations: int) -> int:
        """Returns the first generation from which a trial may still start."""
        query = "SELECT MIN(generation) FROM trials WHERE study = ? AND has_child = 0"
        childless_rows = self._db.execute(f"{query} AND is_terminal = 1 AND generation < ?", (self._study, generations))
        unfinished_rows = self._db.execute(f"{query} AND is_terminal = 0", (self._study,))
        min_generations = (childless_rows.fetchone()[0], unfinished_rows.fetchone()[0])
        return min([generations, *(int(low) - 1 for low in min_generations if low is not None)])

    def _best_ids(self) -> set[int]:
        best_outline = next(self._select_outlines("score IS NOT NULL ORDER BY score DESC, id LIMIT 1"), None)
        if best_outline is not None:
            return {best_outline.id}
        # With several objectives, all unbeaten members are best. They are all kept, so only kept trials are read.
        first_by_fitness: dict[
            tuple[float, ...], Member
        ] = {}  # of trials with equal fitness, the one with the smallest id
        for trial in self._select_outlines("is_kept = 1 ORDER BY id"):
            if trial.fitness is not None:
                first_by_fitness.setdefault(trial.fitness, Member(id=trial.id, fitness=trial.fitness))
        return {member.id for member in front(first_by_fitness.values())}

    def kept_checkpoints(self) -> list[Artifact]:
        return [trial.checkpoint for trial in self._select_trials("is_kept = 1") if trial.checkpoint is not None]
