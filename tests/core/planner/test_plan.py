"""A restart plans anew: today's cases for what the policy chooses, less what is recorded."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_world import CASES, EVENTS, POLICIES, World, case, play

from lobench.core.planner import (
    CasesKnown,
    EvaluationId,
    Finished,
    Lease,
    Reopen,
    RunEnded,
    StartWorker,
    SubjectSeen,
)
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey

A, B, NEW = case("a"), case("b"), case("new", num_seeds=3, seed_block=2)
CHOSEN = {"latest": [4], "all": [0, 1, 2, 3, 4], "every:3": [0, 3, 4]}


def finished_world(policy: str, num_seen: int = 5) -> World:
    world = World(policy=policy)
    for _ in range(num_seen):
        world.see()
    world.run_out((A, B))
    return world


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_new_case_is_evaluated_on_what_the_policy_chooses_and_nothing_else_is(policy: str) -> None:
    world = finished_world("all")
    before = set(world.recorded)
    world.policy = policy
    world.restart()
    world.run_out((A, B, NEW))
    added = Counter((evaluation.sha256, evaluation.case_key) for evaluation in set(world.recorded) - before)
    assert added == {(f"theta{position}", NEW.key): 2 for position in CHOSEN[policy]}
    assert world.finished == set(range(5))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_where_nothing_is_missing_one_worker_says_so_and_nothing_is_leased(policy: str) -> None:
    world = finished_world("all")
    world.policy, world.max_cores = policy, 8
    world.restart()
    world.run_out((A, B))
    actions = [action for _, found in world.log for action in found]
    assert sum(isinstance(action, StartWorker) for action in actions) == 1
    assert not any(isinstance(action, Lease | Reopen) for action in actions)


def test_what_was_skipped_is_evaluated_where_all_are_asked_for() -> None:
    world = finished_world("latest")
    skipped = [position for position, admission in world.admissions.items() if admission == "skipped"]
    assert skipped
    world.policy = "all"
    world.restart()
    world.run_out((A, B))
    assert set(world.admissions.values()) == {"admitted"} and world.finished == set(range(5))
    assert len(world.recorded) == 10


def test_errors_are_tried_again_on_every_checkpoint_and_bring_the_new_case_with_them() -> None:
    world = finished_world("all")
    world.policy = "latest"
    failed = EvaluationId("theta1", A.key, A.blocks()[0])
    of_no_case = EvaluationId("theta2", "a case of yesterday:o", A.blocks()[0])
    world.recorded[of_no_case] = world.recorded[failed]
    before = set(world.recorded)
    world.restart(retried=(failed, of_no_case))
    world.run_out((A, B, NEW))
    leased = {a.evaluation for _, actions in world.log for a in actions if isinstance(a, Lease)}
    assert failed in leased
    assert {e.sha256 for e in leased - {failed}} == {"theta1", "theta4"}
    assert {e.case_key for e in leased - {failed}} == {NEW.key}
    assert of_no_case in world.recorded, "what today's plan does not hold is left as it is"
    assert before < set(world.recorded) and world.finished == set(range(5))


@settings(max_examples=100, deadline=None)
@given(policy=st.sampled_from(sorted(POLICIES)), events=st.lists(EVENTS, max_size=40))
def test_killed_anywhere_while_it_catches_up_it_ends_complete(policy: str, events: list[tuple[str, None]]) -> None:
    world = finished_world("all", num_seen=3)
    world.policy = policy
    world.ended = False
    world.restart()
    play(world, events, CASES)
    newest = world.seen[max(world.seen)].sha256
    for known in CASES:
        seeds = [s for e in world.recorded if (e.sha256, e.case_key) == (newest, known.key) for s in e.block.seeds]
        assert sorted(seeds) == list(range(known.num_seeds))
    assert world.finished == {p for p, admission in world.admissions.items() if admission == "admitted"}


def test_a_void_result_records_nothing_and_the_evaluation_goes_first_again() -> None:
    world = World(max_cores=1)
    world.see()
    world.ready((A, B))
    ((worker, lease),) = world.leases.items()
    del world.leases[worker]
    world.send(Finished(worker, lease.lease, Outcome.ERROR, world.now, "no theta", is_void=True))
    assert not world.recorded
    assert [again.evaluation for again in world.leases.values()] == [lease.evaluation]
    world.run_out((A, B))
    assert set(world.recorded.values()) == {Outcome.PASSED} and len(world.recorded) == 2


def test_subjects_of_two_variants_are_evaluated_on_the_cases_of_each() -> None:
    world = World(max_cores=1)
    world.see()
    world.ready((A,))
    world.send(SubjectSeen(1, SubjectKey("theta0", "v")))  # one theta, with other bindings
    world.finish(0)
    assert world.finished == {0} and not world.done, "the cases of v are not known yet"
    world.send(RunEnded())
    assert not world.done and world.planner.num_remaining == 1
    world.send(CasesKnown((A, B), "v"))
    assert [lease.evaluation for lease in world.leases.values()] == [EvaluationId("theta0", B.key, B.blocks()[0])]
    world.finish(0)
    assert world.finished == {0, 1} and world.done and len(world.recorded) == 2


def test_what_two_variants_want_alike_is_evaluated_once_and_finishes_both() -> None:
    world = World(max_cores=1)
    for position, variant in enumerate(("", "v")):
        world.send(SubjectSeen(position, SubjectKey("theta", variant)))
        world.send(CasesKnown((A,), variant))
    world.ready((A,))
    assert world.planner.num_remaining == 1
    left = world.planner.remaining_work
    assert (dict(left.evaluations), left.num_admitted, left.num_waiting) == ({A.program_key: 1}, 2, 0)
    world.finish(0)
    assert world.finished == {0, 1} and len(world.recorded) == 1
    assert not world.planner.remaining_work.evaluations


def test_a_worker_is_started_for_the_cases_of_a_further_variant_where_none_is_left() -> None:
    world = World(max_cores=2)
    world.see()
    world.ready((A,))
    for worker in list(world.alive):
        world.lose(worker)
    world.ready((A,))
    world.finish(0)
    for worker in list(world.alive):
        world.lose(worker)
    world.send(SubjectSeen(1, SubjectKey("theta0", "v")))
    assert len(world.starting) == 1
