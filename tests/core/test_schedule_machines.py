"""The scheduler where machines come and go, and where cases want devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lobench.core.admission import every_checkpoint
from lobench.core.case import CaseInfo
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Outcome
from lobench.core.schedule import (
    Action,
    Capacity,
    CasesKnown,
    CheckpointSeen,
    Event,
    Finished,
    KillWorker,
    Lease,
    Record,
    RecordDeath,
    Schedule,
    Size,
    StartWorker,
    WorkerDied,
    WorkerReady,
)

PLAIN = CaseInfo(
    identity="plain",
    optimizer_hash="o",
    suite="s",
    name="plain",
    node_id="plain",
    num_inner_steps=10,
    num_seeds=4,
    seed_block=1,
)
WIDE = replace(PLAIN, identity="wide", name="wide", num_cpus=4, seed_block=None)
DEVICE = replace(PLAIN, identity="device", name="device", num_gpus=1.0)


class Driver:
    """A schedule with one checkpoint, and what it asked for."""

    def __init__(
        self, *cases: CaseInfo, max_cores: int, max_gpus: float = math.inf, machines: Sequence[Size] = ()
    ) -> None:
        self.schedule = Schedule(max_cores, every_checkpoint(""), max_gpus=max_gpus)
        self.now = 0.0
        self.send(CheckpointSeen(0, Checkpoint(uri="c", sha256="theta", outer_step=0)))
        if machines:
            self.send(Capacity(tuple(machines)))
        self.first = self.send(CasesKnown(cases))

    def send(self, event: Event) -> list[Action]:
        self.now += 1.0
        return list(self.schedule.handle(event))

    def ready(self, worker: int) -> list[Action]:
        return self.send(WorkerReady(worker, self.now))


def started(actions: list[Action]) -> list[Size]:
    return [action.size for action in actions if isinstance(action, StartWorker)]


def leases(actions: list[Action]) -> list[Lease]:
    return [action for action in actions if isinstance(action, Lease)]


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
    actions, done = driver.ready(0), 0
    while running := leases(actions):
        assert [lease.case for lease in running] == [PLAIN]
        actions = driver.send(Finished(0, running[0].lease, Outcome.PASSED, driver.now))
        done += 1
    assert done == PLAIN.num_seeds


def test_a_case_wider_than_each_machine_is_waited_for_however_many_cores_they_have_together() -> None:
    driver = Driver(WIDE, PLAIN, max_cores=1, machines=(Size(1), Size(3)))
    (wide,) = [action.worker for action in driver.first if isinstance(action, StartWorker) and action.size == Size(4)]
    actions, done = driver.ready(0), 0
    while running := leases(actions):
        assert [lease.case for lease in running] == [PLAIN]
        actions = driver.send(Finished(0, running[0].lease, Outcome.PASSED, driver.now))
        done += 1
    assert done == PLAIN.num_seeds
    driver.send(Capacity((Size(1), Size(3), Size(4))))
    assert [lease.case for lease in leases(driver.ready(wide))] == [WIDE]


def test_devices_are_shared_out_and_never_lent_twice() -> None:
    driver = Driver(DEVICE, max_cores=8, max_gpus=2.0)
    assert started(driver.first).count(Size(1, 1.0)) == 2
    half = Driver(replace(DEVICE, num_gpus=0.5), max_cores=16, max_gpus=2.0)
    assert started(half.first).count(Size(1, 0.5)) == 4
