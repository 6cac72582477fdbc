"""The log of decisions: written as a watch goes, bounded, and replayed by `lobench doctor --replay`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from commands import lobench
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_world import CASES, EVENTS, POLICIES, World, play
from shown import texts_of
from tiny import ONE_CASE, make_run, make_suite, watch

from lobench.core.errors import StoreError
from lobench.core.planner import Finished, History, Planner, Size, Tick, WorkerReady
from lobench.core.planner.events import CommandId, RunCommands
from lobench.core.planner.log import PlannerStart, RecordedPlanner, read_start, read_step
from lobench.core.planner.planner_replay import Replay
from lobench.core.result import Outcome
from lobench.engine.chief.decisions import DecisionLog, log_files, read_decisions

SHOWN = texts_of("chief")


class RecordedWorld(World):
    """A world whose planner is recorded, the last start alone."""

    def make_planner(self, history: History) -> Planner:
        self.start = PlannerStart(max_cores=self.max_cores, together=self.together, history=history)
        self.recorded_planner = RecordedPlanner(self.start, POLICIES[self.policy]())
        return self.recorded_planner


@settings(max_examples=100, deadline=None)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    together=st.integers(1, 3),
    events=st.lists(EVENTS, min_size=1, max_size=40),
)
def test_a_replay_from_its_lines_decides_the_same(policy: str, together: int, events: list[tuple[str, Any]]) -> None:
    world = RecordedWorld(policy=policy, together=together, oom=frozenset({"hungry"}), poison=frozenset({"a"}))
    play(world, events, CASES)
    start = read_start(world.start.to_line())
    assert start == world.start
    replay = Replay(start)
    lines = list(replay.lines(read_step(step.to_line()) for step in world.recorded_planner.take_steps()))
    assert replay.differs_at is None and replay.num_steps <= len(world.log) and lines[-1].endswith(SHOWN["left-to-do"])


def a_log(store: Path, num_events: int = 50, **limits: int) -> list[str]:
    """Writes the log of a start; returns what was said."""
    output: list[str] = []
    world = RecordedWorld(max_cores=2)
    log = DecisionLog(store, world.start, world.recorded_planner.take_steps, log=output.append, **limits)
    chance = random.Random(0)
    for _ in range(num_events):
        world.see("".join(chance.choices("0123456789abcdef", k=64)))
        world.ready(CASES)
        world.finish(0)
        log.write(is_last=True)
    return output


def test_an_oldest_start_goes_whole_when_there_are_too_many(tmp_path: Path) -> None:
    for _ in range(6):
        a_log(tmp_path, max_bytes=40_000, max_start_bytes=15_000)
    assert sum(path.stat().st_size for path in log_files(tmp_path).values()) <= 40_000
    assert max(log_files(tmp_path)) == 6 and 1 not in log_files(tmp_path)
    start, steps = read_decisions(log_files(tmp_path)[min(log_files(tmp_path))])
    replay = Replay(start)
    assert list(replay.lines(steps)) and replay.differs_at is None


def test_a_start_that_is_too_long_is_replayed_as_far_as_its_log_goes(tmp_path: Path) -> None:
    a_log(tmp_path, max_start_bytes=3_000)
    assert log_files(tmp_path)[1].stat().st_size < 6_000
    start, steps = read_decisions(log_files(tmp_path)[1])
    replay = Replay(start)
    assert len(list(replay.lines(steps))) > 0 and replay.differs_at is None and replay.num_steps < 150


def test_a_log_that_was_cut_off_is_read_as_far_as_it_goes_and_a_damaged_one_is_said(tmp_path: Path) -> None:
    a_log(tmp_path)
    path = log_files(tmp_path)[1]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    replay = Replay(read_decisions(path)[0])
    assert list(replay.lines(read_decisions(path)[1])) and replay.differs_at is None
    for damaged in (b"", b"no log", content[:100] + b"?" * 50 + content[150:]):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match=SHOWN["log-of-decisions-cannot-be"]):
            list(read_decisions(path)[1])


def test_where_it_cannot_be_written_that_is_said_once_and_all_goes_on(tmp_path: Path) -> None:
    (tmp_path / "decisions").touch()
    (output,) = a_log(tmp_path)
    assert output.startswith(SHOWN["decisions-are-not-logged-any"])


def test_quiet_ticks_leave_no_trace() -> None:
    world = RecordedWorld()
    world.see()
    list(world.recorded_planner.take_steps())
    for _ in range(10):
        world.now += 1.0
        world.send(Tick(world.now))
    assert not list(world.recorded_planner.take_steps())
    world.see()
    assert next(step.event for step in world.recorded_planner.take_steps()) == Tick(world.now)


def test_commands_are_in_the_log() -> None:
    start = PlannerStart(max_cores=1)
    planner = RecordedPlanner(start, POLICIES["all"]())
    planner.handle(RunCommands(((CommandId("train", 3), Size(1)),)))
    planner.handle(WorkerReady(0, 1.0))
    planner.handle(Finished(0, 0, Outcome.ERROR, 2.0, "exit status 1"))
    planner.check()
    replay = Replay(start)
    lines = list(replay.lines(read_step(step.to_line()) for step in planner.take_steps()))
    assert replay.differs_at is None
    assert lines[-1].endswith(SHOWN["train-session-3-a-command"])


def test_doctor_replays_a_watch_and_says_where_it_would_decide_otherwise(tmp_path: Path) -> None:
    suite, run = make_suite(tmp_path, ONE_CASE), make_run(tmp_path, -3.0, -2.0)
    for _ in range(2):
        done = watch(run, suite, "--once", "--checkpoints", "all", "--store", str(tmp_path / "store"))
        assert done.returncode == 0, done.stdout + done.stderr
    first = lobench("doctor", "--replay", tmp_path / "store", "--start", "1")
    assert first.returncode == 0, first.stdout + first.stderr
    assert SHOWN["first-in-the-order-deadline"] in first.stdout and SHOWN["is-recorded-as-passed-after"] in first.stdout
    assert first.stdout.splitlines()[-1].endswith(SHOWN["replay-decides-on-each-as"])
    last = lobench("doctor", "--replay", tmp_path / "store")
    assert "start 2 of 2" in last.stdout and SHOWN["outcomes-known"] not in last.stdout and "gets" not in last.stdout
    assert lobench("doctor", "--replay", tmp_path / "store", "--start", "7").returncode == 2
    assert lobench("doctor", "--replay", tmp_path).returncode == 2
