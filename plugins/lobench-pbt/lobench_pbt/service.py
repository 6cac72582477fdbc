"""Controller of studies: each request is one transaction on the trial table. It keeps no state between requests.

Requests are answered after their commit is on disk, except for heartbeats, which are repeated soon; a restarted
controller waits for them (`resume`). Requests that wait for the disk wait together.
"""

from __future__ import annotations

import dataclasses
import enum
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from lobench.extend import PluginManager, load_plugins, transaction
from lobench.hookspecs import SelectionStrategy
from lobench_pbt import transitions
from lobench_pbt.decide import Suggestion, TrialDecision, suggest
from lobench_pbt.durable import CommitLog
from lobench_pbt.study import Keep, Study, check_study, load_strategy, study_from_json, study_to_json
from lobench_pbt.study_database import StudyRow, connect, convert_errors, read_studies
from lobench_pbt.transitions import Completion, Score
from lobench_pbt.trial import Artifact, Outline, Refusal, Refused, State, StudyTrial
from lobench_pbt.trial_table import TrialTable
from lobench_pbt.vault import CheckpointCopies

__all__ = ["FitnessVerdict", "Service"]

_WATCH_SECONDS = 180.0  # a watch that could not deliver retries within a minute


class SteadyClock:
    """Clock that is independent of changes of the system's time: its value at the start, and a monotonic clock since.

    So a step of the system's clock neither ends a lease early nor prolongs the lease of a dead worker. Deadlines in a
    store stay comparable after a restart, unless the clock stepped meanwhile; see `Service.resume`.
    """

    def __init__(self) -> None:
        self._start_time, self._monotonic_start = time.time(), time.monotonic()

    def __call__(self) -> float:
        return self._start_time + (time.monotonic() - self._monotonic_start)


class FitnessVerdict(enum.StrEnum):
    """Answer to a reported fitness: it is ignored, held until its trial completes, or accepted."""

    IGNORED = "ignored"
    HELD = "held"
    ACCEPTED = "accepted"


_Row = TypeVar("_Row", StudyTrial, Outline)


@dataclasses.dataclass(frozen=True, slots=True)
class _OpenStudy:
    """A study within a transaction."""

    study: Study
    strategy: SelectionStrategy
    table: TrialTable
    stopped: bool
    now: float

    def trial(self, id: int) -> StudyTrial:
        return self._require_row(self.table.trial(id), id)

    def leased_outline(self, id: int, attempt: int, process: str) -> Outline:
        """Returns a trial that is leased to the worker.

        Raises:
          Refused: The lease was lost.
        """
        outline = self._require_row(self.table.outline(id), id)
        transitions.check_lease(outline, attempt)
        self.check_holder(id, process)
        return outline

    def check_holder(self, id: int, process: str) -> None:
        """Refuses a process whose trial was given to another process with the same worker name."""
        holder = self.table.holder_of(id) if process else ""
        if holder not in ("", process):
            raise Refused(Refusal.STALE, "another process of this name has the trial now", where=f"trial {id}")

    def held_suggestion(self, worker: str, process: str, gone: str) -> Suggestion | None:
        """Returns the answer HELD if another live process has the worker's trial; None if the worker may have it."""
        owned_trial = self.table.active_trial_of(worker) if process else None
        if owned_trial is None or owned_trial.lease_deadline is None:
            return None
        holder = self.table.holder_of(owned_trial.id)
        silent_seconds = self.now + self.study.lease_seconds - owned_trial.lease_deadline
        if holder in ("", process, gone) or silent_seconds > self.study.lease_seconds / 2:
            return None
        return Suggestion(
            answer=TrialDecision.HELD, trial=owned_trial, lease_seconds=self.study.lease_seconds, holder=holder
        )

    def _require_row(self, row: _Row | None, id: int) -> _Row:
        if row is None:
            raise Refused(Refusal.NOT_FOUND, "no such trial", where=f"study {self.study.name!r}", got=str(id))
        return row


class Service:
    """Service for the studies of one store. Threads may share it; requests wait for each other.

    Args:
      store: Folder of the store; the caller holds its lock.
      clock: Clock of leases and deadlines, in seconds. None: a `SteadyClock`.
      plugins: Source of strategies. None: the installed plugins.
    """

    def __init__(
        self, store: Path, *, clock: Callable[[], float] | None = None, plugins: PluginManager | None = None
    ) -> None:
        store.mkdir(parents=True, exist_ok=True)
        self._path = store / "pbt.sqlite"
        self._db: sqlite3.Connection = connect(self._path)
        self._checkpoint_copies, self._clock = CheckpointCopies(store / "checkpoints"), clock or SteadyClock()
        self._lock = threading.Lock()
        self._plugins: PluginManager = plugins or load_plugins()
        self._commit_log = CommitLog(self._path)
        self._parsed_studies: dict[str, tuple[Study, SelectionStrategy]] = {}  # parsed studies by their text
        self._checkpoint_copies.remove_all_but(
            [
                artifact
                for row in read_studies(self._db)
                for artifact in TrialTable(self._db, row.name).kept_checkpoints()
            ]
        )

    def close(self) -> None:
        """Ends running copies, and closes the database."""
        self._checkpoint_copies.close()
        with self._lock:
            self._db.close()

    def resume(self) -> None:
        """Restarts the time of each lease and fitness, because no controller was listening for a while.

        Each lease lasts one period from now on. The wait for a fitness is at least as long as the pause between two
        tries of a watch, and at most as long as the study allows. So a step of the clock while the controller was down
        does not matter.

        Raises:
          StoreError: The database cannot be read or written.
        """
        with self._lock, self._transaction():
            for row in read_studies(self._db):  # need not be on disk, because it is repeated at the next start
                study = study_from_json(row.config)
                now = self._clock()
                first_fitness_deadline = now + min(study.fitness_seconds, _WATCH_SECONDS)
                last_fitness_deadline = now + study.fitness_seconds
                TrialTable(self._db, row.name).restart_deadlines(
                    lease_deadline=now + study.lease_seconds,
                    first_fitness_deadline=first_fitness_deadline,
                    last_fitness_deadline=last_fitness_deadline,
                )

    def expire(self) -> None:
        """Handles deadlines that have passed.

        Raises:
          StoreError: The database cannot be read or written.
        """
        with self._lock, self._converting_errors():
            for row in read_studies(self._db):
                self._read_after_expiry(row.name)

    # Studies.

    def create_study(self, study: Study) -> StudyRow:
        """Creates a study. Does nothing if the same study exists.

        Raises:
          ConfigError: The study cannot run.
          Refused: Another study has this name.
        """
        check_study(study, f"study {study.name!r}", self._plugins)
        config_text = study_to_json(study)
        with self._lock, self._transaction():
            rows = read_studies(self._db, study.name)
            if rows and (existing := study_from_json(rows[0].config)) != study:
                names = [field.name for field in dataclasses.fields(Study)]
                values_by_name = {name: (getattr(study, name), getattr(existing, name)) for name in names}
                changed_fields = [
                    f"{name} = {new!r}, not {old!r}" for name, (new, old) in values_by_name.items() if new != old
                ]
                raise Refused(
                    Refusal.CONFLICT,
                    "there is another study of that name here",
                    where=f"study {study.name!r}",
                    got="; ".join(changed_fields),
                    expected="the same configuration, another Study.name, or another --store",
                )
            self._db.execute("INSERT OR IGNORE INTO studies (name, config) VALUES (?, ?)", (study.name, config_text))
            row = read_studies(self._db, study.name)[0]
        self._commit_log.record_commit()
        self._commit_log.wait_until_synced()
        return row

    def get_study(self, name: str = "") -> tuple[StudyRow, Mapping[str, int]]:
        """Returns a study and the number of its trials by state."""
        with self._lock, self._converting_errors():
            row = self._study_row(name)
            study_and_counts = row, TrialTable(self._db, row.name).counts_by_state()
        self._commit_log.wait_until_synced()
        return study_and_counts

    def stop_study(self, name: str = "") -> StudyRow:
        """Stops a study. Active trials may end early, and no trial starts."""
        with self._open_and_sync(name) as open_study:
            open_study.table.stop()
            for trial in open_study.table.unfinished_trials():
                open_study.table.write_trial(transitions.stop_trial(trial, next_seq=open_study.table.next_seq()))
            return self._study_row(open_study.study.name)

    def list_trials(self, name: str = "", *, after: int = 0, limit: int = 500) -> list[StudyTrial]:
        with self._lock, self._converting_errors():
            trials = TrialTable(self._db, self._study_row(name).name).trials_after(after, limit)
        self._commit_log.wait_until_synced()
        return trials

    # Workers.

    def suggest(self, name: str, worker: str, *, process: str = "", gone: str = "") -> Suggestion:
        """Returns the trial that a worker should train next, or tells it to wait or stop.

        Args:
          name: Name of the study.
          worker: Name of the worker.
          process: Identity of the worker's process; "" if processes with the same worker name are not distinguished.
          gone: Process of this worker that has ended. Its trial is handed over before its lease expires.
        """
        if not worker:
            raise Refused(Refusal.INVALID, "a worker needs a name")
        with self._open_and_sync(name) as open_study:
            if (held_suggestion := open_study.held_suggestion(worker, process, gone)) is not None:
                return held_suggestion
            suggestion = suggest(
                open_study.study,
                open_study.strategy,
                open_study.table,
                worker=worker,
                stopped=open_study.stopped,
                now=open_study.now,
            )
            if suggestion.answer is TrialDecision.TRIAL and suggestion.trial is not None:
                open_study.table.write_trial(suggestion.trial)
                open_study.table.set_holder(suggestion.trial.id, process)
            return suggestion

    def heartbeat(self, name: str, id: int, attempt: int, *, process: str = "") -> bool:
        """Renews a lease; returns whether the trial should end early."""
        with self._open_study(name, needs_sync=False) as open_study:
            leased_trial = open_study.leased_outline(id, attempt, process)
            open_study.table.renew_lease(id, open_study.now + open_study.study.lease_seconds)
            return leased_trial.state is State.STOPPING

    def add_measurement(
        self,
        name: str,
        id: int,
        attempt: int,
        *,
        step: int,
        seconds: float,
        metrics: Mapping[str, float],
        process: str = "",
    ) -> bool:
        """Adds a measurement and renews the lease; returns whether the trial should end early."""
        with self._open_and_sync(name) as open_study:
            leased_trial = open_study.leased_outline(id, attempt, process)
            open_study.table.renew_lease(id, open_study.now + open_study.study.lease_seconds)
            open_study.table.add_measurement(id, attempt, step, seconds, metrics)
            return leased_trial.state is State.STOPPING

    def complete(self, name: str, id: int, completion: Completion, *, process: str = "") -> StudyTrial:
        """Ends a trial, after copying and checking its checkpoint.

        Raises:
          Refused: The report is stale or differs from an earlier one, or the checkpoint is missing or changed.
        """
        with self._open_and_sync(name) as open_study:
            stored_trial = open_study.trial(id)
            if transitions.is_repeated_completion(open_study.study, stored_trial, completion):
                return stored_trial
            open_study.check_holder(id, process)
            study = open_study.study.name
        checkpoint: Artifact | None = None
        if completion.checkpoint is not None:
            checkpoint, state = self._checkpoint_copies.copy_in(
                f"{study}-{id}", completion.checkpoint, completion.train_state
            )
            completion = dataclasses.replace(completion, checkpoint=checkpoint, train_state=state)
        dropped_copies: list[Artifact] = []
        try:
            with self._open_study(study) as open_study:
                stored_trial = open_study.trial(id)
                if transitions.is_repeated_completion(open_study.study, stored_trial, completion):
                    trial = stored_trial
                    dropped_copies = [checkpoint] if checkpoint is not None else []
                else:
                    trial = self._complete_trial(open_study, stored_trial, completion)
                    dropped_copies = self._drop_unneeded(open_study)
        except BaseException:
            if checkpoint is not None:
                self._checkpoint_copies.discard(checkpoint)
            raise
        self._discard_copies(dropped_copies)
        return trial

    def _complete_trial(self, open_study: _OpenStudy, stored_trial: StudyTrial, completion: Completion) -> StudyTrial:
        seq = open_study.table.next_seq()
        trial = transitions.complete_trial(open_study.study, stored_trial, completion, now=open_study.now, next_seq=seq)
        score = open_study.table.pop_score(trial.id, completion.checkpoint.sha256) if completion.checkpoint else None
        if trial.state is State.AWAITING_FITNESS and score is not None:
            trial = transitions.score_trial(open_study.study, trial, score, next_seq=seq)
        open_study.table.write_trial(trial)
        return trial

    # Fitness.

    def report_fitness(self, name: str, id: int, *, generation: int, sha256: str, score: Score) -> FitnessVerdict:
        """Records the fitness that a watch computed for a checkpoint of a trial. Repeating the call has no effect."""
        dropped_copies: list[Artifact] = []
        with self._open_study(name) as open_study:
            trial = open_study.table.trial(id)
            if trial is None or trial.generation != generation:
                verdict = FitnessVerdict.IGNORED
            elif trial.state in (State.REQUESTED, State.ACTIVE, State.STOPPING):
                open_study.table.store_early_score(id, sha256, score)
                verdict = FitnessVerdict.HELD
            elif trial.checkpoint is None or trial.checkpoint.sha256 != sha256:
                verdict = FitnessVerdict.IGNORED
            elif trial.state is not State.AWAITING_FITNESS:
                verdict = FitnessVerdict.ACCEPTED if trial.state is State.SUCCEEDED else FitnessVerdict.IGNORED
            else:
                open_study.table.write_trial(
                    transitions.score_trial(open_study.study, trial, score, next_seq=open_study.table.next_seq())
                )
                dropped_copies = self._drop_unneeded(open_study)
                verdict = FitnessVerdict.ACCEPTED
        self._discard_copies(dropped_copies)
        return verdict

    # Shared by all requests.

    def _converting_errors(self) -> AbstractContextManager[None]:
        """Handles database errors of reads without a transaction."""
        return convert_errors(self._path)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._converting_errors(), transaction(self._db):
            yield

    def _study_row(self, name: str) -> StudyRow:
        rows = read_studies(self._db, name)
        if len(rows) != 1:
            names = ", ".join(row.name for row in read_studies(self._db)) or "none"
            problem = "the store has several studies" if len(rows) > 1 else "no such study"
            raise Refused(Refusal.NOT_FOUND, problem, got=repr(name), expected=f"one of: {names}")
        return rows[0]

    @contextmanager
    def _open_study(self, name: str, *, needs_sync: bool = True) -> Iterator[_OpenStudy]:
        """Opens a transaction on a study, after handling expired deadlines.

        Args:
          name: Name of the study.
          needs_sync: Whether the transaction's writes must be on disk before a request is answered.
        Raises:
          StoreError: The database cannot be read or written.
          Refused: The study does not exist.
        """
        with self._lock:
            with self._converting_errors():
                open_study = self._read_after_expiry(name)
            num_changes_before = self._db.total_changes
            with self._transaction():
                yield open_study
            if needs_sync and self._db.total_changes != num_changes_before:
                self._commit_log.record_commit()

    @contextmanager
    def _open_and_sync(self, name: str) -> Iterator[_OpenStudy]:
        """Opens a transaction on a study, and waits at its end until all commits so far are on disk."""
        with self._open_study(name) as open_study:
            yield open_study
        self._commit_log.wait_until_synced()

    def _discard_copies(self, dropped_copies: list[Artifact]) -> None:
        """Waits for the disk, then removes copies that no row mentions any more."""
        self._commit_log.wait_until_synced()
        for artifact in dropped_copies:
            self._checkpoint_copies.discard(artifact)

    def _read_after_expiry(self, name: str) -> _OpenStudy:
        """Handles expired deadlines in a transaction of its own, so that lost leases persist if the request fails."""
        row = self._study_row(name)
        now = self._clock()
        study, strategy = self._parsed_study(row.config)
        table = TrialTable(self._db, row.name)
        overdue_trials = table.overdue_trials(now)
        if overdue_trials:
            with self._transaction():
                for trial in overdue_trials:
                    table.write_trial(transitions.expire_trial(study, trial, next_seq=table.next_seq()))
            self._commit_log.record_commit()
        return _OpenStudy(study, strategy, table, row.stopped, now)

    def _parsed_study(self, config_text: str) -> tuple[Study, SelectionStrategy]:
        if config_text not in self._parsed_studies:
            study = study_from_json(config_text)
            self._parsed_studies[config_text] = (study, load_strategy(study, self._plugins, f"study {study.name!r}"))
        return self._parsed_studies[config_text]

    def _drop_unneeded(self, open_study: _OpenStudy) -> list[Artifact]:
        """Marks checkpoints that are not needed any more in their rows, and returns them."""
        return (
            []
            if open_study.study.keep is Keep.ALL
            else open_study.table.drop_unneeded_checkpoints(open_study.study.generations)
        )
