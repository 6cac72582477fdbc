"""Runs: what a line may join, and what it may not."""

from __future__ import annotations

from pathlib import Path

from stores import add

from lobench.analysis.findings import findings_of
from lobench.analysis.runs import runs_of


def test_lines_join_the_checkpoints_of_one_run_alone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for step, final in ((1, 1.5), (2, 0.5), (3, 1.0)):
        add(store, step, {"a": {"train/loss": [final, final + 0.1]}}, uri=f"/runs/x/theta_{step}.npz")
    for step, final in ((2, 1.4), (10, 1.2)):
        losses = {"train/loss": [final, final]}
        add(store, step, {"a": losses}, uri=f"/runs/y/{step}", sha256=f"{step + 100:064x}")
    for number, name in enumerate(("celo", "rnnprop")):
        add(store, 0, {"a": {"train/loss": [1.1, 1.1]}}, uri=f"/given/{name}.npz", sha256=f"{number + 200:064x}")
    add(store, 0, {"a": {"train/loss": [1.0, 1.1]}}, optimizer="adam()")
    findings = findings_of(store, [])
    subjects = findings.reading.subjects
    found = {run.name: [subjects[place].who.outer_step for place in run.places] for run in runs_of(findings)}
    assert found == {"/given": [0], "/runs/x": [1, 2, 3], "/runs/y": [2, 10]}
    assert len(runs_of(findings)) == 4, "two methods in one folder are no run"
    best = {run.name: run.best for run in runs_of(findings) if run.best is not None}
    assert {name: subjects[place].who.outer_step for name, place in best.items()} == {"/runs/x": 2, "/runs/y": 10}


def test_who_lacks_a_case_is_not_the_best(tmp_path: Path) -> None:
    for step, final in ((1, 1.5), (2, 1.0)):
        losses = {"train/loss": [final, final + 0.1]}
        add(tmp_path, step, {"a": losses, "b": losses}, uri=f"/x/theta_{step}.npz")
    add(tmp_path, 3, {"a": {"train/loss": [0.1, 0.1]}}, uri="/x/theta_3.npz")
    (run,) = runs_of(findings_of(tmp_path, []))
    assert run.best == 1 and run.last == 2
