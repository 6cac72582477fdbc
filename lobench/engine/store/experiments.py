"""Experiments in a ledger: definitions, trials, and member evaluations."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lobench.core.case import SeedBlock
from lobench.core.experiment import CommandState, SessionMember
from lobench.core.history import EvaluationId
from lobench.engine.config.origin import Revision
from lobench.engine.store.codes import Codes
from lobench.engine.store.schema import intact_rows, store_errors

__all__ = ["FORM", "ExperimentRow", "Experiments", "Membership", "TrialRow", "label"]

# What tells one form of an experiment from another.
FORM = ("name", "config_sha256", "git_revision", "git_dirty", "patch_sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRow:
    """One form of an experiment: a configuration at a revision. Another configuration or revision is another row.

    Attributes:
      name: Of the experiment, which its forms share.
      config: Its gin text; "" where evaluations were only labelled (`lobench watch --experiment`).
      revision: Of the checkout that it was run in, with the patch of a dirty one.
      versions: Of the packages that results hang on.
      created_at, last_at: When it was run first and last; seconds since 1970. `last_at` is later than that of all forms
        that were run before, whatever the clock says.
    """

    id: int
    name: str
    config: str
    revision: Revision
    versions: Mapping[str, str]
    created_at: float
    last_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A member of an experiment (`lobench.core.experiment.Member`), as it is stored.

    Attributes:
      trial, session: Numbers; texts where evaluations were only labelled.
      program: Key of what computed it.
      code: `EvaluationKey.code`.
    """

    method: str
    trial: int | str
    session: int | str
    evaluation: EvaluationId
    program: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One setting of a method.

    Attributes:
      parameters: Values by their gin path; empty where the method searches nothing.
      wave: Which wave of a search proposed it.
      note: Why it was stopped; in the database behind the state, `stopped: fitness 0.2 after 25%, ...`.
    """

    method: str
    number: int = 0
    parameters: Mapping[str, Any]
    state: CommandState = "waiting"
    fitness: float | None = None
    wave: int = 0
    note: str = ""


class Experiments(Codes):
    """What a ledger says and is told of experiments."""

    def record_experiment(self, name: str, config: str, *, revision: Revision, versions: Mapping[str, str]) -> int:
        """Returns the id of a form of an experiment: the same configuration at the same revision has one row."""
        values = {
            "name": name,
            "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
            "git_revision": revision.commit,
            "git_dirty": int(revision.is_dirty),
            "patch_sha256": revision.patch_sha256,
        }
        now = time.time()
        with self.transaction():
            # The forms are ordered by `last_at`. A clock that steps back must not put this one before the others.
            (newest,) = self._db.execute("SELECT MAX(last_at) FROM experiments").fetchone()
            last = now if newest is None or now > newest else math.nextafter(newest, math.inf)
            where = " AND ".join(f"{column} = :{column}" for column in FORM)
            found = self._db.execute(f"SELECT id FROM experiments WHERE {where}", values).fetchone()
            if found is not None:
                self._db.execute("UPDATE experiments SET last_at = ? WHERE id = ?", (last, found[0]))
                return int(found[0])
            values |= {"config": config, "patch": revision.patch, "patch_note": revision.note, "now": now, "last": last}
            values["versions"] = json.dumps(dict(versions), sort_keys=True)
            cursor = self._db.execute(
                "INSERT INTO experiments (name, config, config_sha256, git_revision, git_dirty, patch, patch_sha256, "
                "patch_note, versions, created_at, last_at) VALUES (:name, :config, :config_sha256, :git_revision, "
                ":git_dirty, :patch, :patch_sha256, :patch_note, :versions, :now, :last)",
                values,
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def experiments(self) -> list[ExperimentRow]:
        """Returns every form of every experiment, the one that was run last at the end."""
        with store_errors(self.store), intact_rows(self.store):
            rows = self._db.execute(
                "SELECT id, name, config, versions, created_at, last_at, git_revision, git_dirty, patch, patch_sha256, "
                "patch_note FROM experiments ORDER BY last_at, id"
            ).fetchall()
            return [
                ExperimentRow(
                    id=row[0],
                    name=row[1],
                    config=row[2],
                    versions=json.loads(row[3]),
                    created_at=row[4],
                    last_at=row[5],
                    revision=Revision(
                        commit=row[6], is_dirty=bool(row[7]), patch=row[8], patch_sha256=row[9], note=row[10]
                    ),
                )
                for row in rows
            ]

    def add_memberships(
        self,
        experiment: int,
        members: Iterable[SessionMember],
        *,
        programs: Collection[str],
        codes: Mapping[str, str] | None = None,
    ) -> int:
        """Makes evaluations members of an experiment, and returns how many memberships were new.

        One without an outcome is left out: it is added when it has one.

        Args:
          programs: Keys of the programs whose results count; of several results the last one counts.
          codes: Today's code by `CaseInfo.key`; of a case that is not in it any code counts.
        """
        counting, todays = json.dumps(sorted(programs)), codes or {}
        counting_codes = functools.cache(lambda code: json.dumps(self.counting_codes(code)))
        with self.transaction():
            before = self._db.total_changes
            self._db.executemany(
                "INSERT OR IGNORE INTO memberships SELECT ?, ?, ?, ?, last FROM (SELECT MAX(id) AS last "
                "FROM evaluations WHERE checkpoint_sha256 = ? AND case_identity || ':' || optimizer_hash = ? "
                "AND seed_start = ? AND seed_count = ? AND program_version IN (SELECT value FROM json_each(?)) "
                "AND code IN (SELECT value FROM json_each(?))) WHERE last IS NOT NULL",
                [
                    (
                        *(experiment, one.method, one.trial, one.session),
                        *(one.evaluation.sha256, one.evaluation.case_key),
                        *(one.evaluation.block.start, one.evaluation.block.size, counting),
                        counting_codes(todays.get(one.evaluation.case_key, "")),
                    )
                    for one in members
                ],
            )
            return self._db.total_changes - before

    def memberships(self, experiment: int) -> list[Membership]:
        """Returns the members of an experiment by method, trial and session."""
        with store_errors(self.store):
            rows = self._db.execute(
                "SELECT m.method, m.trial, m.session, e.checkpoint_sha256, e.case_identity || ':' || e.optimizer_hash, "
                "e.seed_start, e.seed_count, e.program_version, e.code FROM memberships m JOIN evaluations e "
                "ON e.id = m.evaluation WHERE m.experiment = ? ORDER BY m.method, m.trial, m.session, e.id",
                (experiment,),
            ).fetchall()
        return [
            Membership(
                method=method,
                trial=trial,
                session=session,
                evaluation=EvaluationId(sha256, case_key, SeedBlock(start=start, size=size)),
                program=program,
                code=code,
            )
            for method, trial, session, sha256, case_key, start, size, program, code in rows
        ]

    def set_trial(self, experiment: int, trial: TrialRow) -> None:
        """Records a trial, or what became of it."""
        parameters = json.dumps(dict(trial.parameters), sort_keys=True)
        state = f"{trial.state}: {trial.note}" if trial.note else trial.state
        with self.transaction():
            self._db.execute(
                "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (experiment, method, number) "
                "DO UPDATE SET parameters = excluded.parameters, state = excluded.state, fitness = excluded.fitness, "
                "wave = excluded.wave",
                (experiment, trial.method, trial.number, parameters, state, trial.fitness, trial.wave),
            )

    def forget_trials(self, experiment: int, method: str, first: int) -> None:
        """Removes the trials of a method from a number on: they were proposed from what is not so any more."""
        with self.transaction():
            self._db.execute(
                "DELETE FROM trials WHERE experiment = ? AND method = ? AND number >= ?", (experiment, method, first)
            )

    def trials(self, experiment: int) -> list[TrialRow]:
        """Returns the trials of an experiment by method and number."""
        with store_errors(self.store), intact_rows(self.store):
            rows = self._db.execute(
                "SELECT method, number, parameters, state, fitness, wave FROM trials WHERE experiment = ? "
                "ORDER BY method, number",
                (experiment,),
            ).fetchall()
            found = []
            for method, number, text, state, fitness, wave in rows:
                state, _, note = state.partition(": ")
                parameters = json.loads(text)
                found.append(
                    TrialRow(
                        method=method,
                        number=number,
                        parameters=parameters,
                        state=state,
                        fitness=fitness,
                        wave=wave,
                        note=note,
                    )
                )
            return found


def label(db: sqlite3.Connection, identity: Sequence[object], *, experiment: str, trial: str, session: str) -> None:
    """Makes an evaluation a member of what `lobench watch --experiment` names, in the caller's transaction.

    Args:
      identity: The columns that make an evaluation the one it is, in the order of the table.
    """
    now = time.time()
    db.execute(
        "INSERT OR IGNORE INTO experiments (name, config, config_sha256, git_revision, git_dirty, patch_sha256, "
        "patch_note, versions, created_at, last_at) VALUES (?, '', '', '', 0, '', '', '{}', ?, ?)",
        (experiment, now, now),
    )
    db.execute(
        "INSERT OR IGNORE INTO memberships SELECT x.id, '', ?, ?, e.id FROM experiments x, evaluations e WHERE "
        "x.name = ? AND x.config_sha256 = '' AND e.checkpoint_sha256 = ? AND e.optimizer_hash = ? "
        "AND e.case_identity = ? AND e.seed_start = ? AND e.seed_count = ? AND e.program_version = ? AND e.code = ?",
        (trial, session, experiment, *identity),
    )
