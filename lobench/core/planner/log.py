"""Planner log: each event and decision as a JSON line after a start record.

Answers of the admission policy are logged with the events, so that a replay needs no plugin. A `Tick` without decisions
is omitted, unless the next event has no time. Only a digest of the decisions is logged: a replay repeats the decisions
and compares digests.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lobench.core.admission import AdmissionPolicy
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.planner import events
from lobench.core.planner.events import Action, EvaluationId, Event, History
from lobench.core.planner.planner import Planner
from lobench.core.result import Outcome
from lobench.core.schedule import Capacity, Drain, Size, StartWorker, Tick, WorkerDied, WorkerReady
from lobench.core.subject import SubjectKey
from lobench.core.wording import headline

__all__ = ["LoggedStep", "PlannerStart", "PolicyAnswer", "RecordedPlanner", "digest_of", "read_start", "read_step"]

_EVENT_TYPES: Mapping[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(events.CasesKnown, events.SubjectSeen, events.RunCommands, events.RunEnded, events.Finished),
        *(Capacity, Drain, Tick, WorkerDied, WorkerReady),
    )
}

PolicyAnswer: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]  # positions to run, and to skip
_EMPTY_ANSWER: PolicyAnswer = ((), ())
_MAX_MESSAGE_LENGTH = 200  # characters of a worker's message; its log has all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerStart:
    """Arguments of a planner, without its policy.

    Attributes:
      at: Time of the start, in seconds since the epoch.
    """

    max_cores: int
    max_gpus: float = math.inf
    together: int = 1
    history: History = dataclasses.field(default_factory=History)
    at: float = 0.0

    def planner(self, policy: AdmissionPolicy) -> Planner:
        return Planner(self.max_cores, policy, self.history, max_gpus=self.max_gpus, together=self.together)

    def to_line(self) -> str:
        values = {name: getattr(self, name) for name in ("max_cores", "max_gpus", "together", "at")}
        return json.dumps({**values, "history": _history_record(self.history)})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """One event, with the answer of the policy and a digest of the decisions."""

    event: Event
    answer: PolicyAnswer
    digest: int

    def to_line(self) -> str:
        event: Any = self.event
        values = [_truncate(getattr(event, name)) for name in event.__dataclass_fields__]
        step: list[Any] = [type(event).__name__, values, self.digest]
        whole_step = step if self.answer == _EMPTY_ANSWER else [*step, self.answer]
        return json.dumps(whole_step, default=dataclasses.asdict, separators=(",", ":"))


def _truncate(value: Any) -> Any:
    return value[:_MAX_MESSAGE_LENGTH] if isinstance(value, str) else value


class RecordedPlanner(Planner):
    """Planner that records its events and decisions until `take_steps` fetches them.

    Args:
      start: Arguments of the planner.
      policy: Admission policy.
    """

    def __init__(self, start: PlannerStart, policy: AdmissionPolicy) -> None:
        self._policy = _RecordingPolicy(policy)
        super().__init__(start.max_cores, self._policy, start.history, max_gpus=start.max_gpus, together=start.together)
        self._pending_steps: list[tuple[Event, PolicyAnswer, tuple[Action, ...]]] = []
        self._quiet_tick: Tick | None = None

    def handle(self, event: Event) -> tuple[Action, ...]:
        self._policy.answer = _EMPTY_ANSWER
        actions = super().handle(event)
        answer = self._policy.answer
        if isinstance(event, Tick) and not actions and answer == _EMPTY_ANSWER:
            self._quiet_tick = event
            return actions
        if self._quiet_tick is not None and not hasattr(event, "now"):
            self._pending_steps.append((self._quiet_tick, _EMPTY_ANSWER, ()))
        self._quiet_tick = None
        self._pending_steps.append((event, answer, actions))
        return actions

    def take_steps(self) -> Iterator[LoggedStep]:
        """Yields the steps since the last call."""
        pending, self._pending_steps = self._pending_steps, []
        for event, answer, actions in pending:
            yield LoggedStep(event=event, answer=answer, digest=digest_of(actions))


class _RecordingPolicy:
    """Admission policy that remembers its last answer."""

    def __init__(self, policy: AdmissionPolicy) -> None:
        self._inner_policy = policy
        self.answer = _EMPTY_ANSWER

    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> PolicyAnswer:
        run, skip = self._inner_policy.admit(waiting, idle=idle, last=last)
        self.answer = tuple(run), tuple(skip)
        return self.answer


def digest_of(actions: Iterable[Action]) -> int:
    """Returns a digest of decisions. Messages for people are not part of it."""
    return zlib.crc32("\n".join(map(_action_text, actions)).encode())


def _action_text(action: Action) -> str:
    match action:
        case events.Lease(worker, lease, evaluation, _, deadline, companions):
            companion_names = " ".join(map(_evaluation_text, companions))
            return f"Lease {worker} {lease} {_evaluation_text(evaluation)} {deadline} {companion_names}"
        case events.Record(evaluation, _, outcome, lease):
            return f"Record {_evaluation_text(evaluation)} {outcome.value} {lease}"
        case events.RecordSplit(evaluation) | events.RecordDeath(evaluation):
            return f"{type(action).__name__} {_evaluation_text(evaluation)}"
        case events.Forget(evaluations):
            return f"Forget {' '.join(map(_evaluation_text, evaluations))}"
        case events.LeaseCommand(worker, lease, command):
            return f"LeaseCommand {worker} {lease} {command}"
        case events.CommandEnded(command):
            return f"CommandEnded {command}"
        case StartWorker(worker, size):
            return f"StartWorker {worker} {size.num_cpus} {float(size.num_gpus)}"
        case _:
            return f"{type(action).__name__} {getattr(action, 'position', getattr(action, 'worker', ''))}"


def _evaluation_text(evaluation: EvaluationId) -> str:
    block = evaluation.block
    return f"{evaluation.sha256} {evaluation.case_key} {block.start} {block.size}"


# Reading.


def read_start(line: str) -> PlannerStart:
    """Reads a line written by `PlannerStart.to_line`.

    Raises:
      ValueError: The line is something else.
    """
    try:
        values = json.loads(line)
        return PlannerStart(**{**values, "history": _parse_history(values["history"])})
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"not the start of a log of decisions: {headline(error)}") from error


def read_step(line: str) -> LoggedStep:
    """Reads a line written by `LoggedStep.to_line`.

    Raises:
      ValueError: The line is something else.
    """
    try:
        name, values, digest, *answers = json.loads(line)
        policy_answer = tuple(tuple(positions) for positions in answers[0]) if answers else _EMPTY_ANSWER
        return LoggedStep(event=_parse_event(name, values), answer=policy_answer, digest=digest)  # type: ignore[arg-type]
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"not an event of a log of decisions: {headline(error)}") from error


def _parse_event(name: str, values: list[Any]) -> Event:
    event_type = _EVENT_TYPES[name]
    if event_type is events.CasesKnown:
        values[0] = tuple(CaseInfo(**record) for record in values[0])
    elif event_type is events.SubjectSeen:
        values[1] = SubjectKey(*values[1])
    elif event_type is events.RunCommands:
        values[0] = tuple((events.CommandId(**command), Size(*size)) for command, size in values[0])
    elif event_type is events.Finished:
        values[2] = Outcome(values[2])
    elif event_type is Capacity:
        values[0] = tuple(Size(*machine) for machine in values[0])
    event: Event = event_type(*values)
    return event


def _history_record(history: History) -> dict[str, Any]:
    """Returns a history as JSON. Thetas with the same recorded evaluations share one list."""
    case_numbers = {
        key: number for number, key in enumerate(sorted({evaluation.case_key for evaluation in _evaluations(history)}))
    }

    def block_record(evaluation: EvaluationId) -> tuple[int, int, int]:
        return case_numbers[evaluation.case_key], evaluation.block.start, evaluation.block.size

    def theta_groups(evaluations: Iterable[EvaluationId]) -> list[Any]:
        blocks_by_theta: dict[str, list[tuple[int, int, int]]] = {}
        for evaluation in evaluations:
            blocks_by_theta.setdefault(evaluation.sha256, []).append(block_record(evaluation))
        thetas_by_blocks: dict[tuple[tuple[int, int, int], ...], list[str]] = {}
        for sha256, blocks in blocks_by_theta.items():
            thetas_by_blocks.setdefault(tuple(sorted(blocks)), []).append(sha256)
        return [[thetas, blocks] for blocks, thetas in thetas_by_blocks.items()]

    return {
        "case_keys": list(case_numbers),
        "recorded": theta_groups(history.recorded),
        "retried": theta_groups(history.retried),
        "splits": theta_groups(history.splits),
        "deaths": [
            [evaluation.sha256, block_record(evaluation), count] for evaluation, count in history.deaths.items()
        ],
        "admissions": list(history.admissions.items()),
        "finished": sorted(history.finished),
        "durations": dict(history.durations),
        "codes": [[evaluation.sha256, block_record(evaluation), codes] for evaluation, codes in history.codes.items()],
        "retried_codes": [
            [evaluation.sha256, block_record(evaluation), codes] for evaluation, codes in history.retried_codes.items()
        ],
        "same_codes": dict(history.same_codes),
        "keeps_code": history.keeps_code,
    }


def _evaluations(history: History) -> Iterator[EvaluationId]:
    return itertools.chain(history.recorded, history.retried, history.splits, history.deaths)


def _parse_history(record: Mapping[str, Any]) -> History:
    case_keys = record["case_keys"]

    def evaluation_id(sha256: str, block: Sequence[int]) -> EvaluationId:
        case_number, start, size = block
        return EvaluationId(sha256, case_keys[case_number], SeedBlock(start=start, size=size))

    def evaluation_ids(groups: Iterable[Any]) -> set[EvaluationId]:
        return {evaluation_id(sha256, block) for thetas, blocks in groups for sha256 in thetas for block in blocks}

    def codes_by_evaluation(name: str) -> dict[EvaluationId, tuple[str, ...]]:
        return {evaluation_id(sha256, block): tuple(codes) for sha256, block, codes in record.get(name, [])}

    return History(
        recorded=evaluation_ids(record["recorded"]),
        retried=evaluation_ids(record["retried"]),
        splits=evaluation_ids(record["splits"]),
        deaths={evaluation_id(sha256, block): count for sha256, block, count in record["deaths"]},
        admissions=dict(record["admissions"]),
        finished=set(record["finished"]),
        durations=record["durations"],
        codes=codes_by_evaluation("codes"),
        retried_codes=codes_by_evaluation("retried_codes"),
        same_codes=record.get("same_codes", {}),
        keeps_code=record.get("keeps_code", False),
    )
