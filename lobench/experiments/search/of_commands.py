"""Search over commands: a trial is one meta-training per session, with its values in `{gin}`.

A trial trains as a method with these values would, into the same folder. Its fitness is the score of its sessions' last
checkpoints on the cases. The checkpoints of the best trial are evaluated on fresh seeds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lobench.core.case import CaseInfo
from lobench.core.experiment import Method
from lobench.core.planner import CommandId
from lobench.core.search.search import Trial, TrialState
from lobench.core.subject import GivenCheckpoint, RequestedSubject, Subject
from lobench.core.trials import is_over
from lobench.engine.checkpoints.given import given_checkpoint
from lobench.engine.chief.commands import CommandRun, CommandRuns
from lobench.experiments.search.planned import KnownTrials, PlannedSearch
from lobench.experiments.search.running import SearchContext, SearchKey, SearchRun, key_of

__all__ = ["CommandSearch", "ProcessSearch"]


class ProcessSearch(SearchRun):
    """A search whose trials are processes, one per session.

    Args:
      commands: Commands of the experiment. The commands of trials are added to them.
      runs_of: Function of a trial's method and a range of session numbers that returns the sessions. Without a range,
        it returns all sessions of the experiment.
      state_of: Function that returns the state of a session in the ledger.
    """

    def __init__(
        self,
        planned_search: PlannedSearch,
        context: SearchContext,
        known_trials: KnownTrials,
        *,
        width: int,
        commands: CommandRuns,
        runs_of: Callable[[Method, range | None], Sequence[CommandRun]],
        state_of: Callable[[CommandRun], TrialState],
    ) -> None:
        super().__init__(planned_search, context, known_trials, width=width)
        self._commands = commands
        self._runs_of = runs_of
        self._state_of = state_of
        self._runs: dict[int, Sequence[CommandRun]] = {}  # by trial; equal trials share their runs

    @property
    def num_subjects(self) -> int:
        return len(self._context.experiment.sessions or (0,))

    def _start_trials(self, trials: Sequence[Trial]) -> None:
        runs_by_folder = {run.folder: runs for runs in self._runs.values() for run in runs}
        for trial in trials:
            runs = self._runs_of(self._method_of(trial), None)
            if runs[0].folder not in runs_by_folder:
                runs_by_folder.update(dict.fromkeys((run.folder for run in runs), runs))
                for run in runs:
                    self._commands.add_run(run, self._stored_state(run))
            self._runs[trial.number] = runs_by_folder[runs[0].folder]

    def _stored_state(self, run: CommandRun) -> TrialState:
        """Returns the state of a session from earlier runs."""
        return self._state_of(run)

    def _method_of(self, trial: Trial) -> Method:
        return dataclasses.replace(
            self.method.with_values(trial.parameters),
            name=f"{self.method.name}/{trial.number}",
            label=self.method.trial_label(trial.number),
        )

    def _forget_trials_from(self, first_trial: int) -> None:
        self._runs = {number: runs for number, runs in self._runs.items() if number < first_trial}


class CommandSearch(ProcessSearch):
    """Search over meta-trainings. The arguments are those of `ProcessSearch`."""

    def __init__(
        self, planned_search: PlannedSearch, context: SearchContext, known_trials: KnownTrials, **options: Any
    ) -> None:
        super().__init__(planned_search, context, known_trials, **options)
        self._last_checkpoints: dict[Path, Subject] = {}  # by the folder of a session, the last of its checkpoints
        self._settled_commands: set[CommandId] = set()  # those that have ended, and whose checkpoints were taken
        self._evaluated_keys: set[SearchKey] = set()

    def take_requests(self) -> list[RequestedSubject]:
        ids = [run.id for runs in self._runs.values() for run in runs]
        self._settled_commands.update(filter(self._commands.is_drained, ids))
        self._end_finished_trials()
        return super().take_requests()

    def roles_of(self, subject: Subject) -> Iterator[tuple[str, int, bool]]:
        key = key_of(subject)
        if not subject.has_theta:
            return
        for number, runs in self._runs.items():
            for run in runs:
                if Path(subject.uri).is_relative_to(run.folder):
                    yield f"{self.method.name}/{number}", run.session, key in self._report_keys

    def _is_ours(self, key: SearchKey) -> bool:
        uri, _ = key
        folders = {run.folder for runs in self._runs.values() for run in runs}
        return "://" not in uri and not folders.isdisjoint(Path(uri).parents)

    def subject_read(self, given: RequestedSubject, subject: Subject | None) -> None:
        if subject is not None and isinstance(given, GivenCheckpoint) and key_of(given) not in self._report_keys:
            for folder in (run.folder for runs in self._runs.values() for run in runs):
                if Path(given.uri).is_relative_to(folder):
                    last_checkpoint = self._last_checkpoints.get(folder)
                    self._last_checkpoints[folder] = (
                        subject
                        if last_checkpoint is None or subject.outer_step >= last_checkpoint.outer_step
                        else last_checkpoint
                    )
        super().subject_read(given, subject)

    def register_cases(self, variant: str, cases: Sequence[CaseInfo]) -> None:
        super().register_cases(variant, cases)
        self._end_finished_trials()

    def _end_trials_of(self, key: SearchKey, subject: Subject | None) -> None:
        self._mark_reported(key)
        self._evaluated_keys.add(key)
        self._end_finished_trials()

    def _end_finished_trials(self) -> None:
        """Ends the trials whose sessions have all ended, if their last checkpoints are evaluated."""
        for trial in self.history.trials:
            runs = self._runs.get(trial.number, ())
            if is_over(trial.state) or not all(run.id in self._settled_commands for run in runs):
                continue
            states = {self._commands.states[run.id] for run in runs}
            last_checkpoints = [self._last_checkpoints.get(run.folder) for run in runs]
            if "failed" in states:
                self._set_state([trial.number], "failed")
            elif "infeasible" in states or None in last_checkpoints:
                self._set_state([trial.number], "infeasible")
            elif all(
                key_of(checkpoint) in self._evaluated_keys for checkpoint in last_checkpoints if checkpoint is not None
            ):
                fitnesses = [self._fitness(checkpoint) for checkpoint in last_checkpoints if checkpoint is not None]
                known_fitnesses = [fitness for fitness in fitnesses if fitness is not None]
                if len(known_fitnesses) == len(fitnesses):
                    self._set_state([trial.number], "done", math.fsum(known_fitnesses) / len(known_fitnesses))
                else:
                    self._set_state([trial.number], "infeasible")

    def _requests_on_fresh_seeds(self, best: Trial, bindings: Sequence[str]) -> list[RequestedSubject]:
        given_subjects: list[RequestedSubject] = []
        for run in self._runs[best.number]:
            subject = self._last_checkpoints[run.folder]
            label = f"{run.label} on fresh seeds"
            given_subjects.append(given_checkpoint(subject.uri, (*run.method.bindings, *bindings), label=label))
        return given_subjects
