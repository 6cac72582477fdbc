"""Methods that are meta-trainings: a trainer that is killed, fails, and writes no checkpoint."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from commands import lobench
from shown import texts_of
from tiny import PATIENCE, make_suite

from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("run")

# Written as `examples/meta_train.py` writes, in a moment and without jax.
TRAINER = """
import argparse, os, time
from pathlib import Path
import numpy as np
parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
for name in ("--seed", "--outer-steps", "--checkpoints"):
    parser.add_argument(name, type=int)
given = parser.parse_args()
every = given.outer_steps // given.checkpoints
given.folder.mkdir(parents=True, exist_ok=True)
(given.folder / "config.gin").write_text("Case.learned_optimizer = @LearnableSGD()")
with (given.folder / "meta_loss.csv").open("w", buffering=1) as log:
    log.write("outer_step,meta_loss\\n")
    for step in range(given.outer_steps + 1):
        if step % every == 0:
            path = given.folder / f"theta_{step}.npz"
            np.savez(path, log_lr=np.float32(-1 - given.seed - step / 2))
            path.with_name(path.name + ".done").touch()
        log.write(f"{step},0.500000\\n")
        time.sleep(0.05)
"""
# Of session 0 `{session}000001` is one outer step, and of session 1 a million: that one is killed. A run that is to
# write no checkpoint after its initial one divides by zero before it writes that.
EXPERIMENT = """
Experiment.suites = ["tiny/tiny.gin"]
Experiment.num_sessions = 2
killed/Method.command = "python train.py {folder} --seed {session} --outer-steps {session}000001 --checkpoints 1"
failing/Method.command = "python train.py {folder} --seed {session} --outer-steps 1 --checkpoints {session}"
failing/Method.checkpoints = "all"
empty/Method.command = "python train.py {folder} --help"
"""
GIN = "import tiny_tasks\nCase.num_inner_steps = 10\nCase.num_seeds = 2\na/Case.task = @Bowl()\n"
STATES = {
    "killed-0": "done",
    "killed-1": "failed: killed by signal 9",
    "failing-0": "failed: exited with status 1: ZeroDivisionError",
    "failing-1": "done",
    "empty-0": "infeasible: it wrote no checkpoint",
    "empty-1": "infeasible: it wrote no checkpoint",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path, GIN)
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path


def start(folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "lobench.cli", "run", "x.gin", "--workers", "2", "--store", "store"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill_trainer(chief: subprocess.Popen[str]) -> None:
    """Kills the training of a million steps once it has written its first checkpoint."""
    while chief.poll() is None:
        for process in psutil.Process(chief.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                words = process.cmdline()
                if "train.py" in words and "1000001" in words:
                    (place,) = (Path(word) for word in words if "/killed-" in word)
                    if (place / "meta_loss.csv").is_file() and len((place / "meta_loss.csv").read_text()) > 30:
                        process.kill()
                        return
        psutil.wait_procs([psutil.Process(chief.pid)], timeout=0.05)


def trained(store: Path) -> dict[str, int]:
    """Returns when each session's output was last written."""
    files = [store / "logs" / f"{name}.{kind}" for name in STATES for kind in ("out", "err")]
    return {file.name: file.stat().st_mtime_ns for file in files}


def test_a_meta_training_that_is_killed_or_fails_ends_nothing_else_and_a_restart_repeats_nothing(folder: Path) -> None:
    chief = start(folder)
    kill_trainer(chief)
    output, _ = chief.communicate(timeout=PATIENCE)
    assert chief.returncode == 3, output
    for name, state in STATES.items():
        assert f"\n{name} {state}" in output, output
    with contextlib.closing(Ledger.open(folder / "store", read_only=True)) as ledger:
        (form,) = ledger.experiments()
        members = ledger.memberships(form.id)
        num_evaluations = len(list(ledger.evaluations()))
    # The last checkpoint of one, and both of the other, each on both sessions of the case.
    assert sorted((one.method, one.trial, one.session) for one in members) == [
        *(("failing", 1, session) for session in (0, 0, 1, 1)),
        *(("killed", 0, session) for session in (0, 1)),
    ]
    assert num_evaluations == 3

    before = trained(folder / "store")
    again = lobench("run", "x.gin", "--workers", "2", "--store", "store", cwd=folder)
    assert again.returncode == 3 and SHOWN["nothing-new"] in again.stdout, again.stdout + again.stderr
    assert trained(folder / "store") == before
