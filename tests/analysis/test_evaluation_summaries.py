"""Numbers read together are those that the curves give one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_store import make_store
from stores import add

from lobench.analysis.store.evaluation_summaries import NUM_SPARKS, evaluation_summaries
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import EvaluationRow, Ledger


def rows(store: Path) -> list[EvaluationRow]:
    ledger = Ledger.open(store, read_only=True)
    found = list(ledger.evaluations())
    ledger.close()
    return found


def test_the_same_as_the_curves_say(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0, 0.5], "test/loss": [1.5, 1.25]}, "b": {"train/loss": [0.5, 3.5, 4.5]}})
    add(tmp_path, 2, {"a": {"train/loss": [0.25, math.nan], "test/loss": [0.5, math.nan]}, "c": Outcome.TIMEOUT})
    lines = evaluation_summaries(rows(tmp_path))
    assert [(line.subject.outer_step, line.row.case.name) for line in lines] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "c"),
    ]
    for line in lines[:3]:
        found = line.row.curves
        assert found is not None
        for name, value in line.final_means.items():
            assert value == pytest.approx(np.mean(found.final(name)), nan_ok=True)
        assert line.best_mean == pytest.approx(np.mean(found.best("train/loss")))
        assert line.num_diverged == found.num_diverged and line.wall_seconds == 0.5
        assert len(line.mean_curve) == NUM_SPARKS and line.mean_curve[0] == 2.0
    assert lines[2].num_diverged == 1 and math.isnan(lines[2].final_means["train/loss"])
    assert lines[3].num_diverged == -1 and lines[3].final_means == {} and np.isnan(lines[3].mean_curve).all()


def test_what_exploded_is_counted_from_the_least_loss_there_can_be(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.5, 3.5, 4.5, math.nan]}, "b": {"train/loss": [0.5, 1.0, 2.0, 3.0]}})
    found = [replace(row, case=replace(row.case, minimum=minimum)) for minimum in (None, 1.0) for row in rows(tmp_path)]
    lines = evaluation_summaries(found)
    assert [line.num_exploded for line in lines] == [1, 0, 2, 0]
    assert [one.num_exploded(row.case) for row in found if (one := row.curves) is not None] == [1, 0, 2, 0]


def test_a_line_for_each_sighting(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [1.0]}}, sha256="x")
    ledger = Ledger.open(tmp_path)
    ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri="run/theta_2.npz", sha256="x", outer_step=2)))
    ledger.close()
    assert [line.subject.outer_step for line in evaluation_summaries(rows(tmp_path))] == [1, 2]


def test_a_film_of_any_length_behind_the_curves_is_none_of_them(tmp_path: Path) -> None:
    lines = evaluation_summaries(rows(make_store(tmp_path)))
    curves = [line.row.curves for line in lines]
    assert {found is not None and found.film is not None for found in curves} == {False, True}
    for line, found in zip(lines, curves, strict=True):
        assert found is not None
        for name, value in line.final_means.items():
            assert value == pytest.approx(np.mean(found.final(name)), nan_ok=True)
