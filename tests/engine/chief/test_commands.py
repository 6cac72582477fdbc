"""What becomes of a command's folder, its state and its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from shown import texts_of
from tiny import write_checkpoint

from lobench.core.experiment import Method
from lobench.core.planner import CommandId, Size
from lobench.engine.checkpoints.readers import load_readers
from lobench.engine.chief.commands import CommandRun, CommandRuns
from lobench.engine.store.experiments import TrialRow
from lobench.plugins import load_plugins

SHOWN = texts_of("chief")

READERS = load_readers(load_plugins(), allow_pickle=False)
COMMAND = CommandId("mine", 0)


class World:
    """One session of a command, its folder, and what is told of it."""

    def __init__(self, folder: Path, checkpoints: str = "last") -> None:
        self.folder, self.trials, self.output = folder / "mine" / "0", list[TrialRow](), list[str]()
        method = Method(
            name="mine",
            command="python t.py {session} {folder} {gin}",
            checkpoints=checkpoints,
            trainer_bindings=("train.sigma = 0.1",),
        )
        log = folder / "logs" / "mine-0"
        self.run = CommandRun(method=method, session=0, folder=self.folder, working_folder=folder, log=log)

    def start(self) -> CommandRuns:
        states = {CommandId(one.method, one.number): one.state for one in self.trials}
        return CommandRuns([self.run], READERS, states=states, record=self.trials.append, log=self.output.append)

    @property
    def states(self) -> list[str]:
        return [one.state for one in self.trials]


def found(runs: CommandRuns) -> list[str]:
    return [Path(seen.uri).name for _, seen in runs.new_checkpoints()]


def test_the_last_checkpoint_of_a_command_that_is_done_is_evaluated(tmp_path: Path) -> None:
    world = World(tmp_path)
    runs = world.start()
    assert runs.new_commands() == [((COMMAND, Size(1)),)]
    message = runs.begin_command(COMMAND, 7)
    gin = world.folder.parent / "method.gin"
    assert (message.lease, message.words[1:]) == (7, ("t.py", "0", str(world.folder), str(gin)))
    assert gin.read_text() == "train.sigma = 0.1\n"
    write_checkpoint(world.folder / "theta_1.npz", -1.0)
    assert found(runs) == [] and runs.is_open
    write_checkpoint(world.folder / "theta_10.npz", -1.0)
    runs.end_command(COMMAND, "")
    assert found(runs) == ["theta_10.npz"] and not runs.is_open
    assert world.states == ["waiting", "running", "done"]
    again = world.start()  # what is done is not run again, and its checkpoint is known
    assert again.new_commands() == [] and found(again) == ["theta_10.npz"]
    assert set(world.states[3:]) <= {"done"}


def test_all_checkpoints_come_while_it_runs(tmp_path: Path) -> None:
    world = World(tmp_path, "all")
    runs = world.start()
    runs.begin_command(COMMAND, 0)
    write_checkpoint(world.folder / "theta_1.npz", -1.0)
    assert found(runs) == ["theta_1.npz"] and found(runs) == []
    write_checkpoint(world.folder / "theta_2.npz", -1.0)
    runs.end_command(COMMAND, "")
    assert found(runs) + found(runs) == ["theta_2.npz"] and not runs.is_open


@pytest.mark.parametrize(
    ("problem", "state", "line"),
    [
        ("exited with status 3: no data", "failed", "exited with status 3: no data"),
        ("", "infeasible", SHOWN["it-wrote-no-checkpoint"]),
    ],
)
def test_a_command_without_a_result_ends_nothing_else(tmp_path: Path, problem: str, state: str, line: str) -> None:
    world = World(tmp_path)
    runs = world.start()
    runs.begin_command(COMMAND, 0)
    runs.end_command(COMMAND, problem)
    assert world.states[-1] == state and line in world.output[-1] and not runs.is_open
    assert world.start().new_commands() == []


def test_a_folder_is_emptied_only_where_it_holds_no_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start().begin_command(COMMAND, 0)
    (world.folder / "half").write_text("x")
    runs = world.start()
    runs.begin_command(COMMAND, 1)
    assert list(world.folder.iterdir()) == []
    write_checkpoint(world.folder / "theta_1.npz", -1.0)
    (world.folder / "state").write_text("where it goes on")
    runs.chief_ended()
    assert world.states[-1] == "waiting"
    world.start().begin_command(COMMAND, 2)
    assert (world.folder / "state").exists()


@pytest.mark.parametrize("has_good", [True, False])
def test_a_checkpoint_that_is_half_written_at_the_end_is_said(tmp_path: Path, has_good: bool) -> None:
    world = World(tmp_path)
    runs = world.start()
    runs.begin_command(COMMAND, 0)
    write_checkpoint(world.folder / "theta_1.npz", -1.0)
    half = (world.folder / "theta_1.npz").read_bytes()[:100]
    (world.folder / "theta_2.npz").write_bytes(half)
    if not has_good:
        (world.folder / "theta_1.npz").unlink()
    runs.end_command(COMMAND, "")
    assert world.states[-1] == ("done" if has_good else "infeasible")
    assert SHOWN["is-left-out-it-is"].format(path=world.folder / "theta_2.npz") in world.output[-1]
    assert found(runs) == (["theta_1.npz"] if has_good else [])
