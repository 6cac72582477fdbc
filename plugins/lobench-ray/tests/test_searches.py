"""A search on a Ray of two nodes whose chief is killed: trials and best are those of an undisturbed one on one node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from curve_scripts import NUMPY
from curve_scripts import SEARCH as SCRIPT_SEARCH
from tiny import KILLED_CHIEF, PATIENCE, content, make_suite
from two_nodes import Cluster

from lobench.engine.store.experiments import Membership, TrialRow
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


def lobench(
    cluster: Cluster,
    folder: Path,
    store: str,
    *options: str,
    code: int = 0,
    run: tuple[str, ...] = ("-m", "lobench.cli"),
) -> None:
    done = subprocess.run(
        [sys.executable, *run, "run", "x.gin", "--store", store, *options],
        cwd=folder,
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr


def members(store: Path) -> set[Membership]:
    ledger = Ledger.open(store, read_only=True)
    try:
        return set(ledger.memberships(ledger.experiments()[-1].id))
    finally:
        ledger.close()


def test_a_search_that_is_killed_on_two_nodes_has_the_trials_of_an_undisturbed_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    make_suite(tmp_path)
    (tmp_path / "x.gin").write_text(SEARCH)
    assert cluster.second

    on_ray = ("--executor", "ray", "--ray-address", cluster.address)
    lobench(cluster, tmp_path, "undisturbed", "--executor", "inline", "--workers", "1")
    lobench(cluster, tmp_path, "killed", *on_ray, code=-9, run=("-c", KILLED_CHIEF, "7", "0"))
    lobench(cluster, tmp_path, "killed", *on_ray)
    assert [one.state for one in trials(tmp_path / "killed")].count("stopped") == 2
    assert trials(tmp_path / "killed") == trials(tmp_path / "undisturbed")
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed"), "each evaluation is there once"


def test_a_search_over_scripts_that_is_killed_on_two_nodes_is_that_of_an_undisturbed_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(NUMPY)
    (tmp_path / "x.gin").write_text(SCRIPT_SEARCH.replace("num_sessions = 2", "num_sessions = 1"))
    assert cluster.second
    on_ray = ("--executor", "ray", "--ray-address", cluster.address)
    lobench(cluster, tmp_path, "undisturbed", "--workers", "2")
    for commit, after in (("8", "0"), ("16", "1")):
        lobench(cluster, tmp_path, "killed", *on_ray, code=-9, run=("-c", KILLED_CHIEF, commit, after))
    lobench(cluster, tmp_path, "killed", *on_ray)
    states = [one.state for one in trials(tmp_path / "killed") if one.method == "mine"]
    assert len(states) == 12 and set(states) == {"done", "stopped"}
    assert trials(tmp_path / "killed") == trials(tmp_path / "undisturbed")
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed"), "each evaluation is there once"
    assert members(tmp_path / "killed") == members(tmp_path / "undisturbed")
