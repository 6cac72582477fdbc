"""Two experiments in one store whose cases have one name and other bindings: nothing pools them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest
from commands import lobench
from shown import texts_of
from tiny import make_suite

from lobench.analysis.tables.frames import open_results

SHOWN = texts_of("run")

EXPERIMENT = """
Experiment.suites = ["tiny"]
Experiment.num_sessions = 3
Bowl.dim = {dim}
sgd/Method.optimizer = @sgd()
sgd/sgd.learning_rate = 0.1
"""
DIMS = {"small": 3, "large": 50}


def test_cases_of_one_name_with_other_bindings_are_told_apart(tmp_path: Path) -> None:
    make_suite(tmp_path)
    store = tmp_path / "store"
    for name, dim in DIMS.items():
        (tmp_path / f"{name}.gin").write_text(EXPERIMENT.format(dim=dim))
        done = lobench("run", f"{name}.gin", "--store", store, "--executor", "inline", "--case", "a", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr

    def output(*options: object) -> str:
        return lobench("results", "--store", store, *options).stdout

    records = json.loads(output("--format", "json"))
    finals = {one["case"]["identity"]: one["metrics"]["train/loss"]["final"] for one in records}
    assert len(finals) == 2
    lines = [line for line in output("--evaluations").splitlines() if line.startswith("tiny/a")]
    assert sorted(line.split(")")[0] for line in lines) == sorted(f"tiny/a ({one[:8]}" for one in finals)
    assert SHOWN["cases-of-one-name-with"] in output("--evaluations")

    written = pd.read_csv(io.StringIO(output("--format", "csv")))
    for frame in (written, open_results(store).frame(), open_results(store).curves_frame("train/loss")):
        last = frame[frame.step == frame.step.max()] if "step" in frame else frame
        means = last.groupby(["suite", "case", "case_identity"]).value.mean().to_dict()
        assert means == {("tiny", "a", one): pytest.approx(final, rel=1e-6) for one, final in finals.items()}

    shown = [
        next(one["mean"] for one in json.loads(output("--by", "method", "--experiment", name, "--format", "json")))
        for name in DIMS
    ]
    assert sorted(shown) == pytest.approx(sorted(finals.values()))
    report = lobench("report", "--store", store, "--all", "--format", "text").stdout
    assert SHOWN["tiny-a-was-changed-1"] in report
