"""Checkpoints of a run whose results have former bindings of the optimizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import add

from lobench.analysis.store.former_bindings import subjects_with_former_bindings
from lobench.analysis.store.snapshot import read_store


@pytest.mark.parametrize("run", ["", "run_1"])
def test_checkpoints_in_folders_of_their_own_are_judged_as_one_run(tmp_path: Path, run: str) -> None:
    for step, bindings in ((10, "former"), (20, "present"), (30, "present")):
        uri = f"/runs/run_1/step_{step}/theta.npz"
        add(tmp_path, step, {"a": {"train/loss": [0.1, 0.2]}}, uri=uri, run=run, bindings=bindings)
    snapshot = read_store(tmp_path)
    assert {subject.outer_step for subject in subjects_with_former_bindings(snapshot.rows, snapshot.current)} == {10}
