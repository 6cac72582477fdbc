"""Write journal: decisions are collected and written to the ledger in one transaction."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lobench.core import planner
from lobench.core.admission import AdmissionPolicy
from lobench.core.case import CaseInfo
from lobench.core.planner.log import PlannerStart, RecordedPlanner
from lobench.core.program import EVALUATOR_PROGRAMS, Program
from lobench.core.result import Curves, EvaluationKey
from lobench.engine.chief.decisions import DecisionLog
from lobench.engine.chief.interfaces import WatchOptions
from lobench.engine.chief.subjects import Subjects
from lobench.engine.config.suite_files import SuiteFiles
from lobench.engine.store.current import WholeSuites, codes_by_place, forms_by_place
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.plans import suite_plan
from lobench.engine.store.programs import ExpectedProgram
from lobench.engine.store.states import remove_finished_states, state_folder, sweep_states

__all__ = ["ActionAndCurves", "Journal"]

_GATHER_SECONDS = 0.02  # longest delay of a result to share a commit with others
_DELAY_IN_COMMITS = 10  # delay in durations of a commit, so that a busy chief spends less time on the disk

# An action of the scheduler, and the curves of the result that caused it, if any.
ActionAndCurves = tuple[planner.Action, Curves | None]


class Journal:
    """Decisions that are not yet written to the ledger.

    Attributes:
      programs: Keys of the programs whose results count: the expected programs, and those actually used instead.
      commit_at: Time at which the collected decisions are due, by `time.monotonic`; infinite if nothing is collected.
    """

    def __init__(self, ledger: Ledger, options: WatchOptions, subjects: Subjects, suite: SuiteFiles) -> None:
        self._ledger = ledger
        self._options = options
        self._subjects = subjects
        self._suite = suite
        self._plans: dict[str, tuple[Mapping[str, CaseInfo], Mapping[str, Any]]] = {}  # by variant
        self._planned_cases: dict[int, Mapping[str, CaseInfo]] = {}  # by position
        self._expected_program = ExpectedProgram(is_elsewhere=options.elsewhere, together=options.together)
        self._expected_programs = {program.key for program in self._expected_program.all_programs()}
        self.programs = ledger.accepted_programs(self._expected_program.all_programs())
        self._decisions: list[ActionAndCurves] = []
        # Pairs (actual, expected) registered in this commit.
        self._registered_programs: set[tuple[Program, Program]] = set()
        self._state_folder = state_folder(ledger.store)
        sweep_states(self._state_folder, ledger.connection)
        self._decision_log: DecisionLog | None = None
        self._commit_seconds = 0.0
        self.commit_at = math.inf

    def make_planner(self, start: PlannerStart, policy: AdmissionPolicy, log: Callable[[str], None]) -> RecordedPlanner:
        """Returns a planner whose events are logged in the store."""
        planner = RecordedPlanner(start, policy)
        self._decision_log = DecisionLog(self._ledger.store, start, planner.take_steps, log=log)
        return planner

    def close(self) -> None:
        """Writes the rest of the decision log."""
        if self._decision_log is not None:
            self._decision_log.write(is_last=True)

    def add(self, decision: ActionAndCurves) -> None:
        """Adds a decision. The commit is delayed to collect more of them, for longer if the disk is slow."""
        self._decisions.append(decision)
        if self.commit_at == math.inf:
            self.commit_at = time.monotonic() + min(_DELAY_IN_COMMITS * self._commit_seconds, _GATHER_SECONDS)

    def commit(self) -> Sequence[ActionAndCurves]:
        """Writes the collected decisions and returns them. The caller may now act on them."""
        decisions = self._decisions
        self._decisions = []
        self.commit_at = math.inf
        if decisions:
            started_at = time.monotonic()
            self._registered_programs.clear()
            with self._ledger.transaction():
                for action, curves in decisions:
                    self._write_action(action, curves)
            self._commit_seconds = time.monotonic() - started_at
            self._free_states(decisions)
        if self._decision_log is not None:
            self._decision_log.write()
        return decisions

    def _free_states(self, decisions: Sequence[ActionAndCurves]) -> None:
        """Removes saved training states whose results are durable.

        Evaluations without curves may be retried and keep theirs.
        """
        records = [action for action, curves in decisions if isinstance(action, planner.Record) and curves is not None]
        remove_finished_states(self._state_folder, [record.evaluation for record in records])

    def _write_action(self, action: planner.Action, curves: Curves | None) -> None:
        match action:
            case planner.Record():
                self._record_result(action, curves)
            case planner.RecordSplit(evaluation):
                self._ledger.record_incident("split", evaluation)
            case planner.RecordDeath(evaluation):
                self._ledger.record_incident("death", evaluation)
            case planner.Admit(position):
                self._record_plan(position)
                self._ledger.record_admission(position, "admitted")
            case planner.Skip(position):
                self._ledger.record_admission(position, "skipped")
            case planner.FinishCheckpoint(position):
                cases = self._subjects.known_cases(self._subjects[position].variant.key)
                blocks = {key: case.blocks() for key, case in cases.items()}
                self._ledger.finish_checkpoint(
                    position, programs=self.programs, case_keys=cases, codes=self._subjects.codes(), blocks=blocks
                )
            case planner.Reopen(position):
                self._record_plan(position)
                self._ledger.reopen_checkpoint(position)
            case planner.Forget(evaluations):
                self._ledger.forget_evaluations(evaluations, programs=self.programs, codes=self._subjects.codes())

    def _record_plan(self, position: int) -> None:
        """Records the plan of the subject at a position, before its first result and if its cases changed."""
        subject = self._subjects[position]
        cases = self._subjects.known_cases(subject.variant.key)
        if not cases or self._planned_cases.get(position) is cases:
            return
        self._planned_cases[position] = cases
        plan = self._suite_plan(subject.variant.key)
        self._ledger.record_plan(subject, plan, self._expected_programs, self._whole_suites())

    def record_current_plan(self, variant: str) -> None:
        """Records this run's plan as the last plan of a variant, even if no evaluation is missing."""
        cases = self._subjects.known_cases(variant)
        make_plan = functools.partial(self._suite_plan, variant)
        forms = forms_by_place(cases.values())
        codes = codes_by_place(cases.values())
        self._ledger.record_current(variant, forms, make_plan, self._expected_programs, codes, self._whole_suites())

    def _whole_suites(self) -> WholeSuites:
        """Returns the suites of which this run asks for every case."""
        return WholeSuites(() if self._options.cases else self._suite.names(), self._options.with_tests)

    def _suite_plan(self, variant: str) -> Mapping[str, Any]:
        cases = self._subjects.known_cases(variant)
        planned_cases, plan = self._plans.get(variant, ({}, {}))
        if planned_cases is not cases:
            plan = suite_plan(cases.values(), self._suite.digests())
            self._plans[variant] = cases, plan
        return plan

    def _record_result(self, action: planner.Record, curves: Curves | None) -> None:
        evaluation, case = action.evaluation, action.case
        for position in (positions := self._subjects.positions_needing(evaluation)):
            self._record_plan(position)
        if case.evaluator:
            program = expected = EVALUATOR_PROGRAMS[case.evaluator]
        elif curves is None:
            program = expected = self._expected_program.of(case.num_gpus)
        else:
            program = Program.of(curves.provenance)
            expected = self._expected_program.of(case.num_gpus, program.together)
        key = program.key
        is_registered = (program, expected) in self._registered_programs
        self.programs.add(key)
        is_new = self._ledger.record_evaluation(
            EvaluationKey.of(evaluation.sha256, case, evaluation.block, key),
            case,
            action.outcome,
            curves=curves,
            message=action.message,
            labels=self._options,
            positions=positions,
            program=None if is_registered else program,
            expected=expected,
        )
        if is_new:
            self._registered_programs.add((program, expected))
