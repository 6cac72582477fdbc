"""Planner state machine: admission of subjects, missing evaluations, outcomes.

The planner turns missing evaluations into work for the machine of `lobench.core.schedule`, which decides which worker
runs what. Both are deterministic: equal events give equal actions. An outcome counts once a `Record` action names it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lobench.core import schedule
from lobench.core.admission import AdmissionPolicy
from lobench.core.case import COMMAND, CaseInfo
from lobench.core.planner import events
from lobench.core.planner.backlog import Backlog
from lobench.core.planner.events import Action, CommandId, EvaluationId, History, RemainingWork
from lobench.core.planner.plan import Plan
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey

__all__ = ["Planner"]

_STOPPING_SECONDS = 10.0  # time for a worker to stop a command that ran past its deadline; then the worker is killed
_GUESS_SECONDS = 1e-3  # guessed time of an inner step of one seed of a case that never ran; only the order matters
_OUTCOMES = {schedule.End.TIMEOUT: Outcome.TIMEOUT, schedule.End.POISONED: Outcome.POISONED}
_COMMANDS_RANK = -1  # commands come before any evaluation: they take longest and produce further work
_TYPICAL_OUTCOMES = (Outcome.PASSED, Outcome.FAILED)  # other outcomes may end early


@dataclass(slots=True, kw_only=True)
class _PendingEvaluation:
    """An evaluation queued or running.

    Attributes:
      case: Case of the evaluation.
      position: Smallest position among the subjects that need it; work is ordered by it.
      subjects: Subjects that need it.
    """

    case: CaseInfo
    position: int
    subjects: list[SubjectKey]


class Planner:
    """State machine that decides which evaluations are missing.

    It admits subjects according to the admission policy, turns each missing evaluation into work for
    `schedule.Machine`, and records outcomes. It is deterministic: equal events give equal actions.

    Args:
      max_cores: Number of cores that all workers may use together.
      policy: Policy that decides which waiting checkpoints are admitted.
      history: Recorded evaluations and decisions of earlier runs.
      max_gpus: Number of devices that all workers may use together; infinite if the executor decides.
      together: Largest number of checkpoints that a worker computes together.
    """

    def __init__(
        self,
        max_cores: int,
        policy: AdmissionPolicy,
        history: History | None = None,
        *,
        max_gpus: float = math.inf,
        together: int = 1,
    ) -> None:
        history = history or History()
        self._backlog, self._plan = Backlog(policy, history), Plan(history)
        self._machine = schedule.Machine(
            max_cores,
            max_gpus=max_gpus,
            together=together,
            deaths=history.deaths,
        )
        self._seconds = dict(history.durations)  # by case key, and by program key of known cases
        self._cases: dict[str, tuple[CaseInfo, ...]] = {}  # by variant
        self._open_positions: dict[SubjectKey, set[int]] = {}  # unfinished positions of admitted subjects
        self._num_missing: dict[SubjectKey, int] = {}  # number of missing evaluations of open subjects
        self._pending_evaluations: dict[EvaluationId, _PendingEvaluation] = {}
        self._num_pending = Counter[str]()  # number of wanted evaluations by program
        self._retried_subjects: set[SubjectKey] = set()  # subjects with an evaluation that is retried
        self._commands: set[CommandId] = set()  # commands that have not ended
        self._outdated_evaluations: list[tuple[EvaluationId, str, str]] = []  # see `take_outdated`
        self._keeps_code = history.keeps_code
        self._is_done = False
        self._actions: list[Action] = []

    def handle(self, event: events.Event) -> tuple[Action, ...]:
        """Applies an event and returns the actions to take, in order."""
        self._actions = []
        match event:
            case events.CasesKnown(cases, variant):
                self._register_cases(cases, variant)
            case events.SubjectSeen(position, subject):
                if self._backlog.add(position, subject):
                    self._open_position(position)
            case events.RunCommands(commands):
                self._commands.update(command for command, _ in commands)
                command_works = tuple(_command_work(command, size) for command, size in commands)
                self._translate(self._machine.apply(schedule.Add(command_works)))
            case events.RunEnded():
                self._backlog.has_ended = True
            case events.Finished():
                self._finish(event)
            case _:
                self._translate(self._machine.apply(event))
        self._admit()
        self._translate(self._machine.place_work())
        self._warm_up()
        self._check_done()
        return tuple(self._actions)

    @property
    def num_remaining(self) -> int:
        """Number of missing evaluations of admitted and waiting subjects; one for each subject with unknown cases."""
        missing_evaluations: set[EvaluationId] = set()
        num_unknown = 0
        for subject in {*self._open_positions, *self._backlog.waiting()}:
            if (cases := self._cases.get(subject.variant)) is None:
                num_unknown += 1
            else:
                missing_evaluations.update(
                    evaluation for evaluation, _ in self._plan.missing_evaluations(subject.sha256, cases)
                )
        return len(missing_evaluations) + num_unknown

    @property
    def remaining_work(self) -> RemainingWork:
        """Summary of the work that remains."""
        return RemainingWork(
            evaluations=dict(+self._num_pending),
            num_admitted=sum(map(len, self._open_positions.values())),
            num_waiting=self._backlog.num_fresh,
            num_cores=self._machine.max_cores,
        )

    def check(self) -> None:
        """Checks that the state is consistent with the machine's. Used by tests after each event.

        Raises:
          AssertionError: The state is inconsistent.
        """
        self._machine.check()
        assert self._machine.work_keys() == self._pending_evaluations.keys() | self._commands, (
            "wanted, and not the machine's work, or the reverse"
        )
        programs = Counter(entry.case.program_key for entry in self._pending_evaluations.values())
        assert programs == +self._num_pending, "wanted evaluations are miscounted"
        assert all(entry.subjects for entry in self._pending_evaluations.values()), (
            "no subject needs a wanted evaluation"
        )
        assert all(len(set(entry.subjects)) == len(entry.subjects) for entry in self._pending_evaluations.values()), (
            "wanted twice by one"
        )
        num_missing = Counter(subject for entry in self._pending_evaluations.values() for subject in entry.subjects)
        assert num_missing == self._num_missing, "missing evaluations of a subject are miscounted"
        assert all(self._num_missing.values()), "a subject that lacks nothing is not finished"
        planned_subjects = {subject for subject in self._open_positions if subject.variant in self._cases}
        assert self._num_missing.keys() == planned_subjects, "an open subject was not planned, or a closed one was"
        done_evaluations = [
            key for key, entry in self._pending_evaluations.items() if self._plan.is_current(key, entry.case)
        ]
        assert not done_evaluations, f"done, and wanted: {done_evaluations}"

    def take_outdated(self) -> list[tuple[EvaluationId, str, str]]:
        """Returns evaluations that were planned again since the last call because their code was edited.

        Each is followed by the code of its last result and the present code.
        """
        outdated, self._outdated_evaluations = self._outdated_evaluations, []
        return outdated

    # Checkpoints.

    def _register_cases(self, cases: tuple[CaseInfo, ...], variant: str) -> None:
        if variant in self._cases:
            return
        self._cases[variant] = cases
        for case in cases:
            if case.key in self._seconds:
                self._seconds.setdefault(case.program_key, self._seconds[case.key])
        for subject in list(self._open_positions):
            if subject.variant == variant:
                self._request_missing(subject, cases)

    def _open_position(self, position: int) -> None:
        subject = self._backlog.subject(position)
        self._open_positions.setdefault(subject, set()).add(position)
        if (cases := self._cases.get(subject.variant)) is not None:
            self._request_missing(subject, cases)

    def _request_missing(self, subject: SubjectKey, cases: tuple[CaseInfo, ...]) -> None:
        """Requests the missing evaluations of a subject. If none are missing, the subject is finished at once."""
        if retried := self._plan.evaluations_to_retry(subject.sha256, cases):
            self._plan.forget(retried)
            self._machine.apply(schedule.Forgive(tuple(retried)))
            self._retried_subjects.add(subject)
            self._actions.append(events.Forget(tuple(retried)))
        if not self._keeps_code and (outdated := self._plan.outdated_evaluations(subject.sha256, cases)):
            self._outdated_evaluations += [entry for entry in outdated if entry[0] not in self._pending_evaluations]
            self._machine.apply(schedule.Forgive(tuple(entry[0] for entry in outdated)))
        if subject not in self._num_missing:
            self._num_missing[subject] = 0
            self._request(
                self._plan.missing_evaluations(subject.sha256, cases), min(self._open_positions[subject]), [subject]
            )
        self._finish_if_complete(subject)

    def _request(
        self, evaluations: Iterable[tuple[EvaluationId, CaseInfo]], position: int, subjects: list[SubjectKey]
    ) -> None:
        new_works = []
        for evaluation, case in evaluations:
            pending = self._pending_evaluations.setdefault(
                evaluation, _PendingEvaluation(case=case, position=position, subjects=[])
            )
            if not pending.subjects:
                new_works.append(self._work_for(evaluation, case, position))
                self._num_pending[case.program_key] += 1
            for subject in subjects:
                if subject not in pending.subjects:
                    self._num_missing[subject] += 1
                    pending.subjects.append(subject)
        if new_works:
            self._machine.apply(schedule.Add(tuple(new_works)))

    def _finish_if_complete(self, subject: SubjectKey) -> None:
        if self._num_missing.get(subject):
            return
        for position in sorted(self._open_positions.pop(subject, ())):
            self._backlog.finish(position)
            self._actions.append(events.FinishCheckpoint(position))
        self._num_missing.pop(subject, None)

    def _admit(self) -> None:
        if not self._backlog.has_waiting or self._machine.is_draining:
            return
        sizes = (_size_of(case) for cases in self._cases.values() for case in cases)
        for action in self._backlog.decide(idle=self._machine.is_idle(sizes)):
            self._actions.append(action)
            if isinstance(action, events.Admit):
                self._open_position(action.position)
        for position, is_chosen in self._backlog.take_replans(self._cases.keys()):
            self._replan(position, is_chosen=is_chosen)

    def _replan(self, position: int, *, is_chosen: bool) -> None:
        """Reopens a subject that an earlier run finished or skipped, if it lacks evaluations now."""
        subject = self._backlog.subject(position)
        cases = self._cases[subject.variant]
        is_retried = subject in self._retried_subjects or self._plan.evaluations_to_retry(subject.sha256, cases)
        if is_retried or (is_chosen and any(True for _ in self._plan.missing_evaluations(subject.sha256, cases))):
            self._backlog.reopen(position)
            self._actions.append(events.Reopen(position))
            self._open_position(position)

    def _work_for(self, evaluation: EvaluationId, case: CaseInfo, position: int) -> schedule.Work:
        guess = _GUESS_SECONDS * case.num_inner_steps * evaluation.block.size
        return schedule.Work(
            key=evaluation,
            warm_key=case.program_key,
            size=_size_of(case),
            timeout_seconds=case.timeout_seconds + (_STOPPING_SECONDS if case.evaluator == COMMAND else 0.0),
            rank=position,
            guess_seconds=self._seconds.get(case.key, self._seconds.get(case.program_key, guess)),
            alike=(evaluation.case_key, evaluation.block) if _may_be_together(evaluation, case) else None,
        )

    # Results.

    def _finish(self, event: events.Finished) -> None:
        returned_work = schedule.Returned(
            event.worker,
            event.lease,
            event.now,
            event.replace_worker,
            event.seconds,
            is_typical=event.outcome in _TYPICAL_OUTCOMES,
            is_void=event.is_void,
        )
        self._translate(self._machine.apply(returned_work), event)

    def _translate(self, actions: Iterable[schedule.ScheduleAction], event: events.Finished | None = None) -> None:
        """Translates actions of the machine into actions of the planner; `event` is the result that caused them."""
        for action in actions:
            match action:
                case schedule.WorkLease():
                    self._add_lease(action)
                case schedule.Ended(work, end, lease, message):
                    if isinstance(work.key, CommandId):
                        self._commands.discard(work.key)
                        text = event.message if event is not None and end is schedule.End.RETURNED else message
                        self._actions.append(events.CommandEnded(work.key, text))
                    elif end is schedule.End.RETURNED:
                        assert event is not None
                        self._finish_evaluation(work.key, event, lease)
                    else:
                        self._record(work.key, _OUTCOMES[end], None, message)
                case schedule.Death(work, count):
                    if not isinstance(work.key, CommandId):  # a command continues from its own checkpoints
                        self._actions.append(events.RecordDeath(work.key, count))
                case schedule.StartWorker() | schedule.KillWorker() | schedule.Fail():
                    self._actions.append(action)

    def _add_lease(self, action: schedule.WorkLease) -> None:
        key = action.work.key
        if isinstance(key, CommandId):
            self._actions.append(events.LeaseCommand(action.worker, action.lease, key))
            return
        companion_keys = tuple(companion.key for companion in action.companions)
        case = self._pending_evaluations[key].case
        self._actions.append(
            events.Lease(action.worker, action.lease, key, case, action.deadline, companion_keys, action.why)
        )

    def _finish_evaluation(self, evaluation: EvaluationId, event: events.Finished, lease: int | None) -> None:
        if event.outcome is Outcome.OOM and self._may_split(evaluation):
            self._split(evaluation, self._pending_evaluations[evaluation])
        else:
            self._record(evaluation, event.outcome, lease, event.message)

    def _may_split(self, evaluation: EvaluationId) -> bool:
        """Returns whether to halve an evaluation that ran out of memory. A half is not halved again."""
        return evaluation.block.size > 1 and evaluation.block in self._pending_evaluations[evaluation].case.blocks()

    def _split(self, evaluation: EvaluationId, pending: _PendingEvaluation) -> None:
        self._plan.record_split(evaluation)
        self._actions.append(events.RecordSplit(evaluation))
        del self._pending_evaluations[evaluation]
        self._num_pending[pending.case.program_key] -= 1
        for subject in pending.subjects:
            self._num_missing[subject] -= 1
        self._request(self._plan.missing_parts(evaluation, pending.case), pending.position, pending.subjects)

    def _record(self, evaluation: EvaluationId, outcome: Outcome, lease: int | None, message: str) -> None:
        pending = self._pending_evaluations.pop(evaluation)
        self._num_pending[pending.case.program_key] -= 1
        self._plan.record(evaluation, pending.case)
        self._actions.append(events.Record(evaluation, pending.case, outcome, lease, message))
        for subject in pending.subjects:
            self._num_missing[subject] -= 1
            self._finish_if_complete(subject)

    # Beginning and end.

    def _warm_up(self) -> None:
        """Starts workers of one core at the first checkpoint, because workers report the cases.

        A single worker is enough to find that earlier runs left nothing to do, and to report the cases of a further
        variant.
        """
        if self._backlog.variants() <= self._cases.keys() or self._is_complete():
            return
        is_first = not self._cases and (self._open_positions or self._backlog.has_fresh)
        if is_first or not self._machine.num_workers or not self._cases or self._commands:
            num_needed = 1 + len(self._commands)  # a worker that runs a command cannot list cases
            at_most = None if is_first else num_needed
            self._translate(self._machine.warm_up(schedule.Size(1), at_most=at_most))

    def _check_done(self) -> None:
        if self._is_done:
            return
        if not self._machine.num_running and (self._machine.is_draining or self._is_complete()):
            self._is_done = True
            self._actions.append(events.Done())

    def _is_complete(self) -> bool:
        return self._backlog.has_ended and not (self._backlog.has_waiting or self._open_positions or self._commands)


def _size_of(case: CaseInfo) -> schedule.Size:
    return schedule.Size(case.num_cpus, case.num_gpus)


def _may_be_together(evaluation: EvaluationId, case: CaseInfo) -> bool:
    """Returns whether one program may compute this evaluation for several subjects; False for commands and tests."""
    return not case.evaluator and evaluation.block in case.blocks()


def _command_work(command: CommandId, size: schedule.Size) -> schedule.Work:
    return schedule.Work(
        key=command, warm_key=f"command {command.method}", size=size, timeout_seconds=math.inf, rank=_COMMANDS_RANK
    )
