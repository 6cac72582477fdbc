"""Trials of one case share a program: a worker that has it gets the next of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from schedule_world import case

from lobench.core.admission import every_checkpoint
from lobench.core.case import CaseInfo
from lobench.core.planner import Action, CasesKnown, Finished, History, Lease, Planner, SubjectSeen, WorkerReady
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey


def trial(number: int, *names: str) -> tuple[CaseInfo, ...]:
    """Returns the cases of a trial: one case of all trials has one program."""
    return tuple(dataclasses.replace(case(name), optimizer_hash=str(number), program_hash="p") for name in names)


def new_leases(actions: Sequence[Action]) -> dict[int, Lease]:
    return {action.worker: action for action in actions if isinstance(action, Lease)}


def planner_of(num_workers: int, history: History, *found: tuple[CaseInfo, ...]) -> tuple[Planner, dict[int, Lease]]:
    """Returns a planner of trials, and what its workers hold."""
    planner, leases = Planner(num_workers, every_checkpoint(""), history), {}
    for number, cases in enumerate(found):
        planner.handle(SubjectSeen(number, SubjectKey(f"t{number}", f"v{number}")))
        planner.handle(CasesKnown(cases, f"v{number}"))
    for worker in range(num_workers):
        leases |= new_leases(planner.handle(WorkerReady(worker, 0.0)))
    return planner, leases


def test_a_worker_that_is_warm_for_a_trial_gets_the_same_case_of_the_next() -> None:
    planner, leases = planner_of(2, History(), trial(1, "a", "b"), trial(2, "a", "b"))
    held = {worker: lease.case.name for worker, lease in leases.items()}
    assert sorted(held.values()) == ["a", "b"]
    for worker in (1, 0):
        again = new_leases(planner.handle(Finished(worker, leases[worker].lease, Outcome.PASSED, 1.0)))[worker]
        assert (again.case.name, again.case.optimizer_hash) == (held[worker], "2")


def test_what_is_known_of_one_trials_seconds_orders_the_next() -> None:
    known = trial(1, "brief", "lasting")
    history = History(durations={known[0].key: 1.0, known[1].key: 9.0})
    planner, leases = planner_of(1, history, known, trial(2, "brief", "lasting"))
    order = [leases[0]]
    while leases := new_leases(planner.handle(Finished(0, order[-1].lease, Outcome.PASSED, 1.0, seconds=None))):
        order += leases.values()
    found = [(lease.case.optimizer_hash, lease.case.name) for lease in order]
    assert found == [("1", "lasting"), ("1", "brief"), ("2", "lasting"), ("2", "brief")]
