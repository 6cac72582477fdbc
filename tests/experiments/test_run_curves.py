"""Methods of an experiment whose curves were made elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Done, lobench
from imported import HEADER, write_csv
from tiny import make_suite

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 2
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
torch/Method.curves = "logs/*.csv#theirs"
torch/Method.metrics = ["train_loss"]
torch/Method.label = "PyTorch"
"""


def curves(path: Path, final: float, method: str = "theirs") -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [
        (method, case, seed, step, "train_loss", final + seed / 10 + 10 - step)
        for case in ("a", "elsewhere")
        for seed in range(3)
        for step in (0, 5, 10)
    ]
    write_csv(path, rows, HEADER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_suite(tmp_path)
    curves(tmp_path / "logs" / "a.csv", 0.5)
    curves(tmp_path / "logs" / "b.csv", 0.9, method="another")
    (tmp_path / "x.gin").write_text(EXPERIMENT)
    return tmp_path


def run(folder: Path, *options: str) -> Done:
    return lobench("run", "x.gin", "--store", "store", "--executor", "inline", *options, cwd=folder)


def test_curves_from_elsewhere_are_a_method_of_an_experiment(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch: case 'a' is tiny/a, which lobench trains" in done.stdout
    assert "torch: its curves on elsewhere are of no case of the experiment" in done.stdout
    found = lobench("results", "--store", folder / "store", "--by", "method").stdout
    assert "PyTorch (imported)" in found and "sgd" in found and "another" not in found
    again = run(folder)
    assert "nothing new" in again.stdout
    assert lobench("results", "--store", folder / "store", "--by", "method").stdout == found
    curves(folder / "logs" / "a.csv", 0.7)
    changed = run(folder)
    assert "a.csv has changed since it was imported" in changed.stdout
    records = json.loads(lobench("results", "--store", folder / "store", "--format", "json").stdout)
    finals = [one["metrics"]["train/loss"]["final"] for one in records if one["kind"] == "imported"]
    assert sorted(finals) == pytest.approx(sorted([0.7, 0.8, 0.9] * 2))


def test_what_is_wrong_with_curves_is_said_before_anything_runs(folder: Path) -> None:
    for text, said in (
        (EXPERIMENT.replace("logs/*.csv", "nowhere/*.csv"), "there is no such file of curves"),
        (EXPERIMENT.replace("#theirs", ""), "several methods in its curves"),
        (EXPERIMENT.replace("#theirs", "#nobody"), "no such method in its curves"),
        (EXPERIMENT + "torch/Method.num_cpus = 2\n", "it counts for Method.command alone"),
        (EXPERIMENT + "sgd/Method.paired_seeds = True\n", "it counts for Method.curves alone"),
        (EXPERIMENT + "torch/adam.b1 = 0.8\n", "nothing reads adam.b1 of method 'torch'"),
        (EXPERIMENT + "torch/Method.num_trials = 3\n", "curves are not searched"),
    ):
        (folder / "x.gin").write_text(text)
        done = run(folder)
        assert done.returncode == 2 and said in done.stderr, done.stdout + done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    (folder / "x.gin").write_text(EXPERIMENT)
    checked = run(folder, "--check")
    assert checked.returncode == 0 and "PyTorch: 0 evaluations" in checked.stdout
