"""`lobench run`: what is missing is computed, what is there is not; real workers, real ledgers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tiny import PATIENCE, make_suite, results, write_checkpoint

from lobench.engine.store.experiments import Membership
from lobench.engine.store.ledger import Ledger

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
adam/Method.optimizer = @adam()
adam/adam.learning_rate = 0.1
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
learned/Method.checkpoint = "theta.npz"
learned/Case.learned_optimizer = @LearnableSGD()
"""


def run(folder: Path, *options: str, file: str = "x.gin") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "lobench.cli", "run", str(folder / file), "--workers", "1", *options]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


def blocks(store: Path) -> Counter[tuple[str, str, tuple[int, ...]]]:
    """Returns (method's label, case, seeds) of every evaluation; each must be there once."""
    return Counter(
        (record["checkpoint"]["label"], record["case"]["name"], tuple(record["seeds"])) for record in results(store)
    )


def memberships(store: Path) -> list[list[Membership]]:
    """Returns the members of each form of each experiment, the last one last."""
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        return [ledger.memberships(form.id) for form in ledger.experiments()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    write_checkpoint(tmp_path / "theta.npz", -2.0)
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path


def test_methods_sessions_and_another_experiment_add_what_is_missing(folder: Path) -> None:
    store = folder / ".lobench" / "x"
    first = run(folder)
    assert first.returncode == 0, first.stdout + first.stderr
    cells = {(method, case) for method in ("adam", "sgd", "learned") for case in ("a", "b")}
    assert blocks(store) == {(*cell, (0, 1)): 1 for cell in cells}
    members = memberships(store)[-1]
    assert len(members) == 12 and {(one.method, one.session) for one in members} == {
        (method, session) for method in ("adam", "sgd", "learned") for session in (0, 1)
    }
