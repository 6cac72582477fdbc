"""Search over scripts: a trial runs one process per session, with the trial's values on the command line.

A trial's fitness is computed from the curves that its sessions write. With `Method.median_stopping`, curves are read
while they grow: at a given share of the steps, the trials of a wave that are below the median are stopped, and their
processes ended. The comparison uses each curve up to that step, even if it is longer when it is read. So the decision
depends neither on the speed of a machine nor on interruptions of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lobench.core.case import CaseInfo
from lobench.core.experiment import SessionMember
from lobench.core.search.search import Trial, TrialState
from lobench.core.subject import RequestedSubject, Subject
from lobench.core.trials import FIRST_REPORT_SEED, is_over, trials_below_median
from lobench.engine.chief.commands import CommandRun
from lobench.engine.store.ledger import EvaluationRow
from lobench.experiments.scripts import ScriptCurves, num_report_sessions, script_members, script_name
from lobench.experiments.search.median_stopping import complete_waves
from lobench.experiments.search.of_commands import ProcessSearch
from lobench.experiments.search.planned import KnownTrials, PlannedSearch
from lobench.experiments.search.running import SearchContext, SearchKey

__all__ = ["ScriptSearch"]


class ScriptSearch(ProcessSearch):
    """A search over scripts.

    Args:
      planned_search, context, known_trials, options: As in `ProcessSearch`.
      scripts: Reader of the curves that the scripts write.
    """

    def __init__(
        self,
        planned_search: PlannedSearch,
        context: SearchContext,
        known_trials: KnownTrials,
        *,
        scripts: ScriptCurves,
        **options: Any,
    ) -> None:
        super().__init__(planned_search, context, known_trials, **options)
        self._scripts = scripts
        self._partial_fitnesses: dict[int, float | None] = {}  # fitness up to the step of the decision, by trial
        # By trial: the sessions of which an earlier start recorded a part.
        self._stored_sessions: dict[int, set[int]] = {}
        self._judged_trials: set[int] = set()  # trials for which stopping was decided
        self._notes: dict[str, str] = {}  # reasons of stopped trials, by the script's name

    def num_expected(self, cases: Sequence[CaseInfo]) -> int:
        if self.history.is_over:
            return 0
        num_open_trials = self.planned_search.num_trials - sum(is_over(trial.state) for trial in self.history.trials)
        return num_open_trials * self.num_subjects + num_report_sessions(self.method, self.num_subjects)

    def take_requests(self) -> list[RequestedSubject]:
        self._update_trials()
        return super().take_requests()

    def records_curves_of(self, run: CommandRun) -> bool:
        name, _, number = run.method.name.partition("/")
        is_of_trial = name == self.method.name and run.session < FIRST_REPORT_SEED
        return is_of_trial and self.method.median_stopping is not None and int(number) not in self._judged_trials

    def roles_of(self, subject: Subject) -> Iterator[tuple[str, int, bool]]:
        best_trial = self.history.best if self._unreported_keys is not None else None
        if subject.is_imported:
            for number, runs in self._runs.items():
                if subject.name == script_name(runs[0].method):
                    yield self.method.name, number, best_trial is not None and best_trial.number == number

    def members(self) -> Iterator[SessionMember]:
        """Yields the curves of completed trials. The best trial's curves include fresh seeds."""
        best_trial = self.history.best if self._unreported_keys is not None else None
        for trial in self.history.trials:
            if trial.state == "done" and (runs := self._runs.get(trial.number)):
                sessions = [run.session for run in runs]
                rows = self._scripts.rows(script_name(runs[0].method))
                has_fresh_seeds = best_trial is not None and best_trial.number == trial.number
                wanted_rows = [
                    row for row in rows if row.key.seed_block.start in sessions or (has_fresh_seeds and _is_fresh(row))
                ]
                yield from script_members(self.method.name, trial.number, wanted_rows, None)

    def begin(self) -> None:
        super().begin()
        self._update_trials()

    def _stored_state(self, run: CommandRun) -> TrialState:
        """Returns the state of a session from earlier runs. A stopped session waits for its wave's decision again."""
        state = super()._stored_state(run)
        return "waiting" if state == "stopped" else state

    def _update_trials(self) -> None:
        """Applies median stopping to complete waves, and ends the trials whose sessions have all ended."""
        if self.method.median_stopping is not None:
            for trial in self.history.trials:
                if trial.number not in self._partial_fitnesses:
                    self._record_part(trial, self.method.median_stopping)
            self._judge()
        for trial in self.history.trials:
            is_waited_for = self.method.median_stopping is not None and trial.number not in self._judged_trials
            runs = self._runs.get(trial.number, ())
            if is_waited_for or is_over(trial.state) or not all(self._commands.is_drained(run.id) for run in runs):
                continue
            states = {self._commands.states[run.id] for run in runs}
            if "failed" in states:
                self._set_state([trial.number], "failed")
            elif states != {"done"}:
                self._set_state([trial.number], "infeasible")
            else:
                self._end_trial(trial, runs)

    def _end_trial(self, trial: Trial, runs: Sequence[CommandRun]) -> None:
        name = script_name(runs[0].method)
        sessions = [run.session for run in runs]
        new_runs = [run for run in runs if not self._scripts.has_curves(name, [run.session])]
        problems = list(filter(None, map(self._scripts.record, new_runs)))
        for problem in problems:
            self._context.log(f"{runs[0].method.title}: {problem}")
        fitness = None if problems else self._scripts.fitness(name, sessions)
        self._set_state([trial.number], "infeasible" if fitness is None else "done", fitness)

    # Stopping.

    def _record_part(self, trial: Trial, share: float) -> None:
        """Records a trial's curves up to the step at which it is judged, once all of its sessions have reached it."""
        runs, suffix = self._runs[trial.number], f" to {share:.0%}"
        name = f"{script_name(runs[0].method)}{suffix}"
        sessions = [run.session for run in runs]
        if trial.number not in self._stored_sessions:
            self._stored_sessions[trial.number] = {row.key.seed_block.start for row in self._scripts.rows(name)}
        if runs := [run for run in runs if run.session not in self._stored_sessions[trial.number]]:
            decision_step = round(share * (self.method.until_step or 0))
            cut_steps_of_runs = [self._last_steps_until(run, decision_step) for run in runs]
            if None in cut_steps_of_runs:
                if any(
                    self._commands.is_drained(run.id)
                    for run, cut_steps in zip(runs, cut_steps_of_runs, strict=True)
                    if cut_steps is None
                ):
                    self._partial_fitnesses[trial.number] = None  # it ended before the point
                return
            with self._context.ledger.transaction():
                problems = [
                    self._scripts.record(run, suffix=suffix, end_steps=cut_steps)
                    for run, cut_steps in zip(runs, cut_steps_of_runs, strict=True)
                    if cut_steps is not None
                ]
            if any(problems):
                if all(self._commands.is_drained(run.id) for run in runs):
                    self._partial_fitnesses[trial.number] = None
                return  # a running script's files may be readable later
        self._partial_fitnesses[trial.number] = self._scripts.fitness(name, sessions)

    def _last_steps_until(self, run: CommandRun, point: int) -> Mapping[str, int] | None:
        """Returns the last step at or before a point, by case; None until the session has reached the point."""
        if self._commands.states[run.id] == "waiting":
            return None
        growth = self._scripts.progress(run, is_over=self._commands.is_drained(run.id))
        return None if growth is None else growth.last_steps_until(point)

    def _judge(self) -> None:
        """Stops the trials below the median of each wave whose trials have all reached the step of the decision."""
        for wave in complete_waves(self.history.trials, self._partial_fitnesses):
            if wave[0].number in self._judged_trials:
                continue
            self._judged_trials.update(trial.number for trial in wave)
            notes_of_stopped = trials_below_median(
                wave, self._partial_fitnesses, after=f"{self.method.median_stopping:.0%}"
            )
            for trial in wave:
                name = script_name(self._runs[trial.number][0].method)
                if trial.number in notes_of_stopped:
                    self._notes.setdefault(name, notes_of_stopped[trial.number])
                elif name in self._notes:  # a trial with the same values was stopped before
                    notes_of_stopped[trial.number] = self._notes[name]
            for number in notes_of_stopped:
                for run in self._runs[number]:
                    self._commands.stop_command(run.id)
            self._set_state(list(notes_of_stopped), "stopped", notes=notes_of_stopped)

    # The best on fresh seeds: more sessions of the same script.

    def _requests_on_fresh_seeds(self, best: Trial, bindings: Sequence[str]) -> list[RequestedSubject]:
        num_sessions = num_report_sessions(self.method, self.num_subjects)
        for run in self._runs_of(self._method_of(best), range(FIRST_REPORT_SEED, FIRST_REPORT_SEED + num_sessions)):
            self._commands.add_run(run, self._state_of(run))
        return []

    def _forget_trials_from(self, first_trial: int) -> None:
        super()._forget_trials_from(first_trial)
        self._partial_fitnesses = {
            number: fitness for number, fitness in self._partial_fitnesses.items() if number < first_trial
        }
        self._judged_trials = {number for number in self._judged_trials if number < first_trial}
        self._stored_sessions = {
            number: held_sessions for number, held_sessions in self._stored_sessions.items() if number < first_trial
        }

    def _is_ours(self, key: SearchKey) -> bool:
        return False  # a script's curves are read, and no subject is evaluated

    def _end_trials_of(self, key: SearchKey, subject: Subject | None) -> None:
        raise AssertionError("no subject of a script is evaluated")


def _is_fresh(row: EvaluationRow) -> bool:
    return row.key.seed_block.start >= FIRST_REPORT_SEED
