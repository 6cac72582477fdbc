"""What is wrong before or while `lobench run` runs is one clear line, and nothing is lost."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from commands import Done, lobench
from disks import MOUNTING, small_disk
from shown import texts_of
from tiny import ONE_CASE, PATIENCE, content, is_alive, make_suite, write_checkpoint

from lobench.core.experiment import SessionMember
from lobench.engine.store.ledger import Ledger
from lobench.engine.store.ledger_tables import SCHEMA_VERSION

SHOWN = texts_of("run")

SUITE = 'Experiment.suites = ["tiny"]\nExperiment.num_sessions = 2\n'
SGD = "sgd/Method.optimizer = @sgd()\nsgd/sgd.learning_rate = 0.1\n"
ADAM = "adam/Method.optimizer = @adam()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(SUITE + SGD + ADAM)
    return tmp_path


def run(folder: Path, store: Path | str = "store") -> Done:
    return lobench("run", "x.gin", "--store", store, "--workers", "1", "--executor", "inline", cwd=folder)


def start(folder: Path, store: Path | str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "lobench.cli", "run", "x.gin", "--store", str(store), "--workers", "1"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def only_line(errors: str) -> str:
    (line,) = errors.splitlines()
    return line


@contextlib.contextmanager
def looked_at(store: Path) -> Iterator[Ledger]:
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        yield ledger


def members(store: Path) -> list[SessionMember]:
    with looked_at(store) as ledger:
        return ledger.memberships(ledger.experiments()[-1].id)


def test_two_methods_that_are_one_subject_are_said_and_computed_once(folder: Path) -> None:
    (folder / "x.gin").write_text(SUITE + SGD + SGD.replace("sgd/", "again/"))
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert SHOWN["sgd-and-again-are-the"] in done.stdout + done.stderr
    with looked_at(folder / "store") as ledger:
        assert len(list(ledger.evaluations())) == 2  # one for each case
    found = {method: [one for one in members(folder / "store") if one.method == method] for method in ("sgd", "again")}
    assert [len(own) for own in found.values()] == [4, 4]
    assert {one.evaluation for one in found["sgd"]} == {one.evaluation for one in found["again"]}


def test_a_store_of_a_newer_schema_is_refused(folder: Path) -> None:
    assert run(folder).returncode == 0
    with contextlib.closing(sqlite3.connect(folder / "store" / "ledger.sqlite")) as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION + 1),))
        database.commit()
    before = (folder / "store" / "ledger.sqlite").read_bytes()
    (folder / "x.gin").write_text(SUITE + SGD)
    done = run(folder)
    assert done.returncode == 2 and SHOWN["upgrade-lobench"] in only_line(done.stderr)
    assert (folder / "store" / "ledger.sqlite").read_bytes() == before


# A meta-training that writes a checkpoint and then waits for ever; where it finds one, it goes on and ends.
TRAINER = """
import os, signal, sys
import numpy as np
folder = sys.argv[1]
first, last = (os.path.join(folder, f"theta_{step}.npz") for step in (1, 2))
resumes = os.path.exists(first)
path = last if resumes else first
with open(os.path.join(folder, "config.gin"), "w") as file:
    file.write("Case.learned_optimizer = @LearnableSGD()\\n")
np.savez(path, log_lr=np.float32(-2.0))
open(path + ".done", "w").close()
if not resumes:
    with open("begun.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("begun.new", "begun")
    signal.pause()
"""


def test_a_store_that_another_run_holds_and_a_meta_training_that_ends_with_its_chief_and_goes_on(folder: Path) -> None:
    (folder / "train.py").write_text(TRAINER)
    mine = f'{SUITE}mine/Method.command = "{sys.executable} train.py {{folder}}"\nExperiment.num_sessions = 1\n'
    (folder / "x.gin").write_text(mine)
    holder = start(folder, "store")
    while not (folder / "begun").exists() and holder.poll() is None:
        psutil.wait_procs([psutil.Process(holder.pid)], timeout=0.05)
    trainer = psutil.Process(int((folder / "begun").read_text()))

    (folder / "x.gin").write_text(mine + SGD)
    done = run(folder)
    assert done.returncode == 2 and "store" in (line := only_line(done.stderr)) and str(holder.pid) in line, line
    assert done.stdout == "" and holder.poll() is None and trainer.is_running(), "who holds it goes on"

    holder.kill()
    holder.communicate(timeout=PATIENCE)
    psutil.wait_procs([trainer], timeout=PATIENCE)
    assert not is_alive(trainer.pid), "a meta-training ends with its chief"
    (first,) = (folder / "store" / "commands").glob("*/0/theta_1.npz")
    written = first.stat().st_mtime_ns
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nmine-0 done" in done.stdout and first.stat().st_mtime_ns == written, "it went on where it was"
    assert {one.method for one in members(folder / "store")} == {"mine", "sgd"}


# The chief fills the disk that its environment names when its first result is recorded.
FILLS = """
import os
def lobench_evaluation_finished(event):
    disk = os.environ.get("FILLED_DISK", "")
    ballast = os.path.join(disk, "ballast")
    if disk and not os.path.exists(ballast):
        found = os.statvfs(disk)
        with open(ballast, "wb") as file:
            file.write(bytes(found.f_bavail * found.f_frsize))
"""


@MOUNTING
def test_a_disk_that_fills_in_mid_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(folder / "theta.npz", -2.0)
    learned = 'learned/Method.checkpoint = "theta.npz"\nlearned/Case.learned_optimizer = @LearnableSGD()\n'
    (folder / "x.gin").write_text(SUITE + SGD + ADAM + learned)
    (folder / "tiny" / "tiny.gin").write_text(ONE_CASE)
    (folder / "tiny" / "conftest.py").write_text(FILLS)
    assert run(folder, "undisturbed").returncode == 0
    with small_disk(folder / "disk", "50m") as disk:
        store = disk.path / "store"
        monkeypatch.setenv("FILLED_DISK", str(disk.path))
        output, errors = (chief := start(folder, store)).communicate(timeout=PATIENCE)
        assert chief.returncode == 2 and SHOWN["free-some-space"] in only_line(errors), output + errors
        disk.empty()
        monkeypatch.delenv("FILLED_DISK")
        with looked_at(store) as ledger:
            num_done = len(list(ledger.evaluations()))
        assert 1 <= num_done < 3
        done = run(folder, store)
        assert done.returncode == 0 and f"3 of 3 evaluations, {3 - num_done} passed" in done.stdout, done.stdout
        assert content(store) == content(folder / "undisturbed")
        assert members(store) == members(folder / "undisturbed")
