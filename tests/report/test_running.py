"""What runs: how far it is, what compiling took, and how long the rest takes."""

from __future__ import annotations

import dataclasses

from shown import texts_of
from stores import case_info, curves

from lobench.core.case import CaseInfo, SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.planner import RemainingWork
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.hookspecs import EvaluationFinished
from lobench.report.live.running import RunningEvaluations, duration_text, subject_name

SHOWN = texts_of("report")

STEP = Subject.of_checkpoint(Checkpoint(uri="run/theta_3.npz", sha256="0" * 64, outer_step=3))
A, B = case_info("a", 2), case_info("b", 2)


class World:
    """A clock, and evaluations that take what they are told to."""

    def __init__(self) -> None:
        self.now, self._lease = 0.0, 0
        self.running = RunningEvaluations(lambda: self.now)

    def evaluate(self, case: CaseInfo, seconds: float, compiling: float = 0.0, *, is_cached: bool = False) -> None:
        self._lease += 1
        self.running.leased(self._lease, STEP, case)
        self.now += seconds + compiling
        # XLA compiles two parts of each program.
        num_compilations = 2 if compiling and not is_cached else 0
        found = dataclasses.replace(
            curves({"train/loss": [1.0, 1.0]}), compile_seconds=compiling, num_compilations=num_compilations
        )
        block = SeedBlock(start=0, size=2)
        event = EvaluationFinished(subject=STEP, case=case, seed_block=block, outcome=Outcome.PASSED, curves=found)
        self.running.finished(event, self._lease)


def test_what_compiling_took_is_said_once_with_what_took_longest() -> None:
    world = World()
    world.evaluate(A, 1.0, compiling=3.0)
    world.evaluate(B, 1.0, compiling=12.0)
    assert world.running.compile_times_text() == SHOWN["compiled-2-programs-in-15"]
    world.evaluate(B, 1.0)
    assert world.running.compile_times_text() == ""
    world.evaluate(A, 1.0, compiling=0.1)
    assert world.running.compile_times_text() == "", "a program that was read from a cache"
    world.evaluate(A, 1.0, compiling=2.0)
    assert world.running.compile_times_text() == SHOWN["compiled-s-a-in-2-1"]
    world.evaluate(A, 1.0, compiling=2.0, is_cached=True)
    assert world.running.compile_times_text() == SHOWN["loaded-s-a-from-a"]
    world.evaluate(A, 1.0, compiling=2.0, is_cached=True)
    world.evaluate(B, 1.0, compiling=3.0)
    assert world.running.compile_times_text() == SHOWN["compiled-1-program-and-loaded"]
    for name in "abcde":
        world.evaluate(case_info(name), 1.0, compiling=2.0)
    assert world.running.compile_times_text().endswith("2 more 4.0 s")


def test_the_time_left_is_that_of_what_is_left_without_compiling_on_all_cores() -> None:
    world = World()
    left = RemainingWork(evaluations={A.program_key: 4, B.program_key: 2}, num_admitted=3, num_waiting=2, num_cores=2)
    assert world.running.remaining_text(left) == SHOWN["in-work-2-waiting-6"], "nothing is known yet"
    world.evaluate(A, 1.0, compiling=60.0)
    world.evaluate(A, 3.0)
    world.evaluate(B, 12.0)
    assert world.running.remaining_text(left) == SHOWN["in-work-2-waiting-6-evaluations"]
    assert world.running.remaining_text(RemainingWork(evaluations={A.program_key: 1}, num_admitted=1)).startswith(
        SHOWN["evaluation-left"]
    )
    assert world.running.remaining_text(RemainingWork()) == ""


def test_a_new_program_compiles_and_then_counts_its_steps() -> None:
    world = World()
    world.running.leased(7, STEP, A)
    world.now += 12
    assert world.running.progress_rows() == [(SHOWN["outer-step-3-s-a"], "compiling 12 s")]
    assert world.running.status_text() == SHOWN["evaluations-done-1-running-outer"]
    world.running.step(7, 5)
    assert world.running.progress_rows() == [(SHOWN["outer-step-3-s-a"], "5/10")]
    world.evaluate(A, 1.0)
    world.running.leased(8, STEP, A)
    assert world.running.progress_rows()[-1][1] == "0/10", "what has run before is compiled"


def test_which_of_the_planned_programs_compiles_and_how_long_that_takes() -> None:
    world = World()
    world.running.planned([A.program_key, B.program_key])
    command = dataclasses.replace(case_info("c", 2), evaluator="command")
    world.running.planned([command.program_key])
    world.running.leased(6, STEP, command)
    world.running.leased(7, STEP, A)
    assert [far for _, far in world.running.progress_rows()] == [
        SHOWN["runs-for-0-0-s"],
        "compiling 1 of 2 programs, 0.0 s",
    ]
    world.evaluate(A, 1.0, compiling=4.0)
    world.evaluate(A, 1.0, compiling=0.1)
    world.running.leased(9, STEP, B)
    world.now += 3
    assert world.running.progress_rows()[-1][1] == SHOWN["compiling-2-of-2-programs"]
    assert world.running.progress_rows(is_narrow=True)[-1][1] == "compiling 3.0 s"


def test_names_and_durations() -> None:
    member = dataclasses.replace(STEP, run="trial_2")
    assert [subject_name(one) for one in (STEP, dataclasses.replace(STEP, generation=4), member)] == [
        SHOWN["outer-step-3-2"],
        SHOWN["generation-4-outer-step-3"],
        SHOWN["trial-2-outer-step-3"],
    ]
    last = [Checkpoint(uri="run/last.pt", sha256="0" * 64, outer_step=step) for step in (0, 40)]
    assert [subject_name(Subject.of_checkpoint(one)) for one in last] == ["last.pt", SHOWN["last-pt-outer-step-40"]]
    method = dataclasses.replace(STEP, label="Celo")
    session = dataclasses.replace(STEP, label="ours 0", uri=".lobench/x/commands/ours/0/theta_3.npz")
    assert [subject_name(one) for one in (method, session)] == ["Celo", f"ours 0, {SHOWN['outer-step-3-2']}"]
    assert [duration_text(seconds) for seconds in (0.42, 9.6, 99, 100, 6100)] == [
        "0.4 s",
        "10 s",
        "99 s",
        "2 min",
        "2 h",
    ]
