"""What the scheduler has workers compile for later."""

from __future__ import annotations

import pytest
from schedule_world import World, case

from lobench.core.planner import Prepare, Prepared, Tick
from lobench.core.result import Outcome

CASES = (case("a"), case("b"), case("c"))


def prepared(world: World) -> list[str]:
    """Returns the cases that were to be compiled ahead, in order."""
    actions = [action for _, actions in world.log for action in actions if isinstance(action, Prepare)]
    return [action.evaluation.case_key.partition(":")[0] for action in actions]


def ahead(num_cores: int) -> World:
    """One worker with its first lease, on a machine of more cores, before three cases."""
    world = World(max_cores=1, spare_cores=num_cores - 1)
    world.see()
    world.ready(CASES)
    return world


def test_where_a_core_is_free_a_worker_compiles_the_next_cases_beside_the_first() -> None:
    world = ahead(2)
    assert prepared(world) == ["b"]
    world.prepared(0)
    assert prepared(world) == ["b", "c"]
    world.run_out(CASES)
    world.see()
    world.run_out(CASES)
    assert prepared(world) == ["b", "c"], "a new checkpoint compiles nothing"


def test_where_no_core_is_free_nothing_is_compiled_ahead() -> None:
    world = ahead(1)
    world.run_out(CASES)
    assert prepared(world) == []


def test_what_could_not_be_compiled_ahead_is_not_tried_again() -> None:
    world = ahead(2)
    world.preparing.clear()
    world.send(Prepared(0, is_done=False))
    assert prepared(world) == ["b", "c"]
    world.run_out(CASES)
    assert prepared(world) == ["b", "c"] and set(world.recorded.values()) == {Outcome.PASSED}


@pytest.mark.parametrize("end", ["death", "deadline"])
def test_what_goes_wrong_beside_a_case_costs_it_nothing(end: str) -> None:
    world = ahead(2)
    if end == "death":
        world.lose(0)
    else:
        world.now = world.leases[0].deadline + 0.1
        world.send(Tick(world.now))
    assert not world.recorded
    world.ready(CASES)
    assert world.leases[1].case.name == "a" and prepared(world) == ["b"], "it runs alone now"
    world.run_out(CASES)
    assert set(world.recorded.values()) == {Outcome.PASSED}
    assert prepared(world).count("b") == 1, "the suspect runs, and is compiled, alone"


def test_a_death_beside_another_cases_compilation_counts_for_neither() -> None:
    """It takes two deaths to be poison; the first one here may have been the other case's doing."""
    world = ahead(2)
    world.lose(0)
    for _ in range(2):
        world.ready(CASES)
        assert not world.recorded
        world.lose(max(world.leases))
    assert set(world.recorded.values()) == {Outcome.POISONED}
