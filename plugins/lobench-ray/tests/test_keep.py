"""`lobench keep` on a cluster: the decision, and the numbers behind it, of the local executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import lobench
from two_nodes import Cluster

SCRIPT = """
import argparse, json, random
parser = argparse.ArgumentParser()
for name in ("--seed", "--out", "--lr"):
    parser.add_argument(name)
arguments = parser.parse_args()
noise = random.Random(arguments.seed).gauss(0, 0.01)
scale = float(open("data/scale.txt").read())
with open(f"{arguments.out}/metrics.jsonl", "w") as log:
    for step in range(4):
        log.write(json.dumps({"step": step, "val_loss": scale / (1 + step) - float(arguments.lr) + noise}) + "\\n")
"""


def test_keep_on_two_nodes_decides_as_on_one_machine(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "train.py").write_text(SCRIPT)
    (project / "data" / "scale.txt").write_text("2.0")
    address = cluster.join(monkeypatch)
    assert cluster.second
    monkeypatch.chdir(project)
    command = "python train.py --seed {seed} --out {out} --lr "
    found: list[list[dict[str, Any]]] = []
    for name, executor in (
        ("local", ["--executor", "inline"]),
        ("ray", ["--executor", "ray", "--ray-address", address]),
    ):
        store = tmp_path / name
        words = ["--command", f"{command}0.1", "--against-command", f"{command}0.5", "--metric", "val_loss"]
        done = lobench("keep", *words, "--store", store, "--workers", "6", *executor)
        assert done.returncode == 1, done.stdout + done.stderr
        decisions = json.loads((store / "keep" / "decisions.json").read_text())["decisions"]
        found.append([{key: one[key] for key in one if key != "core_seconds"} for one in decisions])
    assert found[0][0]["pairs"] == 3
    assert found[0] == found[1] and found[0][0]["answer"] == "discard"
