"""Scripts as methods of an experiment: real processes that write curves, real kills of the chief, real stops."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import lobench
from tiny import KILLED_CHIEF, PATIENCE, content, make_suite, results

from lobench.core.trials import FIRST_REPORT_SEED
from lobench.engine.store.experiments import Membership, TrialRow
from lobench.engine.store.ledger import Ledger

# Gradient descent on a quadratic; says in its folder that it began, and that it came to its end.
NUMPY = """
import argparse, os, time
import numpy as np
from lobench.curves import Logger
parser = argparse.ArgumentParser()
for name, kind in (("--seed", int), ("--lr", float), ("--out", str)):
    parser.add_argument(name, type=kind)
asked = parser.parse_args()
open(os.path.join(asked.out, "began"), "a").write("x")
weights = np.random.default_rng(asked.seed).normal(size=3)
with Logger(os.path.join(asked.out, "curves.jsonl")) as log:
    for step in range(41):
        if step % 4 == 0:
            log(step, {"val/loss": (weights**2).sum()})
            time.sleep(0.02)
        weights = weights - asked.lr * np.array([1.0, 0.3, 0.1]) * weights
open(os.path.join(asked.out, "ended"), "a").write("x")
"""
TORCH = """
import argparse, os
import torch
from lobench.curves import Logger
parser = argparse.ArgumentParser()
for name, kind in (("--seed", int), ("--lr", float), ("--out", str)):
    parser.add_argument(name, type=kind)
asked = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(asked.seed)
inputs = torch.randn(32, 4)
targets = inputs @ torch.randn(4, 1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=asked.lr, momentum=0.5)
with Logger(os.path.join(asked.out, "curves.jsonl")) as log:
    for step in range(41):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        if step % 4 == 0:
            log(step, {"val/loss": loss})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
open(os.path.join(asked.out, "ended"), "a").write("x")
"""
SCRIPT = """
mine/Method.command = "python train.py --seed {session} --lr {lr} --out {out}"
mine/Method.curves = "{out}/curves.jsonl"
"""
SEARCH = f"""
Experiment.num_sessions = 2
{SCRIPT}
mine/Method.search = @random()
mine/Method.num_trials = 12
mine/Method.wave = 4
mine/Method.until_step = 40
mine/Method.stop_hopeless = 0.3
mine/Method.report_sessions = 1
mine/lr = @rate/Real()
rate/Real.low = 1e-3
rate/Real.high = 1.0
rate/Real.scale = "log"
"""


def run(folder: Path, *options: str, file: str = "x.gin", store: str = "store", code: int = 0) -> str:
    """Runs with a chief in this process and workers of their own."""
    done = lobench("run", file, "--store", store, "--workers", "2", *options, cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextlib.contextmanager
def looked_at(store: Path) -> Any:
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        yield ledger, ledger.experiments()[-1].id


def trials(store: Path) -> list[TrialRow]:
    with looked_at(store) as (ledger, form):
        return ledger.trials(form)


def members(store: Path) -> list[Membership]:
    with looked_at(store) as (ledger, form):
        return ledger.memberships(form)


def finals(store: Path) -> dict[tuple[str, int], float]:
    """Returns the last value of each member."""
    with looked_at(store) as (ledger, form):
        rows = {(row.key.checkpoint_sha256, row.key.seed_block): row for row in ledger.evaluations()}
        found = {}
        for one in ledger.memberships(form):
            curves = rows[one.evaluation.sha256, one.evaluation.block].curves
            found[one.method, one.session] = curves.final("val/loss")[0]
        return found


def script(folder: Path, text: str, gin: str) -> None:
    (folder / "train.py").write_text(text)
    (folder / "x.gin").write_text(gin)


def no_process_has(text: str) -> bool:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if text in " ".join(process.cmdline()):
                return False
    return True


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_search_over_scripts_that_is_killed_three_times_is_that_of_an_undisturbed_run(
    tmp_path: Path, library: str
) -> None:
    if library == "torch":
        pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    gin = SEARCH.replace("num_sessions = 2", "num_sessions = 1") if library == "torch" else SEARCH
    script(tmp_path, {"numpy": NUMPY, "torch": TORCH}[library], gin)
    run(tmp_path, store="undisturbed")
    for commit, after in (("9", "0"), ("20", "1"), ("30", "0")):
        words = ["run", "x.gin", "--workers", "2", "--store", "killed"]
        command = [sys.executable, "-c", KILLED_CHIEF, commit, after, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == -9, done.stdout + done.stderr
    run(tmp_path, store="killed")
    found = [row for row in trials(tmp_path / "killed") if row.method == "mine"]
    assert len(found) == 12 and {row.state for row in found} == {"done", "stopped"}
    assert sum(row.state == "stopped" for row in found) >= 4
    assert trials(tmp_path / "killed") == trials(tmp_path / "undisturbed")
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed")
    assert set(members(tmp_path / "killed")) == set(members(tmp_path / "undisturbed"))
    assert no_process_has(str(tmp_path / "killed"))
