"""A search on a Ray of two nodes whose chief is killed: trials and best are those of an undisturbed one on one node."""

from __future__ import annotations

from pathlib import Path

from curve_scripts import NUMPY, SEARCH
from forked import python
from tiny import KILLED_CHIEF, PATIENCE, content
from two_nodes import Cluster

from lobench.engine.store.experiments import Membership, TrialRow
from lobench.engine.store.ledger import Ledger


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
    words = (*run, "run", "x.gin", "--store", store, *options)
    done = python(*words, cwd=folder, env=cluster.environment, timeout=PATIENCE)
    assert done.returncode == code, done.stdout + done.stderr


def members(store: Path) -> set[Membership]:
    ledger = Ledger.open(store, read_only=True)
    try:
        return set(ledger.memberships(ledger.experiments()[-1].id))
    finally:
        ledger.close()


def test_a_search_over_scripts_that_is_killed_on_two_nodes_is_that_of_an_undisturbed_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(NUMPY)
    (tmp_path / "x.gin").write_text(SEARCH.replace("num_sessions = 2", "num_sessions = 1"))
    assert cluster.second
    on_ray = ("--executor", "ray", "--ray-address", cluster.address)
    lobench(cluster, tmp_path, "undisturbed", "--workers", "2")
    lobench(cluster, tmp_path, "killed", *on_ray, code=-9, run=("-c", KILLED_CHIEF, "40", "1"))
    assert {"done", "waiting"} <= {trial.state for trial in trials(tmp_path / "killed")}, "killed too early or too late"
    lobench(cluster, tmp_path, "killed", *on_ray)
    states = [trial.state for trial in trials(tmp_path / "killed") if trial.method == "mine"]
    assert len(states) == 8 and set(states) == {"done", "stopped"}
    assert trials(tmp_path / "killed") == trials(tmp_path / "undisturbed")
    assert content(tmp_path / "killed") == content(tmp_path / "undisturbed"), "each evaluation is there once"
    assert members(tmp_path / "killed") == members(tmp_path / "undisturbed")
