"""Leases and deadlines while the system's clock steps."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import lobench_pbt
import pytest
from failing_disk import COMPILING
from lobench_pbt.connection import Address, Connection
from lobench_pbt.decide import TrialDecision
from lobench_pbt.service import Service
from lobench_pbt.study import FitnessFrom
from lobench_pbt.transitions import Completion
from lobench_pbt.trial import State
from pbt_served import PATIENCE, serve, suggestion
from pbt_simulation import PLUGINS, make_study, write_theta
from stepping_clock import SteppingClock

LEASE = 60.0
STEPS = [3600.0, -3600.0, 86_400.0]


class Machine:
    """A machine's clocks, in place of this process's: one that can be set, and one that cannot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set, self.steady = 1_000_000.0, 500.0
        monkeypatch.setattr("time.time", lambda: self.set)
        monkeypatch.setattr("time.monotonic", lambda: self.steady)

    def step(self, seconds: float) -> None:
        self.set += seconds

    def wait(self, seconds: float) -> None:
        self.set += seconds
        self.steady += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def service_of(store: Path) -> Service:
    service = Service(store, plugins=PLUGINS)
    changes = {"lease_seconds": LEASE, "fitness_seconds": 1000.0, "fitness_from": FitnessFrom.WATCH}
    service.create_study(make_study(parameters=(), population=3, **changes))
    return service


def begin(service: Service, worker: str) -> int:
    suggestion = service.suggest("", worker)
    assert suggestion.answer is TrialDecision.TRIAL and suggestion.trial is not None
    return suggestion.trial.id


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("restarted", [False, True])
def test_service_clock_that_steps_loses_no_live_lease_and_frees_a_dead_one_in_one_lease_time(
    machine: Machine, tmp_path: Path, step: float, restarted: bool
) -> None:
    service = service_of(tmp_path)
    live, dead = begin(service, "live"), begin(service, "dead")
    for _ in range(3):
        machine.wait(10.0)
        machine.step(step)
        service.expire()
        assert service.heartbeat("", live, 0) is False
    if restarted:
        service.close()
        machine.step(step)
        service = service_of(tmp_path)
        service.resume()
    machine.wait(0.9 * LEASE)
    service.expire()
    assert service.heartbeat("", live, 0) is False
    machine.wait(0.2 * LEASE)
    service.expire()
    assert begin(service, "new") == dead
    trials = {trial.id: trial for trial in service.list_trials()}
    assert trials[live].attempt == 0 and trials[dead].attempt == 1
    service.close()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("restarted", [False, True])
def test_service_clock_that_steps_keeps_the_deadline_of_a_fitness(
    machine: Machine, tmp_path: Path, step: float, restarted: bool
) -> None:
    service = service_of(tmp_path)
    trial = begin(service, "one")
    service.complete("", trial, Completion(attempt=0, n_steps=5, checkpoint=write_theta(tmp_path / "theta.npz", 1.0)))
    machine.step(step)
    service.expire()
    if restarted:
        service.close()
        machine.step(step)
        service = service_of(tmp_path)
        service.resume()
    machine.wait(100.0)
    service.expire()
    assert service.list_trials()[0].state is State.AWAITING_FITNESS
    machine.wait(1000.0)
    service.expire()
    assert service.list_trials()[0].state is State.INFEASIBLE
    service.close()


@COMPILING
def test_controller_under_a_clock_that_steps_keeps_the_lease_of_a_live_trainer_and_passes_on_a_dead_ones(
    trainer: Path,
) -> None:
    lease = 4.0
    with (trainer / "study.gin").open("a") as file:
        file.write(f"Study.lease_seconds = {lease}\nStudy.max_attempts = 100\n")
    clock = SteppingClock(trainer)
    process = serve(trainer, clock.environment)
    connection = Connection(Address.parse((trainer / "store" / "address").read_text()), patience=PATIENCE)
    try:
        with lobench_pbt.client((trainer / "store" / "address").read_text(), patience=PATIENCE) as study:
            trials = study.trials("live")
            live = next(trials)  # renews its lease in a thread
            dead = suggestion(connection, "dead-0").id
            begun = time.monotonic()
            for count, seconds in enumerate((86_400.0, -86_400.0), start=1):
                clock.set(seconds)
                if count == 2:  # a restart reads the clock anew
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process = serve(trainer, clock.environment)
                while not (trial := suggestion(connection, f"dead-{count}").id):
                    time.sleep(0.2)
                now = time.monotonic()
                assert trial == dead and 0.9 * lease < now - begun < 60.0, "one lease time, and a busy machine"
                begun = now
            assert not live.is_lost
            attempts = {trial.id: trial.attempt for trial in study.all_trials()}
            assert attempts == {live.id: 0, dead: 2}
    finally:
        connection.close()
        process.send_signal(signal.SIGTERM)
        process.wait()
