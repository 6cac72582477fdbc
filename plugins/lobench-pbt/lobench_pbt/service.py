"""The controller: each request is one transaction on the trial table. It remembers nothing between two requests."""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lobench.hookspecs import SelectionStrategy
from lobench.plugins import PluginManager, load_plugins
from lobench_pbt import transitions
from lobench_pbt.decide import Answer, Suggestion, suggest
from lobench_pbt.study import Keep, Study, check_study, load_strategy, study_from_json, study_to_json
from lobench_pbt.table import StudyRow, TrialTable, connect, reading, studies, transaction
from lobench_pbt.transitions import Completion, Score
from lobench_pbt.trial import Artifact, Refusal, Refused, State, Trial
from lobench_pbt.vault import Vault

__all__ = ["Service", "Verdict"]


_WATCH_SECONDS = 180.0  # a watch that could not deliver tries again within a minute


class Verdict:
    """What becomes of a reported fitness."""

    IGNORED, HELD, ACCEPTED = "ignored", "held", "accepted"


@dataclasses.dataclass(frozen=True, slots=True)
class _Open:
    """A study within a transaction."""

    study: Study
    strategy: SelectionStrategy
    table: TrialTable
    stopped: bool
    now: float

    def trial(self, id: int) -> Trial:
        trial = self.table.trial(id)
        if trial is None:
            raise Refused(Refusal.NOT_FOUND, "there is no such trial", where=f"study {self.study.name!r}", got=str(id))
        return trial


class Service:
    """Serves the studies of one store. Threads may share it: requests wait for one another.

    Args:
      store: Folder; the caller holds its lock.
      clock: Seconds; leases are measured with it, across restarts.
      plugins: Where strategies come from; None loads those that are installed.
    """

    def __init__(
        self, store: Path, *, clock: Callable[[], float] = time.time, plugins: PluginManager | None = None
    ) -> None:
        store.mkdir(parents=True, exist_ok=True)
        self._db: sqlite3.Connection = connect(store / "pbt.sqlite")
        self._vault, self._clock = Vault(store / "checkpoints"), clock
        self._lock = threading.Lock()
        self._plugins: PluginManager = plugins or load_plugins()
        self._parsed: tuple[str, Study, SelectionStrategy] | None = None  # the last study's text, and what it says
        self._vault.sweep([kept for row in studies(self._db) for kept in TrialTable(self._db, row.name).kept()])

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def resume(self) -> None:
        """Lets nobody's time run out because no controller listened: who is still there has time to say so.

        A lease lasts one more period from now on, at least; a fitness as long as a watch may wait between two tries.

        Raises:
          StoreError: the database cannot be read or written.
        """
        with self._lock, transaction(self._db):
            for row in studies(self._db):
                study, now = study_from_json(row.config), self._clock()
                fitness = now + min(study.fitness_seconds, _WATCH_SECONDS)
                TrialTable(self._db, row.name).extend(lease=now + study.lease_seconds, fitness=fitness)

    def expire(self) -> None:
        """Deals with deadlines that have passed.

        Raises:
          StoreError: the database cannot be read or written.
        """
        with self._lock, reading():
            for row in studies(self._db):
                self._expire(row.name)

    # Studies.

    def create_study(self, study: Study) -> StudyRow:
        """Creates a study; the same one again changes nothing.

        Raises:
          ConfigError: it cannot run. Refused: there is another one of that name.
        """
        check_study(study, f"study {study.name!r}", self._plugins)
        text = study_to_json(study)
        with self._lock, transaction(self._db):
            found = studies(self._db, study.name)
            if found and found[0].config != text:
                raise Refused(
                    Refusal.CONFLICT,
                    "there is another study of that name here",
                    where=f"study {study.name!r}",
                    expected="the same configuration, another Study.name, or another --store",
                )
            self._db.execute("INSERT OR IGNORE INTO studies (name, config) VALUES (?, ?)", (study.name, text))
            return studies(self._db, study.name)[0]

    def get_study(self, name: str = "") -> tuple[StudyRow, Mapping[str, int]]:
        """Returns a study and the number of its trials by state."""
        with self._lock, reading():
            row = self._row(name)
            return row, TrialTable(self._db, row.name).counts()

    def stop_study(self, name: str = "") -> StudyRow:
        """Stops a study: trials that train may end early, nothing begins any more."""
        with self._open(name) as opened:
            opened.table.stop()
            for trial in opened.table.unfinished():
                opened.table.write(transitions.stopped(trial, next_seq=opened.table.next_seq()))
            return self._row(opened.study.name)

    def list_trials(self, name: str = "", *, after: int = 0, limit: int = 500) -> list[Trial]:
        with self._lock, reading():
            return TrialTable(self._db, self._row(name).name).page(after, limit)

    def lease_seconds(self, name: str = "") -> float:
        with self._lock, reading():
            return self._study(self._row(name).config)[0].lease_seconds

    # Workers.

    def suggest(self, name: str, worker: str) -> Suggestion:
        if not worker:
            raise Refused(Refusal.INVALID, "a worker needs a name")
        with self._open(name) as opened:
            suggestion = suggest(
                opened.study,
                opened.strategy,
                opened.table,
                worker=worker,
                stopped=opened.stopped,
                now=opened.now,
            )
            if suggestion.answer is Answer.TRIAL and suggestion.trial is not None:
                opened.table.write(suggestion.trial)
            return suggestion

    def heartbeat(self, name: str, id: int, attempt: int) -> bool:
        """Renews a lease; returns whether the trial should end early."""
        with self._open(name) as opened:
            trial = transitions.renewed(opened.study, opened.trial(id), attempt=attempt, now=opened.now)
            opened.table.write(trial)
            return trial.state is State.STOPPING

    def add_measurement(
        self, name: str, id: int, attempt: int, *, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> bool:
        """Adds a measurement and renews the lease; returns whether the trial should end early."""
        with self._open(name) as opened:
            trial = transitions.renewed(opened.study, opened.trial(id), attempt=attempt, now=opened.now)
            opened.table.write(trial)
            opened.table.add_measurement(id, attempt, step, seconds, metrics)
            return trial.state is State.STOPPING

    def complete(self, name: str, id: int, completion: Completion) -> Trial:
        """Ends a trial; its checkpoint is copied and checked first.

        Raises:
          Refused: stale, different from an earlier completion, a checkpoint that is missing or changed.
        """
        with self._open(name) as opened:
            before = opened.trial(id)
            if transitions.is_repeat(opened.study, before, completion):
                return before
            study = opened.study.name
        kept: Artifact | None = None
        if completion.checkpoint is not None:
            kept, state = self._vault.take(f"{study}-{id}", completion.checkpoint, completion.train_state)
            completion = dataclasses.replace(completion, checkpoint=kept, train_state=state)
        try:
            with self._open(study) as opened:
                before = opened.trial(id)
                if transitions.is_repeat(opened.study, before, completion):
                    trial, repeated = before, True
                else:
                    trial, repeated = self._completed(opened, before, completion), False
        except BaseException:
            if kept is not None:
                self._vault.discard(kept)
            raise
        if repeated and kept is not None:
            self._vault.discard(kept)
        self._retire(study)
        return trial

    def _completed(self, opened: _Open, before: Trial, completion: Completion) -> Trial:
        seq = opened.table.next_seq()
        trial = transitions.completed(opened.study, before, completion, now=opened.now, next_seq=seq)
        score = opened.table.take_score(trial.id, completion.checkpoint.sha256) if completion.checkpoint else None
        if trial.state is State.AWAITING_FITNESS and score is not None:
            trial = transitions.scored(opened.study, trial, score, next_seq=seq)
        opened.table.write(trial)
        return trial

    # Fitness.

    def report_fitness(self, name: str, id: int, *, generation: int, sha256: str, score: Score) -> str:
        """Takes what a watch found; returns one of `Verdict`. The same again changes nothing."""
        with self._open(name) as opened:
            trial = opened.table.trial(id)
            if trial is None or trial.generation != generation:
                return Verdict.IGNORED
            if trial.state in (State.REQUESTED, State.ACTIVE, State.STOPPING):
                opened.table.hold_score(id, sha256, score)
                return Verdict.HELD
            if trial.checkpoint is None or trial.checkpoint.sha256 != sha256:
                return Verdict.IGNORED
            if trial.state is not State.AWAITING_FITNESS:
                return Verdict.ACCEPTED if trial.state is State.SUCCEEDED else Verdict.IGNORED
            opened.table.write(transitions.scored(opened.study, trial, score, next_seq=opened.table.next_seq()))
            study = opened.study.name
        self._retire(study)
        return Verdict.ACCEPTED

    # What all share.

    def _row(self, name: str) -> StudyRow:
        found = studies(self._db, name)
        if len(found) != 1:
            known = ", ".join(row.name for row in studies(self._db)) or "none"
            what = "which study?" if len(found) > 1 else "there is no such study"
            raise Refused(Refusal.NOT_FOUND, what, got=repr(name), expected=f"one of: {known}")
        return found[0]

    @contextmanager
    def _open(self, name: str) -> Iterator[_Open]:
        """One transaction on a study, its deadlines dealt with first.

        Raises:
          StoreError: the database cannot be read or written. Refused: no such study.
        """
        with self._lock:
            with reading():
                overdue = self._expire(name)
            with transaction(self._db):
                yield overdue

    def _expire(self, name: str) -> _Open:
        """Lost leases are facts: they stay, whatever becomes of the request."""
        row, now = self._row(name), self._clock()
        study, strategy = self._study(row.config)
        table = TrialTable(self._db, row.name)
        late = table.overdue(now)
        if late:
            with transaction(self._db):
                for trial in late:
                    table.write(transitions.expired(study, trial, next_seq=table.next_seq()))
        return _Open(study, strategy, table, row.stopped, now)

    def _study(self, text: str) -> tuple[Study, SelectionStrategy]:
        if self._parsed is None or self._parsed[0] != text:
            study = study_from_json(text)
            self._parsed = (text, study, load_strategy(study, self._plugins, f"study {study.name!r}"))
        return self._parsed[1], self._parsed[2]

    def _retire(self, name: str) -> None:
        """Drops checkpoints that nobody needs any more; the rows first, so that no row names a file that is gone."""
        with self._open(name) as opened:
            if opened.study.keep is Keep.ALL or (len(opened.study.objectives) > 1 and not opened.study.weighted):
                return
            dropped = opened.table.drop_unneeded(opened.study.generations)
        for artifact in dropped:
            self._vault.discard(artifact)
