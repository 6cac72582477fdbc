"""Commands take slots of the same machine as evaluations: one scheduler, one set of rules for what dies."""

from __future__ import annotations

from case_infos import case_info

from lobench.core.admission import every_checkpoint
from lobench.core.planner import (
    Action,
    CasesKnown,
    CommandEnded,
    CommandId,
    Done,
    Finished,
    Lease,
    LeaseCommand,
    Planner,
    RunCommands,
    RunEnded,
    Size,
    StartWorker,
    SubjectSeen,
    WorkerDied,
    WorkerReady,
)
from lobench.core.result import Outcome
from lobench.core.subject import SubjectKey

WIDE, NARROW = CommandId("wide", 0), CommandId("narrow", 0)
CASE = case_info("n", identity="i", node_id="")


def of_kind(actions: tuple[Action, ...], *kinds: type) -> list[Action]:
    return [action for action in actions if isinstance(action, kinds)]


def test_commands_go_first_in_workers_of_their_size_and_evaluations_take_what_is_left() -> None:
    planner = Planner(3, every_checkpoint(""))
    started = planner.handle(RunCommands(((WIDE, Size(2)), (NARROW, Size(1)))))
    assert of_kind(started, StartWorker) == [StartWorker(0, Size(2)), StartWorker(1, Size(1))]
    planner.handle(CasesKnown((CASE,)))
    planner.handle(SubjectSeen(1, SubjectKey("h", "")))
    assert of_kind(planner.handle(WorkerReady(0, 0.0)), Lease, LeaseCommand) == [LeaseCommand(0, 0, WIDE)]
    assert of_kind(planner.handle(WorkerReady(1, 0.0)), Lease, LeaseCommand) == [LeaseCommand(1, 1, NARROW)]
    ended = planner.handle(Finished(1, 1, Outcome.FAILED, 1.0, "exited with status 1: no data"))
    assert of_kind(ended, CommandEnded) == [CommandEnded(NARROW, "exited with status 1: no data")]
    (lease,) = of_kind(ended, Lease)
    assert isinstance(lease, Lease) and lease.worker == 1
    planner.handle(RunEnded())
    planner.handle(Finished(1, lease.lease, Outcome.PASSED, 2.0))
    assert planner.num_remaining == 0
    last = planner.handle(Finished(0, 0, Outcome.PASSED, 3.0))
    assert of_kind(last, CommandEnded, Done) == [CommandEnded(WIDE, ""), Done()]


def test_a_command_whose_worker_dies_begins_again_and_is_given_up_after_the_second_time() -> None:
    planner = Planner(1, every_checkpoint(""))
    planner.handle(RunCommands(((NARROW, Size(1)),)))
    planner.handle(RunEnded())
    worker, ended = 0, []
    while not ended:
        leased = of_kind(planner.handle(WorkerReady(worker, 0.0)), LeaseCommand)
        assert leased == [LeaseCommand(worker, worker, NARROW)]
        actions = planner.handle(WorkerDied(worker, 1.0, "killed by signal 9"))
        ended, worker = of_kind(actions, CommandEnded), worker + 1
    assert worker == 2
    assert isinstance(ended[0], CommandEnded) and "killed by signal 9" in ended[0].message
    assert of_kind(actions, Done)
