"""A world around the scheduler: workers that come, finish and die, and a ledger that outlives a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from case_infos import case_info
from hypothesis import strategies as st

from lobench.core.admission import every_checkpoint, every_nth, latest
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.planner import (
    Action,
    Admit,
    CasesKnown,
    Done,
    Drain,
    EvaluationId,
    Event,
    Fail,
    FinishCheckpoint,
    Finished,
    Forget,
    History,
    KillWorker,
    Lease,
    Planner,
    Record,
    RecordDeath,
    RecordSplit,
    Reopen,
    RunEnded,
    Skip,
    StartWorker,
    SubjectSeen,
    Tick,
    WorkerDied,
    WorkerReady,
)
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey

POLICIES = {"latest": lambda: latest(""), "all": lambda: every_checkpoint(""), "every:3": lambda: every_nth("3")}


def case(name: str, *, num_seeds: int = 2, seed_block: int | None = None, num_cpus: int = 1) -> CaseInfo:
    return case_info(
        name, num_inner_steps=10, num_seeds=num_seeds, seed_block=seed_block, num_cpus=num_cpus, timeout_seconds=5
    )


def checkpoint(position: int, sha256: str | None = None) -> Checkpoint:
    return Checkpoint(uri=f"c{position}", sha256=sha256 or f"theta{position}", outer_step=position)


@dataclass
class World:
    """Workers, a ledger and a clock around a schedule; checks each action as it comes."""

    policy: str = "all"
    max_cores: int = 2
    together: int = 1
    oom: frozenset[str] = frozenset()
    poison: frozenset[str] = frozenset()
    hang: frozenset[str] = frozenset()
    log: list[tuple[Event, tuple[Action, ...]]] = field(default_factory=list)
    now: float = 0.0
    alive: dict[int, int] = field(default_factory=dict)
    starting: set[int] = field(default_factory=set)
    leases: dict[int, Lease] = field(default_factory=dict)
    promised: dict[int, list[EvaluationId]] = field(default_factory=dict)
    stale: list[tuple[int, int]] = field(default_factory=list)
    recorded: dict[EvaluationId, Outcome] = field(default_factory=dict)
    splits: set[EvaluationId] = field(default_factory=set)
    deaths: Counter[EvaluationId] = field(default_factory=Counter)
    admissions: dict[int, Any] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    seen: dict[int, Checkpoint] = field(default_factory=dict)
    ended: bool = False
    done: bool = False
    draining: bool = False
    failed_starts: int = 0

    def __post_init__(self) -> None:
        self.planner = self.make_planner(History())

    def make_planner(self, history: History) -> Planner:
        policy = POLICIES[self.policy]()
        return Planner(self.max_cores, policy, history, together=self.together)

    def send(self, event: Event) -> None:
        actions = self.planner.handle(event)
        self.planner.check()
        self.log.append((event, actions))
        for action in actions:
            self.take(action)
        assert sum(self.alive.values()) <= self.max_cores

    def take(self, action: Any) -> None:
        match action:
            case StartWorker(worker, size):
                self.alive[worker] = size.num_cpus
                self.starting.add(worker)
            case KillWorker(worker, _):
                del self.alive[worker]
                self.starting.discard(worker)
                self.leases.pop(worker, None)
                self.promised.pop(worker, None)
            case Lease(worker=worker, evaluation=evaluation, companions=companions):
                if expected := self.promised.get(worker):
                    assert evaluation == expected.pop(0) and not companions, "a promise was broken"
                    assert action.deadline == self.now + action.case.timeout_seconds
                assert all(evaluation not in kept for kept in self.promised.values()), "promised to another worker"
                assert len(companions) in (0, self.together - 1)
                for other in companions:
                    assert (other.case_key, other.block) == (evaluation.case_key, evaluation.block)
                    assert other not in self.recorded and not self.deaths[other] and other != evaluation
                    assert all(other not in kept for kept in self.promised.values()), "promised twice"
                    assert other not in {lease.evaluation for lease in self.leases.values()}
                if companions:
                    assert not self.deaths[evaluation]
                    self.promised[worker] = list(companions)
                assert worker in self.alive and worker not in self.starting and worker not in self.leases
                assert evaluation not in self.recorded
                assert evaluation not in {lease.evaluation for lease in self.leases.values()}, "leased twice"
                self.leases[worker] = action
            case Record(evaluation, _, outcome, _, _):
                assert evaluation not in self.recorded, "two outcomes"
                self.recorded[evaluation] = outcome
            case RecordSplit(evaluation):
                self.splits.add(evaluation)
            case RecordDeath(evaluation):
                self.deaths[evaluation] += 1
            case Admit(position):
                assert position not in self.admissions
                self.admissions[position] = "admitted"
            case Skip(position):
                assert position not in self.admissions
                self.admissions[position] = "skipped"
            case Reopen(position):
                assert position in self.finished or self.admissions[position] == "skipped"
                self.admissions[position] = "admitted"
                self.finished.discard(position)
            case Forget(evaluations):
                for evaluation in evaluations:
                    del self.recorded[evaluation]
                    self.deaths.pop(evaluation, None)
            case FinishCheckpoint(position):
                assert position not in self.finished
                self.finished.add(position)
            case Done():
                self.done = True
            case Fail():
                raise AssertionError("workers failed to start")

    def see(self, sha256: str | None = None) -> None:
        position = len(self.seen)
        self.seen[position] = checkpoint(position, sha256)
        self.send(SubjectSeen(position, SubjectKey(self.seen[position].sha256, "")))

    def ready(self, cases: tuple[CaseInfo, ...]) -> None:
        for worker in sorted(self.starting):
            self.starting.discard(worker)
            self.failed_starts = 0
            self.send(CasesKnown(cases))
            self.send(WorkerReady(worker, self.now))
            return

    def finish(self, index: int) -> None:
        """One worker comes to its end, which its case alone decides."""
        if not self.leases:
            return
        # What hangs ends last: the clock that ends it must not run out for the others.
        mortal = [worker for worker, lease in self.leases.items() if lease.case.name not in self.hang] or self.leases
        worker = sorted(mortal)[index % len(mortal)]
        name = self.leases[worker].case.name
        if name in self.poison:
            self.lose(worker)
        elif name in self.hang:
            self.now = self.leases[worker].deadline + 0.1
            self.send(Tick(self.now))
        else:
            lease = self.leases.pop(worker)
            self.stale.append((worker, lease.lease))
            self.send(
                Finished(worker, lease.lease, Outcome.OOM if name in self.oom else Outcome.PASSED, self.now, "", False)
            )

    def die(self, index: int) -> None:
        """Any worker dies: a busy, an idle, or a starting one (not three of these in a row: that ends the watch)."""
        mortal = [worker for worker in sorted(self.alive) if worker not in self.starting or self.failed_starts < 2]
        if mortal:
            self.lose(mortal[index % len(mortal)])

    def lose(self, worker: int) -> None:
        del self.alive[worker]
        self.promised.pop(worker, None)
        self.failed_starts += worker in self.starting
        self.starting.discard(worker)
        if worker in self.leases:
            self.stale.append((worker, self.leases.pop(worker).lease))
        self.send(WorkerDied(worker, self.now, "killed"))

    def drain(self) -> None:
        self.draining = True
        self.send(Drain())

    def late(self, index: int) -> None:
        if self.stale:
            self.send(Finished(*self.stale[index % len(self.stale)], Outcome.PASSED, self.now))

    def restart(self, *, retried: Iterable[EvaluationId] = ()) -> None:
        """The chief is killed and started again with what its ledger knows."""
        self.alive, self.starting, self.leases, self.stale, self.log = {}, set(), {}, [], []
        self.promised = {}
        self.draining = self.done = False
        self.failed_starts = 0
        history = History(
            recorded=set(self.recorded),
            retried=set(retried),
            splits=set(self.splits),
            deaths=dict(self.deaths),
            admissions=dict(self.admissions),
            finished=set(self.finished),
        )
        self.planner = self.make_planner(history)
        for position, found in self.seen.items():
            self.send(SubjectSeen(position, SubjectKey(found.sha256, "")))
        if self.ended:
            self.send(RunEnded())

    def run_out(self, cases: tuple[CaseInfo, ...]) -> None:
        """Lets everything end that can."""
        if not self.ended:
            self.ended = True
            self.send(RunEnded())
        if self.draining:
            self.restart()
        for _ in range(1_000):
            if self.done:
                return
            self.ready(cases)
            self.finish(0)
            self.send(Tick(self.now))
        raise AssertionError("it never ends")


EVENTS = st.one_of(
    st.tuples(st.just("see"), st.sampled_from([None, "same"])),
    st.tuples(st.sampled_from(["finish", "die", "late"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["ready", "timeout", "restart", "tick", "drain"]), st.none()),
)


def play(world: World, events: list[tuple[str, Any]], cases: tuple[CaseInfo, ...]) -> None:
    world.see()
    for name, argument in events:
        world.now += 0.1
        match name:
            case "see":
                world.see(argument)
            case "ready":
                world.ready(cases)
            case "timeout":
                world.now += 100
                world.send(Tick(world.now))
            case "tick":
                world.send(Tick(world.now))
            case "restart":
                world.restart()
            case "drain":
                world.drain()
            case _:
                getattr(world, name)(argument)
    world.run_out(cases)


CASES = (
    case("a"),
    case("b", num_seeds=5, seed_block=2),
    case("wide", num_cpus=2),
    case("hungry", num_seeds=3),
    case("huge", num_cpus=64),
)
