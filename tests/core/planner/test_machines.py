"""The scheduler where machines come and go, and where cases want devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from case_infos import case_info

from lobench.core.admission import every_checkpoint
from lobench.core.case import CaseInfo
from lobench.core.planner import (
    Action,
    Capacity,
    CasesKnown,
    Event,
    Finished,
    KillWorker,
    Lease,
    Planner,
    Record,
    RecordDeath,
    Size,
    StartWorker,
    SubjectSeen,
    WorkerDied,
    WorkerReady,
)
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey

PLAIN = case_info("plain", num_inner_steps=10, num_seeds=4, seed_block=1)
WIDE = replace(PLAIN, identity="wide", name="wide", num_cpus=4, seed_block=None)
DEVICE = replace(PLAIN, identity="device", name="device", num_gpus=1.0)


class Driver:
    """A schedule with one checkpoint, and what it asked for."""

    def __init__(
        self, *cases: CaseInfo, max_cores: int, max_gpus: float = math.inf, machines: Sequence[Size] = ()
    ) -> None:
        self.schedule = Planner(max_cores, every_checkpoint(""), max_gpus=max_gpus)
        self.now = 0.0
        self.send(SubjectSeen(0, SubjectKey("theta", "")))
        if machines:
            self.send(Capacity(tuple(machines)))
        self.first = self.send(CasesKnown(cases))

    def send(self, event: Event) -> list[Action]:
        self.now += 1.0
        actions = list(self.schedule.handle(event))
        self.schedule.check()
        return actions

    def ready(self, worker: int) -> list[Action]:
        return self.send(WorkerReady(worker, self.now))


def started(actions: list[Action]) -> list[Size]:
    return [action.size for action in actions if isinstance(action, StartWorker)]


def leases(actions: list[Action]) -> list[Lease]:
    return [action for action in actions if isinstance(action, Lease)]


def num_run(driver: Driver, case: CaseInfo) -> int:
    """Runs all that the first worker is given, which must be of one case; returns how much that is."""
    actions, done = driver.ready(0), 0
    while running := leases(actions):
        assert [lease.case for lease in running] == [case]
        actions = driver.send(Finished(0, running[0].lease, Outcome.PASSED, driver.now))
        done += 1
    return done


def test_slots_follow_the_machines() -> None:
    driver = Driver(PLAIN, max_cores=1)
    grown = driver.send(Capacity((Size(2), Size(1))))
    assert started(grown) == [Size(1), Size(1)]
    driver.ready(0)
    shrunk = driver.send(Capacity((Size(1),)))
    # The one that is at work stays: whether its machine is there is told by its death alone.
    assert [action.worker for action in shrunk if isinstance(action, KillWorker)] == [2, 1]


def test_a_lost_machine_is_no_evidence_against_its_case() -> None:
    driver = Driver(replace(PLAIN, num_seeds=1), max_cores=1)
    actions = driver.ready(0)
    for worker in range(1, 4):
        (lease,) = leases(actions)
        lost = driver.send(WorkerDied(lease.worker, driver.now, "its node is gone", True))
        assert not [action for action in lost if isinstance(action, RecordDeath | Record)]
        actions = driver.ready(worker)
    (lease,) = leases(actions)
    done = driver.send(Finished(lease.worker, lease.lease, Outcome.PASSED, driver.now))
    assert [action.outcome for action in done if isinstance(action, Record)] == [Outcome.PASSED]


def test_a_case_whose_machine_goes_away_each_time_ends_as_poison() -> None:
    driver = Driver(replace(PLAIN, num_seeds=1), max_cores=1)
    records: list[Record] = []
    for worker in range(20):
        if not leases(driver.ready(worker)):
            break
        actions = driver.send(WorkerDied(worker, driver.now, "its node is gone", True))
        records += [action for action in actions if isinstance(action, Record)]
    assert [record.outcome for record in records] == [Outcome.POISONED]


def test_a_case_is_as_wide_after_its_machine_went_as_before() -> None:
    wide = Driver(WIDE, max_cores=8)
    wide.send(Capacity((Size(8),)))
    worker = next(action.worker for action in wide.first if isinstance(action, StartWorker) and action.size == Size(4))
    assert leases(wide.ready(worker))
    wide.send(Capacity(()))
    lost = wide.send(WorkerDied(worker, wide.now, "its node is gone", True))
    assert started(lost) == [Size(4)]  # asked for, though nobody has it: the executor says so


def test_what_no_machine_has_is_waited_for_by_one_worker_and_holds_nobody_up() -> None:
    driver = Driver(DEVICE, PLAIN, max_cores=1, max_gpus=0.0)
    assert started(driver.first) == [Size(1, 1.0)]  # the worker of one core was there already, to report the cases
    assert num_run(driver, PLAIN) == PLAIN.num_seeds


def test_a_case_wider_than_each_machine_is_waited_for_however_many_cores_they_have_together() -> None:
    driver = Driver(WIDE, PLAIN, max_cores=1, machines=(Size(1), Size(3)))
    (wide,) = [action.worker for action in driver.first if isinstance(action, StartWorker) and action.size == Size(4)]
    assert num_run(driver, PLAIN) == PLAIN.num_seeds
    grown = driver.send(Capacity((Size(1), Size(3), Size(4))))
    (wide,) = [action.worker for action in grown if isinstance(action, StartWorker)]  # asked for anew, and the only one
    assert [lease.case for lease in leases(driver.ready(wide))] == [WIDE]


def test_devices_are_shared_out_and_never_lent_twice() -> None:
    driver = Driver(DEVICE, max_cores=8, max_gpus=2.0)
    assert started(driver.first).count(Size(1, 1.0)) == 2
    half = Driver(replace(DEVICE, num_gpus=0.5), max_cores=16, max_gpus=2.0)
    assert started(half.first).count(Size(1, 0.5)) == 4


class Cluster:
    """Machines that give each worker a place where there is one, the emptiest first, and finish what they are leased.

    Args:
      first: The smallest wanting workers are placed first, or the largest.
    """

    def __init__(self, machines: Sequence[Size], *cases: CaseInfo, first: int, limit: float = math.inf) -> None:
        self.schedule = Planner(1, every_checkpoint(""))
        self.free = [list(machine) for machine in machines]
        self.first, self.now = first, 0.0
        self.unplaced: dict[int, Size] = {}
        self.placed: dict[int, tuple[int, Size]] = {}
        self.running: list[Lease] = []
        self.done: list[CaseInfo] = []
        self.send(SubjectSeen(0, SubjectKey("theta", "")))
        self.send(Capacity(tuple(machines), limit))
        self.place()
        self.send(CasesKnown(cases))

    def send(self, event: Event) -> None:
        self.now += 1.0
        actions = self.schedule.handle(event)
        self.schedule.check()
        for action in actions:
            match action:
                case StartWorker(worker, size):
                    self.unplaced[worker] = size
                case KillWorker(worker, _):
                    self.unplaced.pop(worker, None)
                    if worker in self.placed:
                        self.give_back(*self.placed.pop(worker))
                case Lease():
                    self.running.append(action)

    def give_back(self, machine: int, size: Size) -> None:
        self.free[machine] = [have + back for have, back in zip(self.free[machine], size, strict=True)]

    def place(self) -> list[int]:
        """Returns the workers that found a place."""
        found = []
        for worker, size in sorted(self.unplaced.items(), key=lambda item: self.first * item[1].num_cpus):
            fitting = [index for index, free in enumerate(self.free) if free[0] >= size[0] and free[1] >= size[1]]
            machine = max(fitting, key=self.free.__getitem__, default=-1)
            if machine >= 0:
                self.free[machine] = [have - take for have, take in zip(self.free[machine], size, strict=True)]
                self.placed[worker] = machine, self.unplaced.pop(worker)
                found.append(worker)
        return found

    def run(self) -> list[CaseInfo]:
        """Returns the cases that were evaluated by the time that nothing happens any more."""
        for worker in list(self.placed):
            self.send(WorkerReady(worker, self.now))
        while True:
            for worker in (ready := self.place()):
                if worker in self.placed:
                    self.send(WorkerReady(worker, self.now))
            if not self.running and not ready:
                return self.done
            if self.running:
                lease = self.running.pop(0)
                self.done.append(lease.case)
                self.send(Finished(lease.worker, lease.lease, Outcome.PASSED, self.now))


@pytest.mark.parametrize("limit", [math.inf, 100])
@pytest.mark.parametrize("first", [1, -1])
@pytest.mark.parametrize(
    ("machines", "widths"),
    [
        ([(2, 0), (2, 0)], [(2, 0), (1, 0)]),
        ([(3, 0), (3, 0)], [(2, 0), (1, 0)]),
        ([(4, 0), (4, 0), (4, 0)], [(4, 0), (3, 0), (1, 0)]),
        ([(8, 0), (1, 0), (1, 0)], [(8, 0), (1, 0)]),
        ([(4, 2), (4, 2), (4, 0)], [(1, 2), (1, 1), (2, 0.5), (4, 0)]),
    ],
)
def test_whatever_place_each_worker_gets_all_that_a_machine_can_hold_is_evaluated(
    machines: list[tuple[int, float]], widths: list[tuple[int, float]], first: int, limit: float
) -> None:
    """Small workers on each machine would leave a wide one no room, though there is enough of it in all."""
    one, many = replace(PLAIN, seed_block=None), PLAIN
    cases = [
        replace(
            one if width > (1, 1) else many, identity=str(width), name=str(width), num_cpus=width[0], num_gpus=width[1]
        )
        for width in widths
    ]
    cluster = Cluster([Size(*machine) for machine in machines], *cases, first=first, limit=limit)
    assert sorted(case.name for case in cluster.run()) == sorted(case.name for case in cases for _ in case.blocks())


def test_as_many_cores_as_were_named_are_asked_for_where_there_are_fewer() -> None:
    """Machines are brought for what waits: that the first came must not end the waiting of the rest."""
    driver = Driver(PLAIN, max_cores=6)
    for machines in ([], [Size(0)], [Size(0), Size(2)]):
        actions = driver.send(Capacity(tuple(machines), limit=6))
        assert not [action for action in actions if isinstance(action, StartWorker | KillWorker)]
    driver.ready(0)
    driver.send(Capacity((Size(0), Size(2), Size(2)), limit=6))
    assert leases(driver.ready(1)) and leases(driver.ready(2))
