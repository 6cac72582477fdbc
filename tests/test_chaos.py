"""`lobench watch` beside tasks that fork, freeze, and write where they should not: real processes."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import started
from shown import texts_of
from tiny import is_alive, make_run, make_suite, results, watch_command

SHOWN = texts_of("lobench")

CHAOS = '''

PIPE = int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].isdigit() else None  # a worker's, as its command line has it


def once(folder, name):
    """True the first time: a case whose worker died twice is poison."""
    try:
        open(os.path.join(folder, name), "x").close()
    except FileExistsError:
        return False
    return True


@configurable
class Forker(Bowl):
    """Leaves a child behind that holds everything open, and dies."""
    def __init__(self, *, folder):
        super().__init__()
        self.folder = folder
    def init(self, key):
        if once(self.folder, "forked"):
            child = os.fork()
            if not child:
                time.sleep(600)
            with open(os.path.join(self.folder, "child"), "w") as file:
                file.write(str(child))
            os._exit(7)
        return super().init(key)


@configurable
class Scribbler(Forker):
    """Takes its worker's pipe for a file."""
    def init(self, key):
        if once(self.folder, "scribbled"):
            os.write(PIPE, b"epoch 1: loss 0.3\\\\n")
            time.sleep(600)
        return Bowl.init(self, key)


@configurable
class Freezer(Forker):
    """Stops its worker in the middle of a message."""
    def init(self, key):
        if once(self.folder, "frozen"):
            os.write(PIPE, struct.pack("!i", 1000) + struct.pack("<I", 900) + b'{"kind": "result", ')
            os.kill(os.getpid(), signal.SIGSTOP)
        return Bowl.init(self, key)
'''

# The time after which a half message is nobody's, for tests that end: `python -c SHORT watch ...`.
SHORT = """
import lobench.engine.chief.observers
import lobench.engine.workers.channel
lobench.engine.chief.observers._SLOW_COMPILE_SECONDS = 0.0
lobench.engine.workers.channel.STALL_SECONDS = {seconds}
from lobench.cli import main
main()
"""

PATIENT = 600.0


class World:
    """A run of one checkpoint, a suite with a case of one chaotic task and a good one, and a watch of it."""

    def __init__(self, folder: Path, task: str, *options: str, conftest: str = "", stall_seconds: float = 1.0) -> None:
        self.folder, self.store = folder, folder / "store"
        gin = (
            "import tiny_tasks\nCase.num_inner_steps = 4\nCase.num_seeds = 1\nCase.timeout_seconds = 3600.0\n"
            f"bad/Case.task = @{task}()\nbad/{task}.folder = '{folder}'\ngood/Case.task = @Bowl()\n"
        )
        suite, run = make_suite(folder, gin=gin), make_run(folder, -3.0)
        with (suite / "tiny_tasks.py").open("a") as file:
            file.write("\nimport struct, sys\n" + CHAOS.replace("\\\\n", "\\n"))
        arguments = watch_command(run, suite, "--once", "--workers", "1", "--store", str(self.store), *options)[3:]
        (suite / "conftest.py").write_text(conftest)
        self.process = started(
            "-c",
            SHORT.format(seconds=stall_seconds),
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def ending(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=PATIENT)
        return self.process.returncode, output

    def outcomes(self) -> dict[str, str]:
        return {record["case"]["name"]: record["outcome"] for record in results(self.store)}

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + PATIENT
        while not (self.folder / name).exists():
            assert time.monotonic() < deadline and self.process.poll() is None, f"never: {name}"
            time.sleep(0.02)


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        world.process.kill()
        world.process.communicate()


def test_a_worker_that_dies_under_a_living_child_is_replaced_at_once(tmp_path: Path, worlds: list[World]) -> None:
    worlds.append(world := World(tmp_path, "Forker"))
    code, output = world.ending()
    assert code == 0, output
    assert world.outcomes() == {"bad": "passed", "good": "passed"}
    assert not is_alive(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("task", ["Scribbler", "Freezer"])
def test_what_is_no_message_is_its_workers_death_and_nothing_else(
    tmp_path: Path, worlds: list[World], task: str
) -> None:
    worlds.append(world := World(tmp_path, task))
    code, output = world.ending()
    assert code == 0, output
    assert world.outcomes() == {"bad": "passed", "good": "passed"}


def test_ctrl_c_ends_a_watch_whose_worker_is_frozen_in_the_middle_of_a_message(
    tmp_path: Path, worlds: list[World]
) -> None:
    worlds.append(world := World(tmp_path, "Freezer", stall_seconds=3600.0))
    world.wait_for("frozen")
    world.process.send_signal(signal.SIGINT)
    assert world.process.stdout is not None
    next(line for line in world.process.stdout if "press Ctrl-C again" in line)
    world.process.send_signal(signal.SIGINT)
    code, output = world.ending()
    assert code == 130, output


def test_the_first_ctrl_c_says_what_it_waits_for_and_waits_three_seconds(tmp_path: Path, worlds: list[World]) -> None:
    worlds.append(world := World(tmp_path, "Freezer", stall_seconds=3600.0))
    world.wait_for("frozen")
    world.process.send_signal(signal.SIGINT)
    code, output = world.ending()  # without a second one
    assert code == 130, output
    assert re.search(SHOWN["stopping-bad-may-end-within"], output), output
    assert "bad" not in world.outcomes()  # the next watch makes it


LEAVES = """
import os
from lobench.hookspecs import Declaration
class Leaves:
    def __init__(self, context):
        self.attempts = 0
    def deliver(self, deliveries):
        self.attempts += 1
        if self.attempts == 1:
            os._exit(0)
    def close(self):
        os._exit(0)
def lobench_result_sinks():
    return [Declaration(name="leaves", factory=":Leaves")]
"""


def test_a_sink_that_leaves_the_process_does_not_end_the_watch(tmp_path: Path, worlds: list[World]) -> None:
    worlds.append(world := World(tmp_path, "Forker", "--sink", "leaves", conftest=LEAVES))
    (tmp_path / "forked").touch()  # nothing else goes wrong
    code, output = world.ending()
    assert code == 0, output
    assert len(re.findall(SHOWN["good-was-slow-to-compile"], output)) == 1, output
    assert SHOWN["sink-leaves-systemexit-os-exit"] in output
    assert SHOWN["sink-leaves-systemexit-os-exit-0"] in output
    assert world.outcomes() == {"bad": "passed", "good": "passed"}
