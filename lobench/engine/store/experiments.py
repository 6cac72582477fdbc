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
from lobench.core.experiment import SessionMember
from lobench.core.history import EvaluationId
from lobench.core.labels import Labels
from lobench.core.search.search import Trial, TrialState
from lobench.engine.config.origin import Revision
from lobench.engine.store.codes import Codes
from lobench.engine.store.schema import decoding_errors

__all__ = ["VERSION_COLUMNS", "ExperimentRow", "Experiments", "Membership", "TrialRow", "add_labelled_membership"]

# Columns that identify a version of an experiment.
VERSION_COLUMNS = ("name", "config_sha256", "git_revision", "git_dirty", "patch_sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRow:
    """Version of an experiment: a configuration at a revision. Changing either creates a new row.

    Attributes:
      id: Number of the row.
      name: Name of the experiment, shared by its versions.
      config: Gin text; "" if evaluations were only labelled (`lobench watch --experiment`).
      revision: Git revision of the checkout that it was run in, with the patch if there were uncommitted changes.
      versions: Versions of the packages that results depend on.
      created_at: Time of its first run, in seconds since 1970.
      last_at: Time of its last run, in seconds since 1970. Always later than that of versions run before, even if the
        clock was set back.
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
    """Stored member of an experiment (`lobench.core.experiment.SessionMember`).

    Attributes:
      method: Name of the method.
      trial: Number of the trial; a text if the evaluation was only labelled.
      session: Number of the session; a text if the evaluation was only labelled.
      evaluation: Evaluation that is the member.
      program: Key of the program that computed it.
      code: `EvaluationKey.code`.
    """

    method: str
    trial: int | str
    session: int | str
    evaluation: EvaluationId
    program: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow(Trial):
    """Trial of a method. A method without a search has a single trial without parameters.

    A note is stored after the state: `stopped: fitness 0.2 after 25%, ...`.

    Attributes:
      method: Name of the method.
    """

    method: str
    number: int = 0
    state: TrialState = "waiting"
    fitness: float | None = None
    wave: int = 0


class Experiments(Codes):
    """Part of a ledger: experiments."""

    def record_experiment(self, name: str, config: str, *, revision: Revision, versions: Mapping[str, str]) -> int:
        """Returns the id of a version of an experiment, after recording it.

        Equal configuration and revision share a row.
        """
        values = {
            "name": name,
            "config_sha256": hashlib.sha256(config.encode()).hexdigest(),
            "git_revision": revision.commit,
            "git_dirty": int(revision.is_dirty),
            "patch_sha256": revision.patch_sha256,
        }
        now = time.time()
        with self.transaction():
            # Versions are ordered by `last_at`. If the clock was set back, this one must still come last.
            (newest_at,) = self._db.execute("SELECT MAX(last_at) FROM experiments").fetchone()
            last_at = now if newest_at is None or now > newest_at else math.nextafter(newest_at, math.inf)
            where = " AND ".join(f"{column} = :{column}" for column in VERSION_COLUMNS)
            row = self._db.execute(f"SELECT id FROM experiments WHERE {where}", values).fetchone()
            if row is not None:
                self._db.execute("UPDATE experiments SET last_at = ? WHERE id = ?", (last_at, row[0]))
                return int(row[0])
            values |= {
                "config": config,
                "patch": revision.patch,
                "patch_note": revision.note,
                "now": now,
                "last": last_at,
            }
            values["versions"] = json.dumps(dict(versions), sort_keys=True)
            cursor = self._db.execute(
                "INSERT INTO experiments (name, config, config_sha256, git_revision, git_dirty, patch, patch_sha256, "
                "patch_note, versions, created_at, last_at) VALUES (:name, :config, :config_sha256, :git_revision, "
                ":git_dirty, :patch, :patch_sha256, :patch_note, :versions, :now, :last)",
                values,
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def keep_unchanged(self, experiment: int, methods: Collection[str]) -> None:
        """Makes the results of methods that a run leaves out members of its version of an experiment.

        They are those of the last version with results of the method, and only if the method is the same in both. A
        search that the version has on other sessions is not mixed with them.

        Args:
          experiment: Id of the run's version.
          methods: Names of the methods.
        """
        if not methods:
            return
        from lobench.core.trials import FIRST_REPORT_SEED
        from lobench.engine.config.space_syntax import is_same_method, search_identity  # imports gin

        rows = self.experiments()
        config, name = next((row.config, row.name) for row in rows if row.id == experiment)
        earlier_rows = [row for row in reversed(rows) if row.name == name and row.config and row.id != experiment]
        # Sessions of commands, which have a folder, are stored as trials too.
        own_searches = {trial.method for trial in self.trials(experiment) if "folder" not in trial.parameters}
        remaining_methods = set(methods)
        with self.transaction():
            for row in earlier_rows:
                if not remaining_methods:
                    break
                members = self._fetch_rows(
                    "SELECT DISTINCT method, session FROM memberships WHERE experiment = ?", (row.id,)
                )
                sessions: dict[str, set[int]] = {}
                for method, session in members:  # a trial of a search over the command `mine` is the method `mine/3`
                    sessions.setdefault(method.partition("/")[0], set()).add(session)
                for method in remaining_methods & sessions.keys():
                    own_sessions = {session for session in sessions[method] if session < FIRST_REPORT_SEED}
                    is_other_search = method in own_searches and (
                        search_identity(row.config, method) != search_identity(config, method)
                    )
                    if not is_other_search and is_same_method(method, row.config, config, own_sessions):
                        remaining_methods.remove(method)
                        self._copy_members(method, row.id, experiment)

    def _copy_members(self, method: str, earlier_experiment: int, experiment: int) -> None:
        """Copies the members and trials of a method from one version of an experiment to another."""
        for table, columns in (
            ("memberships", "method, trial, session, evaluation"),
            ("trials", "method, number, parameters, state, fitness, wave"),
        ):
            self._db.execute(
                f"INSERT OR IGNORE INTO {table} SELECT ?, {columns} FROM {table} "
                "WHERE experiment = ? AND (method = ? OR substr(method, 1, ?) = ?)",
                (experiment, earlier_experiment, method, len(method) + 1, f"{method}/"),
            )

    def experiments(self) -> list[ExperimentRow]:
        """Returns all versions of all experiments, in order of their last runs."""
        rows = self._fetch_rows(
            "SELECT id, name, config, versions, created_at, last_at, git_revision, git_dirty, patch, patch_sha256, "
            "patch_note FROM experiments ORDER BY last_at, id"
        )
        with decoding_errors(self.store):
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
        """Makes evaluations members of an experiment, and returns the number of new memberships.

        Members whose evaluation has no outcome yet are skipped; they are added once it has one.

        Args:
          experiment: Id of the experiment's version.
          members: Members to add.
          programs: Keys of the programs whose results count. Of several results, the latest counts.
          codes: Current code by `CaseInfo.key`. Results of any code count for cases without an entry.
        """
        counting_programs = json.dumps(sorted(programs))
        current_codes = codes or {}
        counting_codes = functools.cache(lambda code: json.dumps(self.counting_codes(code)))
        with self.transaction():
            num_changes_before = self._db.total_changes
            self._db.executemany(
                "INSERT OR IGNORE INTO memberships SELECT ?, ?, ?, ?, last FROM (SELECT MAX(id) AS last "
                "FROM evaluations WHERE checkpoint_sha256 = ? AND case_identity || ':' || optimizer_hash = ? "
                "AND seed_start = ? AND seed_count = ? AND program_version IN (SELECT value FROM json_each(?)) "
                "AND code IN (SELECT value FROM json_each(?))) WHERE last IS NOT NULL",
                [
                    (
                        *(experiment, member.method, member.trial, member.session),
                        *(member.evaluation.sha256, member.evaluation.case_key),
                        *(member.evaluation.block.start, member.evaluation.block.size, counting_programs),
                        counting_codes(current_codes.get(member.evaluation.case_key, "")),
                    )
                    for member in members
                ],
            )
            return self._db.total_changes - num_changes_before

    def memberships(self, experiment: int) -> list[Membership]:
        """Returns the members of a version of an experiment, ordered by method, trial and session."""
        rows = self._fetch_rows(
            "SELECT m.method, m.trial, m.session, e.checkpoint_sha256, e.case_identity || ':' || e.optimizer_hash, "
            "e.seed_start, e.seed_count, e.program_version, e.code FROM memberships m JOIN evaluations e "
            "ON e.id = m.evaluation WHERE m.experiment = ? ORDER BY m.method, m.trial, m.session, e.id",
            (experiment,),
        )
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

    def record_trial(self, experiment: int, trial: TrialRow) -> None:
        """Records a trial, or updates its state."""
        parameters = json.dumps(dict(trial.parameters), sort_keys=True)
        state = f"{trial.state}: {trial.note}" if trial.note else trial.state
        with self.transaction():
            self._db.execute(
                "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (experiment, method, number) "
                "DO UPDATE SET parameters = excluded.parameters, state = excluded.state, fitness = excluded.fitness, "
                "wave = excluded.wave",
                (experiment, trial.method, trial.number, parameters, state, trial.fitness, trial.wave),
            )

    def forget_trials(self, experiment: int, method: str, first_trial: int) -> None:
        """Removes a method's trials from number `first_trial` on: the results behind their proposals have changed.

        The results of these trials are members of the experiment no longer. (Trial 3 of a search over the command
        `mine` is the method `mine/3`.)
        """
        values = (experiment, method, first_trial)
        with self.transaction():
            self._db.execute("DELETE FROM trials WHERE experiment = ? AND method = ? AND number >= ?", values)
            self._db.execute("DELETE FROM memberships WHERE experiment = ? AND method = ? AND trial >= ?", values)
            self._db.execute(
                "DELETE FROM memberships WHERE experiment = ? AND substr(method, 1, ?) = ? "
                "AND CAST(substr(method, ?) AS INTEGER) >= ?",
                (experiment, len(method) + 1, f"{method}/", len(method) + 2, first_trial),
            )

    def trials(self, experiment: int) -> list[TrialRow]:
        """Returns the trials of a version of an experiment, ordered by method and number."""
        rows = self._fetch_rows(
            "SELECT method, number, parameters, state, fitness, wave FROM trials WHERE experiment = ? "
            "ORDER BY method, number",
            (experiment,),
        )
        with decoding_errors(self.store):
            return [_trial_of(row) for row in rows]


def _trial_of(row: tuple[Any, ...]) -> TrialRow:
    method, number, parameters, state_and_note, fitness, wave = row
    state, _, note = state_and_note.partition(": ")
    return TrialRow(
        method=method,
        number=number,
        parameters=json.loads(parameters),
        state=state,
        fitness=fitness,
        wave=wave,
        note=note,
    )


def add_labelled_membership(db: sqlite3.Connection, identity: Sequence[object], labels: Labels) -> None:
    """Makes an evaluation a member of the experiment that `lobench watch --experiment` names.

    It writes in the caller's transaction.

    Args:
      db: Connection to the ledger.
      identity: Values of the columns that identify an evaluation, in the order of the table.
      labels: Name of the experiment, and labels of the trial and of the session in it.
    """
    now = time.time()
    db.execute(
        "INSERT OR IGNORE INTO experiments (name, config, config_sha256, git_revision, git_dirty, patch_sha256, "
        "patch_note, versions, created_at, last_at) VALUES (?, '', '', '', 0, '', '', '{}', ?, ?)",
        (labels.experiment, now, now),
    )
    db.execute(
        "INSERT OR IGNORE INTO memberships SELECT x.id, '', ?, ?, e.id FROM experiments x, evaluations e WHERE "
        "x.name = ? AND x.config_sha256 = '' AND e.checkpoint_sha256 = ? AND e.optimizer_hash = ? "
        "AND e.case_identity = ? AND e.seed_start = ? AND e.seed_count = ? AND e.program_version = ? AND e.code = ?",
        (labels.trial, labels.session, labels.experiment, *identity),
    )
