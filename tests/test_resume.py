"""A training that is killed goes on from its last saved state: real workers, a real chief, real files."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from commands import Done
from shown import texts_of
from tiny import PATIENCE, make_run, make_suite, watch, watch_command

from lobench.core.result import Curves

SHOWN = texts_of("lobench")

TASKS = '''

import itertools, numpy as np
from lobench.inner.task import Datasets, IteratorDataset

@configurable
class Fed(Bowl):
    """Its iterator ends its worker at a batch, the first `times` times, or waits there until a file says to go on."""
    def __init__(self, *, folder="", times=0, at=91):
        super().__init__()
        self.datasets = Datasets(train=IteratorDataset(self.batches))
        self.folder, self.times, self.at = folder, times, at
    def batches(self, seed):
        for index in itertools.count():
            if index == self.at and self.folder:
                self.meet()
            yield np.float32(np.sin(seed + index))
    def meet(self):
        gate = os.path.join(self.folder, "gate")
        while self.times < 0 and not os.path.exists(gate):
            time.sleep(0.02)
        if self.times > 0:
            with open(os.path.join(self.folder, "counter"), "a") as file:
                file.write("x")
            if os.path.getsize(os.path.join(self.folder, "counter")) <= self.times:
                os.kill(os.getpid(), signal.SIGKILL)
    def loss(self, params, key, data):
        return jnp.sum((params - data) ** 2)
'''

GIN = """
import tiny_tasks
Case.num_inner_steps = 100
Case.num_seeds = 1
Case.eval_every = 20
Case.eval_batches = 1
Case.save_every = 10
a/Case.task = @Fed()
"""


def make(folder: Path, extra: str = "") -> tuple[Path, Path]:
    suite = make_suite(folder, GIN, extra)
    with (suite / "tiny_tasks.py").open("a") as file:
        file.write(TASKS)
    return make_run(folder, -1.0), suite


def watched(run: Path, suite: Path, *options: str, executor: str = "inline") -> Done:
    """Runs a watch to its end, in this process by default."""
    return watch(run, suite, "--once", "--executor", executor, "--store", str(run / "store"), *options)


def curves_in(run: Path) -> list[Curves]:
    with sqlite3.connect(run / "store" / "ledger.sqlite") as ledger:
        rows = ledger.execute("SELECT payload FROM evaluations ORDER BY id").fetchall()
    return [Curves.from_payload(payload) for (payload,) in rows]


def states_of(run: Path) -> list[str]:
    folder = run / "store" / "states"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def metrics(curves: Curves) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in curves.metrics.items()}  # type: ignore[misc]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    """What comes of it without any interruption."""
    run, suite = make(tmp_path_factory.mktemp("whole"))
    done = watched(run, suite)
    assert done.returncode == 0, done.stdout + done.stderr
    (curves,) = curves_in(run)
    assert curves.resumed_at == 0 and states_of(run) == []
    return metrics(curves)


def test_a_workers_death_at_ninety_percent_costs_at_most_one_interval(
    tmp_path: Path, whole: dict[str, list[float]]
) -> None:
    run, suite = make(tmp_path, f"Fed.folder = '{tmp_path}'\nFed.times = 1\n")
    done = watched(run, suite, executor="local")
    assert done.returncode == 0, done.stdout + done.stderr
    (curves,) = curves_in(run)
    # The batch that it dies of is read while the steps before compute: the state of step 90 may not be there yet.
    assert curves.resumed_at in (80, 90) and metrics(curves) == whole
    # Killed while it wrote a state, it leaves a temporary file, which the next watch removes.
    states = [name for name in states_of(run) if not name.startswith(".tmp-")]
    assert states == [], "freed, since the result is durable"


def begun(run: Path, suite: Path) -> subprocess.Popen[str]:
    """Starts a watch, and returns it when the state of step 90 is there and its worker waits."""
    process = subprocess.Popen(
        watch_command(run, suite, "--once", "--workers", "1", "--store", str(run / "store")),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=suite.parent,
    )
    deadline = time.monotonic() + PATIENCE
    while not any(".90." in name for name in states_of(run)):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.05)  # looks at a folder
    return process


@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_who_ends_the_watch_loses_at_most_one_interval(tmp_path: Path, how: str, whole: dict[str, list[float]]) -> None:
    run, suite = make(tmp_path, f"Fed.folder = '{tmp_path}'\nFed.times = -1\n")
    process = begun(run, suite)
    if how == "killed":
        process.kill()
    else:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        while "stopping: " not in (line := process.stdout.readline()):
            assert line
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    (left,) = states_of(run)
    (tmp_path / "gate").touch()
    done = watched(run, suite)
    assert done.returncode == 0, done.stdout + done.stderr
    (curves,) = curves_in(run)
    assert curves.resumed_at == 90 and metrics(curves) == whole
    assert states_of(run) == [] and ".90." in left


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_state_is_computed_anew_and_that_is_said(
    tmp_path: Path, damage: str, whole: dict[str, list[float]]
) -> None:
    run, suite = make(tmp_path, f"Fed.folder = '{tmp_path}'\nFed.times = -1\n")
    process = begun(run, suite)
    process.kill()
    process.communicate(timeout=PATIENCE)
    (name,) = states_of(run)
    path = run / "store" / "states" / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data if damage == "flipped" else data[:-7])
    (path.parent / ".tmp-left").write_bytes(b"half")
    (tmp_path / "gate").touch()
    done = watched(run, suite)
    assert done.returncode == 0, done.stdout + done.stderr
    output = [line for line in (done.stdout + done.stderr).splitlines() if "computed anew" in line]
    assert len(output) == 1 and SHOWN["tiny-a-seeds-0-1"] in output[0]
    (curves,) = curves_in(run)
    assert curves.resumed_at == 0 and metrics(curves) == whole and states_of(run) == []


def test_a_phase_that_is_appended_goes_on_from_the_kept_state(tmp_path: Path) -> None:
    phases = "warm/Phase.num_inner_steps = 60\ncool/Phase.num_inner_steps = 40\n"
    run, suite = make(tmp_path, phases + "Case.keep_state = True\nCase.phases = [@warm/Phase()]\n")
    assert watched(run, suite).returncode == 0
    (kept,) = states_of(run)
    assert kept.endswith(".60.kept.safetensors")
    text = (suite / "tiny.gin").read_text()
    (suite / "tiny.gin").write_text(text.replace("[@warm/Phase()]", "[@warm/Phase(), @cool/Phase()]"))
    done = watched(run, suite)
    assert done.returncode == 0, done.stdout + done.stderr
    short, long = curves_in(run)
    assert (short.resumed_at, long.resumed_at) == (0, 60)
    scratch_run, scratch = make(tmp_path / "scratch", phases + "Case.phases = [@warm/Phase(), @cool/Phase()]\n")
    assert watched(scratch_run, scratch).returncode == 0
    (expected,) = curves_in(scratch_run)
    assert expected.resumed_at == 0 and metrics(long) == metrics(expected)
    assert [name.split(".")[-2] for name in states_of(run)] == ["kept", "kept"]


def test_a_state_of_a_result_that_is_durable_is_swept(tmp_path: Path, whole: dict[str, list[float]]) -> None:
    """As one is that a chief left, killed between its commit and the removal."""
    run, suite = make(tmp_path, f"Fed.folder = '{tmp_path}'\nFed.times = -1\n")
    process = begun(run, suite)
    (name,) = states_of(run)
    path = run / "store" / "states" / name
    content = path.read_bytes()
    (tmp_path / "gate").touch()
    process.communicate(timeout=PATIENCE)
    assert states_of(run) == []
    path.write_bytes(content)
    assert watched(run, suite).returncode == 0
    assert states_of(run) == []
