"""Planner replay: repeats the decisions in a log, with a line for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lobench.core.planner import events
from lobench.core.planner.events import Action, EvaluationId, Event
from lobench.core.planner.log import LoggedStep, PlannerStart, PolicyAnswer, digest_of
from lobench.core.schedule import Drain, Fail, KillWorker, Rules, Size, StartWorker, WorkerReady
from lobench.core.wording import counted, counted_with_verb

__all__ = ["Replay"]


class Replay:
    """Planner that repeats the decisions of a log.

    Args:
      start: Arguments of the recorded planner.

    Attributes:
      num_steps: Number of events replayed so far.
      differs_at: Number of the first event with a different decision. None: all were equal.
    """

    def __init__(self, start: PlannerStart) -> None:
        self._policy = _ReplayedPolicy()
        self._planner = start.planner(self._policy)
        self._subjects: dict[int, str] = {}
        self._cases: dict[str, str] = {}
        self._start_time: float | None = None
        self._now = 0.0
        self._lease_times: dict[int, float] = {}  # time of each lease
        self.num_steps = 0
        self.differs_at: int | None = None

    def lines(self, steps: Iterable[LoggedStep]) -> Iterator[str]:
        """Yields a line for each decision, until one differs from the log."""
        for step in steps:
            self._advance_time(step.event)
            self._policy.answer = step.answer
            actions = self._planner.handle(step.event)
            self.num_steps += 1
            for text in (
                *self._event_lines(step.event),
                *(self._action_text(action, step.event) for action in actions),
            ):
                yield f"{self._now:10.3f} s  {text}"
            if digest_of(actions) != step.digest:
                self.differs_at = self.num_steps
                return

    def _advance_time(self, event: Event) -> None:
        now = getattr(event, "now", None)
        if now is not None:
            self._start_time = now if self._start_time is None else self._start_time
            self._now = now - self._start_time

    def _event_lines(self, event: Event) -> Iterator[str]:
        match event:
            case events.SubjectSeen(position, subject):
                variant = f" with the bindings of variant {subject.variant}" if subject.variant else ""
                self._subjects[position] = f"subject {position} ({subject.sha256[:8]}){variant}"
                yield f"{self._subjects[position]} is seen"
            case events.CasesKnown(cases):
                self._cases.update({case.key: f"{case.suite}/{case.name}" for case in cases})
            case WorkerReady(worker):
                yield f"worker {worker} is ready"
            case events.RunEnded():
                yield "no further subject will come"
            case Drain():
                yield "nothing more is to be leased: what runs may end"

    def _action_text(self, action: Action, event: Event) -> str:
        match action:
            case StartWorker(worker, size):
                return f"worker {worker} is started, with {_size_text(size)}"
            case KillWorker(worker, reason):
                return f"worker {worker} is ended: {reason}"
            case events.Lease(worker, lease, evaluation, _, deadline, companions, why):
                self._lease_times[lease] = self._now
                together = f", together with {len(companions)} like it" if companions else ""
                seconds = deadline - self._now - (self._start_time or 0.0)
                text = f"{self._evaluation_text(evaluation)}{together}"
                return f"worker {worker} gets {text}: {why}; deadline in {seconds:g} s"
            case events.LeaseCommand(worker, _, command):
                return f"worker {worker} runs {command.method}, session {command.session}, a command"
            case events.CommandEnded(command, message):
                reason = f": {message.splitlines()[0]}" if message else ""
                return f"{command.method}, session {command.session}, a command, has ended{reason}"
            case events.Record(evaluation, _, outcome, lease, message):
                duration = f" after {self._now - self._lease_times[lease]:.3f} s" if lease in self._lease_times else ""
                reason = f": {message.splitlines()[0]}" if message else ""
                return f"{self._evaluation_text(evaluation)} is recorded as {outcome}{duration}{reason}"
            case events.RecordSplit(evaluation):
                return f"{self._evaluation_text(evaluation)} ran out of memory: its halves take its place"
            case events.RecordDeath(evaluation, count):
                return f"a worker died with {self._evaluation_text(evaluation)}: death {count} of {Rules().max_deaths}"
            case events.Admit(position):
                return f"{self._subject_text(position)} is admitted by the policy"
            case events.Skip(position):
                return f"{self._subject_text(position)} is skipped by the policy"
            case events.Reopen(position):
                return f"{self._subject_text(position)} is reopened: an evaluation of the present plan is missing"
            case events.FinishCheckpoint(position):
                return f"{self._subject_text(position)} is finished"
            case events.Forget(evaluations):
                return f"{counted_with_verb(len(evaluations), 'outcome')} to be replaced"
            case Fail(message):
                return f"workers do not start: {message}"
            case _:
                return "nothing is left to do"

    def _subject_text(self, position: int) -> str:
        return self._subjects.get(position, f"subject {position}")

    def _evaluation_text(self, evaluation: EvaluationId) -> str:
        case = self._cases.get(evaluation.case_key, evaluation.case_key[:8])
        return f"{case} seeds {evaluation.block} of {evaluation.sha256[:8]}"


class _ReplayedPolicy:
    """Admission policy that repeats recorded answers."""

    def __init__(self) -> None:
        self.answer: PolicyAnswer = ((), ())

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> PolicyAnswer:
        return self.answer


def _size_text(size: Size) -> str:
    cores = counted(size.num_cpus, "core")
    return f"{cores} and {size.num_gpus:g} devices" if size.num_gpus else cores
