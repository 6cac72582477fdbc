"""A search on a Ray of two nodes whose chief is killed: trials and best are those of an undisturbed one on one node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tiny import KILLED_CHIEF, PATIENCE, content, make_suite
from two_nodes import Cluster

from lobench.engine.store.experiments import TrialRow
from lobench.engine.store.ledger import Ledger

SEARCH = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
tuned/Method.optimizer = @momentum()
tuned/Method.search = @random()
tuned/Method.num_trials = 4
tuned/Method.wave = 2
tuned/Method.median_stopping = 0.5
tuned/momentum.learning_rate = @rate/Real()
rate/Real.low = 1e-3
rate/Real.high = 0.4
rate/Real.scale = "log"
"""


def trials(store: Path) -> list[TrialRow]:
    ledger = Ledger.open(store, read_only=True)
    try:
        return ledger.trials(ledger.experiments()[-1].id)
    finally:
        ledger.close()


def test_a_search_that_is_killed_on_two_nodes_has_the_trials_of_an_undisturbed_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(SEARCH)
    assert cluster.second

    def lobench(store: str, *options: str, code: int, run: tuple[str, ...] = ("-m", "lobench.cli")) -> None:
        command = [sys.executable, *run, "run", "x.gin", "--store", store, *options]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=cluster.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr

    on_ray = ("--executor", "ray", "--ray-address", cluster.address)
    lobench("undisturbed", "--executor", "inline", "--workers", "1", code=0)
    lobench("killed", *on_ray, code=-9, run=("-c", KILLED_CHIEF, "7", "0"))
    lobench("killed", *on_ray, code=0)
    assert [one.state for one in trials(tmp_path / "killed")].count("stopped") == 2
    assert trials(tmp_path / "killed") == trials(tmp_path / "undisturbed")
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed"), "each evaluation is there once"
