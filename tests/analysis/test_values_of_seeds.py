"""Metrics with one value a seed, as plugins declare them, beside curves."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import stores
from commands import lobench
from stores import EVAL_STEPS, case_info, curves

from lobench.analysis.store.subjects import Cell
from lobench.core.result import Curves


def with_one_value_a_seed(finals: dict[str, list[float]], **words: object) -> Curves:
    found = curves(finals, **words)  # type: ignore[arg-type]
    rows = np.arange(len(found.seeds), dtype=np.float32).reshape(-1, 1)
    return dataclasses.replace(found, metrics={**found.metrics, "train/least": memoryview(rows)})


def test_it_stands_at_the_last_step() -> None:
    found = with_one_value_a_seed({"train/loss": [0.5, 0.4]})
    cell = Cell(
        case=case_info("a", 2), final_values={}, untrained_values={}, curves_by_seed={0: (found, 0), 1: (found, 1)}
    )
    rows = cell.curves_of_seeds("train/least")
    assert rows.shape == (2, len(EVAL_STEPS)) and rows[:, -1].tolist() == [0.0, 1.0]
    assert all(map(math.isnan, rows[:, :-1].ravel()))
    assert cell.curves_of_seeds("train/loss").shape == rows.shape


def test_a_report_and_a_table_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "curves", with_one_value_a_seed)
    for step in (1, 2):
        stores.add(tmp_path / "store", step, {"a": {"train/loss": [0.5, 0.4, 0.3, 0.2]}})
    done = lobench("report", "--store", tmp_path / "store", "--output", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "train/least" in (tmp_path / "page.html").read_text()
