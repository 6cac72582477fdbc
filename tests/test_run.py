"""`lobench run`: what is missing is computed, what is there is not; real workers, real ledgers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import KILLED_CHIEF, PATIENCE, content, make_suite, write_checkpoint

from lobench.core.experiment import Member
from lobench.engine.store.ledger import Ledger

SUITE = 'Experiment.suites = ["tiny"]\n'
EXPERIMENT = f"""{SUITE}
Experiment.num_sessions = 2
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
learned/Method.checkpoint = "theta.npz"
learned/Case.learned_optimizer = @LearnableSGD()
"""
ADAM = "adam/Method.optimizer = @adam()\n"

# `python train.py KIND SESSION FOLDER`: writes how often it ran, and what a trainer of that kind writes.
TRAINER = """
import os, sys
import numpy as np
kind, session, folder = sys.argv[1:4]
with open(f"ran-{kind}-{session}", "a") as file:
    file.write("x")
if kind == "failing":
    sys.exit("no such data")
if kind == "killed" and session == "0":
    os.kill(os.getpid(), 9)
if kind != "empty":
    with open(os.path.join(folder, "config.gin"), "w") as file:
        file.write("Case.learned_optimizer = @LearnableSGD()\\n")
    for step in (1, 2):
        path = os.path.join(folder, f"theta_{step}.npz")
        np.savez(path, log_lr=np.float32(-2.0 - 0.1 * step - int(session)))
        open(path + ".done", "w").close()
"""
COMMANDS = f"""{SUITE}
Experiment.num_sessions = 2
good/Method.command = "python train.py good {{session}} {{folder}}"
good/Method.checkpoints = "all"
killed/Method.command = "python train.py killed {{session}} {{folder}}"
failing/Method.command = "python train.py failing {{session}} {{folder}}"
empty/Method.command = "python train.py empty {{session}} {{folder}}"
"""


def run(folder: Path, *options: str, file: str = "x.gin") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "lobench.cli", "run", str(folder / file), "--workers", "1", *options]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


def num_new(done: subprocess.CompletedProcess[str]) -> int:
    """Returns how many evaluations a run computed, as its last line says."""
    assert done.returncode in (0, 3), done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("done: "), done.stdout
    return 0 if "nothing new" in last else int(last.split("evaluations, ")[1].split(" passed")[0])


def members(store: Path, name: str) -> list[Member]:
    """Returns the members of the form of an experiment that was run last."""
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        return ledger.memberships([form.id for form in ledger.experiments() if form.name == name][-1])


def sessions(found: list[Member]) -> set[tuple[str, int, str]]:
    return {(one.method, one.session, str(one.evaluation.block)) for one in found}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    write_checkpoint(tmp_path / "theta.npz", -2.0)
    (tmp_path / "train.py").write_text(TRAINER)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path


def test_methods_sessions_and_experiments_add_exactly_what_is_missing(folder: Path) -> None:
    store = folder / "store"
    assert num_new(run(folder, "--store", "store")) == 4
    assert num_new(run(folder, "--store", "store")) == 0
    first = members(store, "x")
    assert sessions(first) == {(method, session, "0+2") for method in ("sgd", "learned") for session in (0, 1)}

    (folder / "x.gin").write_text(EXPERIMENT + ADAM)
    assert num_new(run(folder, "--store", "store")) == 2
    assert set(first) < set(members(store, "x"))

    more = ("--store", "store", "--gin-param", "Experiment.num_sessions = 3")
    assert num_new(run(folder, *more)) == 6
    assert ("adam", 2, "2+1") in sessions(members(store, "x")) and len(members(store, "x")) == 3 * 2 * 3

    (folder / "x.gin").write_text(EXPERIMENT)  # a method less, and a session less
    assert num_new(run(folder, "--store", "store")) == 0
    assert set(members(store, "x")) == set(first)

    (folder / "y.gin").write_text(EXPERIMENT.split("learned/")[0] + ADAM)
    assert num_new(run(folder, "--store", "store", file="y.gin")) == 0
    shared = {one for one in members(store, "y") if one.method == "sgd"}
    assert shared == {one for one in first if one.method == "sgd"} and len(members(store, "y")) == 8


def test_commands_that_fail_end_nothing_else_and_a_restart_repeats_nothing(folder: Path) -> None:
    (folder / "c.gin").write_text(COMMANDS)
    done = run(folder, "--store", "store", file="c.gin")
    assert done.returncode == 3, done.stdout + done.stderr
    states = {
        "good-0": "done",
        "good-1": "done",
        "killed-0": "failed: killed by signal 9",
        "killed-1": "done",
        "failing-0": "failed: exited with status 1: no such data",
        "empty-0": "infeasible: it wrote no checkpoint",
    }
    for name, state in states.items():
        assert f"\n{name} {state}" in done.stdout
    found = members(folder / "store", "c")
    assert {(one.method, one.trial) for one in found} == {("good", 0), ("good", 1), ("killed", 1)}
    assert len(found) == 5 * 2 * 2  # two checkpoints of both sessions, and one: on two cases of two sessions
    again = run(folder, "--store", "store", file="c.gin")
    assert again.returncode == 3 and num_new(again) == 0, again.stdout
    assert {file.name: file.read_text() for file in folder.glob("ran-*")} == {
        f"ran-{kind}-{session}": "x" for kind in ("good", "killed", "failing", "empty") for session in (0, 1)
    }


def test_a_chief_that_is_killed_again_and_again_ends_with_the_ledger_of_an_undisturbed_run(folder: Path) -> None:
    (folder / "x.gin").write_text(EXPERIMENT + ADAM)
    assert num_new(run(folder, "--store", "undisturbed")) == 6
    words = ["run", str(folder / "x.gin"), "--workers", "1", "--store", "killed"]
    for number, after in (("2", "0"), ("4", "1"), ("3", "0")):
        command = [sys.executable, "-c", KILLED_CHIEF, number, after, *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == -9, done.stdout + done.stderr
    assert run(folder, "--store", "killed").returncode == 0
    assert content(folder / "killed") == content(folder / "undisturbed")
    assert members(folder / "killed", "x") == members(folder / "undisturbed", "x")
