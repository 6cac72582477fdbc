"""The scheduler under any order of events, and how well it packs."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lobench.core.admission import every_checkpoint, every_nth, latest
from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Outcome
from lobench.core.schedule import (
    Action,
    Admit,
    CasesKnown,
    CheckpointSeen,
    Done,
    Drain,
    EvaluationId,
    Event,
    Fail,
    FinishCheckpoint,
    Finished,
    History,
    KillWorker,
    Lease,
    Record,
    RecordDeath,
    RecordSplit,
    RunEnded,
    Schedule,
    Skip,
    StartWorker,
    Tick,
    WorkerDied,
    WorkerReady,
)

POLICIES = {"latest": lambda: latest(""), "all": lambda: every_checkpoint(""), "every:3": lambda: every_nth("3")}


def case(name: str, *, num_seeds: int = 2, seed_block: int | None = None, num_cpus: int = 1) -> CaseInfo:
    return CaseInfo(
        identity=name,
        optimizer_hash="o",
        suite="s",
        name=name,
        node_id=name,
        num_inner_steps=10,
        num_seeds=num_seeds,
        seed_block=seed_block,
        num_cpus=num_cpus,
        timeout_seconds=5,
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
        self.schedule = Schedule(self.max_cores, POLICIES[self.policy](), together=self.together)

    def send(self, event: Event) -> None:
        actions = self.schedule.handle(event)
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
        self.send(CheckpointSeen(position, self.seen[position]))

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

    def restart(self) -> None:
        """The chief is killed and started again with what its ledger knows."""
        self.alive, self.starting, self.leases, self.stale, self.log = {}, set(), {}, [], []
        self.promised = {}
        self.draining = self.done = False
        self.failed_starts = 0
        history = History(
            recorded=set(self.recorded),
            splits=set(self.splits),
            deaths=dict(self.deaths),
            admissions=dict(self.admissions),
            finished=set(self.finished),
        )
        self.schedule = Schedule(self.max_cores, POLICIES[self.policy](), history, together=self.together)
        for position, found in self.seen.items():
            self.send(CheckpointSeen(position, found))
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


@settings(max_examples=300, deadline=None)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    max_cores=st.integers(1, 3),
    together=st.integers(1, 3),
    events=st.lists(EVENTS, min_size=1, max_size=40),
)
def test_every_admitted_evaluation_gets_one_outcome_and_the_last_checkpoint_is_evaluated(
    policy: str, max_cores: int, together: int, events: list[tuple[str, Any]]
) -> None:
    world = World(policy=policy, max_cores=max_cores, together=together, oom=frozenset({"hungry"}))
    play(world, events, CASES)
    last = max(world.seen)
    assert world.admissions[last] == "admitted"
    assert set(world.admissions) == set(world.seen)
    assert world.finished == {p for p, admission in world.admissions.items() if admission == "admitted"}
    for position in world.finished:
        sha256 = world.seen[position].sha256
        for known in CASES:
            seeds: list[int] = []
            for evaluation in world.recorded:
                if evaluation.sha256 == sha256 and evaluation.case_key == known.key:
                    seeds += evaluation.block.seeds
            assert sorted(seeds) == list(range(known.num_seeds)), (known.name, seeds)


@settings(max_examples=50, deadline=None)
@given(events=st.lists(EVENTS, min_size=1, max_size=40), together=st.integers(1, 3))
def test_the_same_events_give_the_same_actions(events: list[tuple[str, Any]], together: int) -> None:
    world = World(together=together)
    play(world, [event for event in events if event[0] not in ("restart", "drain")], CASES)
    again = Schedule(2, every_checkpoint(""), together=together)
    assert [again.handle(event) for event, _ in world.log] == [actions for _, actions in world.log]


DETERMINISTIC = (
    case("a"),
    case("b", num_seeds=5, seed_block=2),
    case("wide", num_cpus=2),
    case("hungry", num_seeds=3),
    case("killer"),
    case("endless"),
)


@settings(max_examples=100, deadline=None)
@given(
    seen=st.integers(1, 4),
    together=st.integers(1, 3),
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["finish", "late"]), st.integers(0, 3)),
            st.tuples(st.sampled_from(["ready", "restart", "drain"]), st.none()),
        ),
        max_size=60,
    ),
)
def test_killed_anywhere_and_started_again_it_records_the_same(
    seen: int, together: int, steps: list[tuple[str, Any]]
) -> None:
    recorded = []
    for events, number in ((steps, together), ([], 1)):
        world = World(
            together=number,
            oom=frozenset({"hungry"}),
            poison=frozenset({"killer"}),
            hang=frozenset({"endless"}),
        )
        play(world, [("see", None)] * (seen - 1) + events, DETERMINISTIC)
        recorded.append((world.recorded, world.finished, world.admissions))
    assert recorded[0] == recorded[1]


@settings(max_examples=100, deadline=None)
@given(
    max_cores=st.integers(1, 4),
    events=st.lists(EVENTS.filter(lambda event: event[0] not in ("restart", "drain")), max_size=40),
)
def test_no_worker_idles_while_work_waits(max_cores: int, events: list[tuple[str, Any]]) -> None:
    cases = tuple(case(name, num_seeds=2, seed_block=1) for name in "abc")

    class Watched(World):
        def send(self, event: Event) -> None:
            super().send(event)
            thetas = {self.seen[position].sha256 for position in self.admissions}
            waiting = len(thetas) * 6 - len(self.recorded) - len(self.leases)
            known = any(isinstance(event, WorkerReady) for event, _ in self.log)
            if known and not self.starting and not isinstance(event, CasesKnown):
                assert len(self.leases) == min(max_cores, waiting + len(self.leases))

    play(Watched(max_cores=max_cores), events, cases)


def test_drained_it_leases_nothing_more_and_ends_with_what_ran() -> None:
    world = World()
    world.see()
    world.ready((case("a"), case("b"), case("c")))
    assert len(world.leases) == 1
    world.send(Drain())
    world.ready(CASES)
    assert len(world.leases) == 1 and not world.done
    world.finish(0)
    assert world.done and len(world.recorded) == 1


@pytest.mark.parametrize("end", ["deadline", "idle death"])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_next_checkpoint_gets_a_worker_where_none_is_left(policy: str, end: str) -> None:
    world = World(policy=policy, max_cores=1, hang=frozenset({"a"} if end == "deadline" else ()))
    world.see()
    world.ready((case("a"),))
    world.finish(0)
    if end == "idle death":
        world.lose(0)
    assert not world.alive and len(world.recorded) == 1
    world.see()
    world.run_out((case("a"),))
    assert len(world.recorded) == 2


def test_a_worker_that_dies_before_it_reports_the_cases_is_replaced_after_the_end_of_the_run() -> None:
    world = World(max_cores=1)
    world.see()
    world.send(RunEnded())
    world.lose(0)
    assert world.alive


def test_wide_and_narrow_cases_take_turns_once_for_each_checkpoint() -> None:
    world = World()
    cases = tuple(case(f"c{index}", num_cpus=1 + index % 2) for index in range(8))
    world.see()
    world.see()
    world.run_out(cases)
    started = [action for _, actions in world.log for action in actions if isinstance(action, StartWorker)]
    assert len(started) == 2 + 2 * (1 + 2)


def waiting(num_checkpoints: int, together: int, *, max_cores: int = 1) -> World:
    """Checkpoints that wait for one case, the first of them with the first worker."""
    world = World(max_cores=max_cores, together=together)
    for _ in range(num_checkpoints):
        world.see()
    world.ready((case("a"),))
    return world


def leased(world: World) -> list[tuple[str, tuple[str, ...]]]:
    """Which thetas were leased, each with its companions, in order."""
    leases = [action for _, actions in world.log for action in actions if isinstance(action, Lease)]
    return [(each.evaluation.sha256, tuple(other.sha256 for other in each.companions)) for each in leases]


def test_what_waits_for_one_case_is_promised_to_the_worker_in_full_groups() -> None:
    world = waiting(6, 4)
    assert world.leases[0].deadline == world.now + 4 * 5
    world.run_out((case("a"),))
    assert leased(world) == [
        ("theta0", ("theta1", "theta2", "theta3")),
        *((f"theta{index}", ()) for index in range(1, 6)),
    ]


def test_alone_is_the_default() -> None:
    world = waiting(6, 1)
    world.run_out((case("a"),))
    assert leased(world) == [(f"theta{index}", ()) for index in range(6)]


def test_two_workers_take_a_group_each() -> None:
    world = waiting(8, 4, max_cores=2)
    world.ready((case("a"),))
    assert leased(world) == [
        ("theta0", ("theta1", "theta2", "theta3")),
        ("theta4", ("theta5", "theta6", "theta7")),
    ]


def test_what_a_dead_worker_was_promised_goes_elsewhere_and_runs_alone() -> None:
    world = waiting(6, 4)
    world.lose(0)
    world.ready((case("a"),))
    assert leased(world)[1:] == [("theta0", ())]
    world.run_out((case("a"),))
    assert set(world.recorded.values()) == {Outcome.PASSED} and len(world.recorded) == 6
    assert all(not companions for _, companions in leased(world)[1:]), "one of them may have killed the worker"


def test_a_worker_that_dies_after_its_group_was_computed_leaves_a_group() -> None:
    world = waiting(4, 2)
    world.finish(0)
    world.lose(0)
    world.run_out((case("a"),))
    assert leased(world)[:2] == [("theta0", ("theta1",)), ("theta1", ())]
    assert leased(world)[2:] == [("theta1", ()), ("theta2", ("theta3",)), ("theta3", ())]


def test_a_group_at_its_deadline_says_nothing_of_any_one_of_it() -> None:
    world = waiting(3, 2)
    world.now = world.leases[0].deadline + 0.1
    world.send(Tick(world.now))
    assert not world.recorded
    world.run_out((case("a"),))
    assert set(world.recorded.values()) == {Outcome.PASSED} and len(world.recorded) == 3
    assert all(not companions for _, companions in leased(world)[1:])


class SkipsAll:
    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        return (), waiting


def test_no_policy_can_skip_the_last_checkpoint() -> None:
    schedule = Schedule(1, SkipsAll())
    actions = [*schedule.handle(CheckpointSeen(0, checkpoint(0))), *schedule.handle(CheckpointSeen(1, checkpoint(1)))]
    assert [action for action in actions if isinstance(action, Skip)] == [Skip(0)]
    assert Admit(1) in schedule.handle(RunEnded())


def test_what_ran_longest_goes_first_at_the_next_checkpoint() -> None:
    world = World(max_cores=1)
    cases = (case("slow"), case("fast"), case("endless"))
    world.hang = frozenset({"endless"})
    world.see()
    world.see()
    world.ready(cases)
    for _ in range(6):
        world.now += 4 if next(iter(world.leases.values())).case.name == "slow" else 1
        world.finish(0)
        world.ready(cases)
    world.see()
    world.run_out(cases)
    order = [action.case.name for _, actions in world.log for action in actions if isinstance(action, Lease)]
    assert order[-3:] == ["endless", "slow", "fast"]


def test_workers_that_never_start_end_the_watch() -> None:
    schedule = Schedule(1, every_checkpoint(""))
    actions = schedule.handle(CheckpointSeen(0, checkpoint(0)))
    for attempt in range(3):
        (start,) = (action for action in actions if isinstance(action, StartWorker))
        actions = schedule.handle(WorkerDied(start.worker, 0.0, "no jax"))
        assert any(isinstance(action, Fail) for action in actions) == (attempt == 2)


def test_a_worker_that_was_ready_too_late_shows_that_workers_start() -> None:
    schedule = Schedule(2, every_checkpoint(""))
    schedule.handle(CheckpointSeen(0, checkpoint(0)))
    schedule.handle(WorkerDied(0, 0.0, "killed"))
    schedule.handle(WorkerDied(2, 0.0, "killed"))
    actions = schedule.handle(CasesKnown((case("wide", num_cpus=2),)))
    assert KillWorker(1, "another size is needed") in actions
    (start,) = (action for action in actions if isinstance(action, StartWorker))
    schedule.handle(WorkerReady(1, 0.0))
    assert not any(isinstance(a, Fail) for a in schedule.handle(WorkerDied(start.worker, 0.0, "killed")))


def test_a_half_that_runs_out_of_memory_is_not_halved_again() -> None:
    world = World(oom=frozenset({"hungry"}))
    play(world, [], (case("hungry", num_seeds=4),))
    assert {(e.block, outcome) for e, outcome in world.recorded.items()} == {
        (SeedBlock(start=0, size=2), Outcome.OOM),
        (SeedBlock(start=2, size=2), Outcome.OOM),
    }


def makespan(durations: list[float], compile_seconds: float, num_checkpoints: int) -> tuple[float, float]:
    """Simulates a watch on two workers with recorded durations; returns its time and the lower bound."""
    cases = tuple(case(f"c{index}") for index in range(len(durations)))
    seconds = {known.key: duration for known, duration in zip(cases, durations, strict=True)}
    schedule = Schedule(2, every_checkpoint(""), History(durations=seconds))
    queue: list[tuple[float, int, Event]] = []
    compiled: set[tuple[int, str]] = set()
    now, count = 0.0, 0

    def react(event: Event) -> None:
        nonlocal count
        for action in schedule.handle(event):
            count += 1
            if isinstance(action, StartWorker):
                heapq.heappush(queue, (now, count, WorkerReady(action.worker, now)))
            elif isinstance(action, Lease):
                key = (action.worker, action.case.key)
                took = seconds[action.case.key] + (compile_seconds if key not in compiled else 0)
                compiled.add(key)
                heapq.heappush(
                    queue, (now + took, count, Finished(action.worker, action.lease, Outcome.PASSED, now + took))
                )

    react(CasesKnown(cases))
    for position in range(num_checkpoints):
        react(CheckpointSeen(position, checkpoint(position)))
    while queue:
        now, _, event = heapq.heappop(queue)
        react(event)
    total = num_checkpoints * sum(durations) + compile_seconds * len(durations)
    return now, max(max(durations) + compile_seconds, total / 2)


MIXES = {
    "equal": [3.0] * 8,
    "mixed": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    "skewed": [20.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 2.0],
    "many": [0.5 + 0.3 * (index % 7) for index in range(26)],
}


@pytest.mark.parametrize("compile_seconds", [0.0, 2.0])
@pytest.mark.parametrize("num_checkpoints", [1, 5])
@pytest.mark.parametrize("mix", MIXES)
def test_the_makespan_is_within_a_tenth_of_the_bound(mix: str, num_checkpoints: int, compile_seconds: float) -> None:
    took, bound = makespan(MIXES[mix], compile_seconds, num_checkpoints)
    assert took <= 1.1 * bound


def test_the_second_death_of_its_worker_poisons_a_case() -> None:
    world = World(max_cores=1)
    world.see()
    world.ready((case("a"),))
    world.die(0)
    assert not world.recorded
    world.ready((case("a"),))
    world.die(0)
    assert list(world.recorded.values()) == [Outcome.POISONED]
