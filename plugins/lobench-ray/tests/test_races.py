"""A race on a Ray of two nodes that loses one in the middle: decisions, bits and members of an undisturbed one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from shown import texts_of
from tiny import content, until
from two_nodes import PATIENT, Cluster, Held

from lobench.analysis.comparisons.race import RaceResult
from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.store.methods import read_methods
from lobench.core.experiment import SessionMember
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("ray")

RATES = {"good": 0.1, "near": 0.09, "slowest": 0.0003}
# Two rounds of eight seeds: after the first, one method is out.
RACE = (
    "Experiment.suites = ['tiny']\nExperiment.num_sessions = 16\nExperiment.race = @race()\nrace.block = 8\n"
    + "".join(f"{name}/Method.optimizer = @sgd()\n{name}/sgd.learning_rate = {rate}\n" for name, rate in RATES.items())
)


def start(folder: Path, store: str, *options: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lobench.cli", "run", "x.gin", "--store", store, *options]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def output(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=PATIENT)
    assert process.returncode == 0, text
    return text


def members(store: Path) -> list[SessionMember]:
    with contextlib.closing(Ledger.open(store, read_only=True)) as ledger:
        return ledger.memberships(ledger.experiments()[-1].id)


def decisions(store: Path) -> RaceResult | None:
    return summary_of(store, snapshot=read_methods(store)).race


def test_a_race_that_loses_a_node_has_the_decisions_bits_and_members_of_an_undisturbed_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    held = Held(tmp_path, num_starts=24)  # all of the first round
    (tmp_path / "x.gin").write_text(RACE)
    local, store = tmp_path / "local", tmp_path / "ray"
    output(start(tmp_path, "local", "--executor", "inline", environment=dict(os.environ)))
    second = cluster.second
    held.hold()
    options = ("--executor", "ray", "--ray-address", cluster.address, "--workers", "2")
    process = start(tmp_path, "ray", *options, environment=cluster.environment)
    try:
        until(lambda: held.num_waiting() == 2, "each node evaluates in the second round")
        second.kill()
        held.release()
        assert SHOWN["what-it-held-runs-elsewhere"] in output(process)
    finally:
        process.kill()
        process.wait()
    undisturbed = decisions(local)
    assert undisturbed is not None and undisturbed.ending is not None and undisturbed.out_at[-1] is not None
    assert decisions(store) == undisturbed
    assert content(store) == content(local), "each evaluation is there once"
    assert set(members(store)) == set(members(local))
