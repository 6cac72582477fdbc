"""The scheduler with works that are nothing but keys: each is done once, whatever happens to workers."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.schedule import (
    Add,
    Death,
    Drop,
    End,
    Ended,
    Fail,
    Forgive,
    KillWorker,
    Machine,
    Returned,
    Rules,
    ScheduleAction,
    ScheduleEvent,
    Size,
    StartWorker,
    Tick,
    Why,
    Work,
    WorkerDied,
    WorkerReady,
    WorkLease,
)

SHOWN = texts_of("core")


def work(key: int, *, num_cpus: int = 1, warm_key: str = "", rank: int = 0, alike: str | None = None) -> Work:
    return Work(
        key=key, warm_key=warm_key, size=Size(num_cpus), timeout_seconds=10.0, rank=rank, guess_seconds=1.0, alike=alike
    )


@dataclass
class Crew:
    """Workers around a machine; its invariants are checked after each event."""

    machine: Machine
    now: float = 0.0
    starting: list[int] = field(default_factory=list)
    leases: dict[int, WorkLease] = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)
    log: list[ScheduleAction] = field(default_factory=list)

    def send(self, event: ScheduleEvent) -> list[ScheduleAction]:
        actions = list(self.machine.handle(event))
        self.machine.check()
        self.log += actions
        for action in actions:
            match action:
                case StartWorker(worker):
                    self.starting.append(worker)
                case KillWorker(worker):
                    self.starting = [each for each in self.starting if each != worker]
                    self.leases.pop(worker, None)
                case WorkLease(worker):
                    assert worker not in self.leases and worker not in self.starting
                    self.leases[worker] = action
                case Ended():
                    self.ended.append(action)
        return actions

    def ready(self) -> None:
        while self.starting:
            self.send(WorkerReady(self.starting.pop(0), self.now))

    def finish(self, worker: int, *, is_void: bool = False) -> None:
        lease = self.leases.pop(worker)
        self.send(Returned(worker, lease.lease, self.now, is_void=is_void))

    def lose(self, worker: int, *, lost: bool = False) -> None:
        self.leases.pop(worker, None)
        self.starting = [each for each in self.starting if each != worker]
        self.send(WorkerDied(worker, self.now, "killed", lost))

    def run_out(self) -> None:
        for _ in range(1_000):
            self.ready()
            if not self.leases:
                return
            self.finish(next(iter(self.leases)))
        raise AssertionError("it never ends")


def keys(ended: list[Ended]) -> list[int]:
    return sorted(one.work.key for one in ended)


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "drop", "ready", "finish", "void", "lose", "gone", "late"]), st.integers(0, 30)),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, max_cores=st.integers(1, 4), together=st.integers(1, 3), is_death=st.booleans())
def test_whatever_happens_each_work_that_is_not_dropped_ends_once(
    steps: list[tuple[str, int]], max_cores: int, together: int, is_death: bool
) -> None:
    rules = Rules(max_failed_starts=1_000, is_deadline_death=is_death)
    crew = Crew(Machine(max_cores, together=together, rules=rules))
    added, dropped = set(), set()
    for name, number in steps:
        crew.now += 0.1
        busy = sorted(crew.leases)
        match name:
            case "add" if number not in added:
                added.add(number)
                alike = "x" if number % 2 else None
                crew.send(Add((work(number, num_cpus=1 + number % 3, rank=number % 5, alike=alike),)))
            case "drop" if number in added:
                dropped.add(number)
                crew.send(Drop((number,)))
            case "ready":
                crew.ready()
            case "finish" | "void" if busy:
                crew.finish(busy[number % len(busy)], is_void=name == "void")
            case "lose" | "gone" if busy or crew.starting:
                alive = busy + crew.starting
                crew.lose(alive[number % len(alive)], lost=name == "gone")
            case "late":
                crew.now += 100
                crew.send(Tick(crew.now))
    crew.run_out()
    assert len(set(keys(crew.ended))) == len(crew.ended), "ended twice"
    assert added - dropped <= set(keys(crew.ended)) <= added
    assert not crew.machine.work_keys()


def busy_crew(*works: Work, max_cores: int = 1, rules: Rules | None = None) -> Crew:
    crew = Crew(Machine(max_cores, rules=rules))
    crew.send(Add(works))
    crew.ready()
    return crew


def test_a_work_that_is_there_is_there_once() -> None:
    crew = busy_crew(work(1), work(1))
    crew.send(Add((work(1),)))
    crew.run_out()
    assert keys(crew.ended) == [1]


def test_what_is_dropped_is_not_begun_and_not_tried_again() -> None:
    crew = busy_crew(work(1), work(2))
    crew.send(Drop((1, 2, 3)))
    crew.lose(0)
    assert not crew.leases and not crew.starting and not crew.ended


def test_a_dropped_work_that_runs_may_end_and_one_that_is_added_again_counts() -> None:
    crew = busy_crew(work(1))
    crew.send(Drop((1,)))
    crew.send(Add((work(1),)))
    crew.lose(0)
    crew.run_out()
    assert keys(crew.ended) == [1]


@pytest.mark.parametrize("is_death", [False, True])
def test_a_deadline_ends_a_work_or_counts_as_a_death(is_death: bool) -> None:
    crew = busy_crew(work(1), rules=Rules(max_deaths=2, is_deadline_death=is_death))
    for _ in range(2):
        if crew.leases:
            crew.now = crew.leases[max(crew.leases)].deadline + 0.1
            crew.send(Tick(crew.now))
            crew.ready()
    (ended,) = crew.ended
    assert ended.end is (End.POISONED if is_death else End.TIMEOUT)
    assert SHOWN["ran-longer-than-10-s"] in ended.message
    assert [action.count for action in crew.log if isinstance(action, Death)] == ([1, 2] if is_death else [])


def test_as_many_deaths_as_the_rules_allow_are_poison_unless_they_are_forgiven() -> None:
    crew = busy_crew(work(1), rules=Rules(max_deaths=3))
    for worker in range(2):
        crew.lose(worker)
        crew.ready()
    crew.send(Forgive((1,)))
    for worker in range(2, 5):
        assert not crew.ended
        crew.lose(worker)
        crew.ready()
    assert [ended.end for ended in crew.ended] == [End.POISONED]


def test_workers_that_never_start_are_said_once_and_nothing_is_leased_after() -> None:
    crew = Crew(Machine(1))
    crew.send(Add((work(1),)))
    for worker in range(3):
        crew.lose(worker)
    assert [type(action) for action in crew.log].count(Fail) == 1 and crew.machine.is_draining and not crew.starting


def test_a_lease_says_why_it_was_this_work() -> None:
    crew = busy_crew(work(1, warm_key="a"), work(2, warm_key="b"), work(3, warm_key="a"))
    crew.finish(0)
    assert crew.leases[0].work.key == 3 and crew.leases[0].why is Why.WARM
    crew.lose(0)
    crew.ready()
    assert crew.leases[1].work.key == 3 and crew.leases[1].why is Why.AGAIN
    crew.finish(1)
    assert crew.leases[1].work.key == 2 and crew.leases[1].why is Why.FIRST


def test_a_machine_that_lost_a_work_or_holds_one_twice_says_so() -> None:
    crew = busy_crew(work(1), work(2))
    crew.machine._works.pop(2)
    with pytest.raises(AssertionError, match=SHOWN["lost-or-ended-and-kept"]):
        crew.machine.check()
    crew = busy_crew(work(1), work(2))
    crew.machine._queue.push(Size(1), crew.machine._workers.busy_workers()[0][2].entry)
    with pytest.raises(AssertionError, match=SHOWN["in-two-states"]):
        crew.machine.check()


def lines_run(crew: Crew, event: ScheduleEvent) -> int:
    """Returns how many lines a machine runs through for an event."""
    count, before = 0, sys.gettrace()

    def trace(frame: FrameType, kind: str, _: object) -> Any:
        nonlocal count
        count += kind == "line"
        return trace

    sys.settrace(trace)
    try:
        crew.machine.handle(event)
    finally:
        sys.settrace(before)
    return count


def test_an_event_costs_the_same_however_many_workers_are_busy_and_however_much_waits() -> None:
    costs = []
    for num_workers in (10, 200):
        crew = busy_crew(*map(work, range(5 * num_workers)), max_cores=num_workers)
        assert len(crew.leases) == num_workers
        crew.send(Tick(1.0))
        lease = crew.leases[3]
        costs.append([lines_run(crew, event) for event in (Tick(2.0), Returned(3, lease.lease, 3.0), Tick(3.0))])
    assert costs[0] == costs[1]
