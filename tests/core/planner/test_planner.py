"""The scheduler under any order of events, and how well it packs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from makespan_world import MakespanWorld
from schedule_world import CASES, EVENTS, POLICIES, World, case, play

from lobench.core.admission import every_checkpoint
from lobench.core.case import SeedBlock
from lobench.core.planner import (
    Admit,
    CasesKnown,
    Drain,
    Event,
    Fail,
    Finished,
    KillWorker,
    Lease,
    Planner,
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
    again = Planner(2, every_checkpoint(""), together=together)
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


def leases(world: World) -> list[Lease]:
    return [action for _, actions in world.log for action in actions if isinstance(action, Lease)]


def leased(world: World) -> list[tuple[str, tuple[str, ...]]]:
    """Which thetas were leased, each with its companions, in order."""
    return [(each.evaluation.sha256, tuple(other.sha256 for other in each.companions)) for each in leases(world)]


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


def test_a_group_that_failed_does_not_make_its_case_look_short() -> None:
    world = World(max_cores=1, together=2)
    cases = (case("a"), case("b"))

    def end(worker: int, lease: Lease) -> None:
        """The group of `a` fails after a second, then each theta takes its 4 s alone; `b` takes 3 s, also in groups."""
        own = 4.0 if lease.case.name == "a" else 3.0
        if lease.companions:
            world.now += 1.0 if lease.case.name == "a" else own
        world.now += own
        world.send(Finished(worker, lease.lease, Outcome.PASSED, world.now, seconds=own))

    world.see()
    world.see()
    world.ready(cases)
    while world.leases:
        end(*world.leases.popitem())
    world.see()
    while world.leases:
        end(*world.leases.popitem())
    assert [(each.evaluation.sha256, each.case.name) for each in leases(world)][-2:] == [
        ("theta2", "a"),
        ("theta2", "b"),
    ]


class SkipsAll:
    def admit(self, waiting: Sequence[int], *, idle: bool, last: bool) -> tuple[Sequence[int], Sequence[int]]:
        return (), waiting


def test_no_policy_can_skip_the_last_checkpoint() -> None:
    schedule = Planner(1, SkipsAll())
    actions = [
        *schedule.handle(SubjectSeen(0, SubjectKey("theta0", ""))),
        *schedule.handle(SubjectSeen(1, SubjectKey("theta1", ""))),
    ]
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
    assert [each.case.name for each in leases(world)][-3:] == ["endless", "slow", "fast"]


def test_workers_that_never_start_end_the_watch() -> None:
    schedule = Planner(1, every_checkpoint(""))
    actions = schedule.handle(SubjectSeen(0, SubjectKey("theta0", "")))
    for attempt in range(3):
        (start,) = (action for action in actions if isinstance(action, StartWorker))
        actions = schedule.handle(WorkerDied(start.worker, 0.0, "no jax"))
        assert any(isinstance(action, Fail) for action in actions) == (attempt == 2)


def test_a_worker_that_was_ready_too_late_shows_that_workers_start() -> None:
    schedule = Planner(2, every_checkpoint(""))
    schedule.handle(SubjectSeen(0, SubjectKey("theta0", "")))
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
    seconds = MIXES[mix]
    took = MakespanWorld(seconds, compile_seconds=compile_seconds, is_known=True).run(range(num_checkpoints))
    total = num_checkpoints * sum(seconds) + compile_seconds * len(seconds)
    assert took <= 1.1 * max(max(seconds) + compile_seconds, total / 2)


def test_the_second_death_of_its_worker_poisons_a_case() -> None:
    world = World(max_cores=1)
    world.see()
    world.ready((case("a"),))
    world.die(0)
    assert not world.recorded
    world.ready((case("a"),))
    world.die(0)
    assert list(world.recorded.values()) == [Outcome.POISONED]
