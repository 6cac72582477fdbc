"""What a trial is worth: the mean score over cases, whatever else the store holds."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from stores import add, case_info

from lobench.analysis.scores.trial_fitness import fitness
from lobench.core.errors import LobenchError
from lobench.core.metric import UnknownDirection
from lobench.core.result import Outcome
from lobench.engine.store.ledger import EvaluationRow, Ledger

NAN = math.nan


def rows_of(store: Path, step: int = 1) -> list[EvaluationRow]:
    ledger = Ledger.open(store, read_only=True)
    try:
        return list(ledger.evaluations(f"{step:064x}"))
    finally:
        ledger.close()


def worth(
    store: Path, *names: str, seeds: range | None = None, step: int = 1, metric: str = "train/loss"
) -> float | None:
    cases = [case_info(name, primary_metric=metric) for name in names]
    return fitness(rows_of(store, step), cases, seeds, [])


def test_without_a_baseline_a_tenth_of_the_start_is_1_and_nothing_is_clipped(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.2, 0.2, 0.2, 0.2]}, "b": {"train/loss": [2e-5, 2e-5, 2e-5, 2e-5]}})
    assert worth(tmp_path, "a") == pytest.approx(1.0, abs=1e-6)
    assert worth(tmp_path, "b") == pytest.approx(5.0, abs=1e-6)
    assert worth(tmp_path, "a", "b") == pytest.approx(3.0, abs=1e-6)


def test_a_diverged_seed_is_minus_1_and_sessions_alone_count(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.2, NAN, 2.0, 4.0]}})
    assert worth(tmp_path, "a") == pytest.approx((1 - 1 + 0 - 1) / 4, abs=1e-6)
    assert worth(tmp_path, "a", seeds=range(1)) == pytest.approx(1.0, abs=1e-6)


def test_what_else_the_store_holds_changes_nothing(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.2, 0.3, 0.2, 0.2]}})
    before = worth(tmp_path, "a")
    add(tmp_path, 2, {"a": {"train/loss": [1e-4, NAN, 1e-4, -3.0]}})
    assert worth(tmp_path, "a") == before


def test_what_gave_no_curve_has_no_fitness(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.2] * 4}, "b": Outcome.ERROR})
    assert worth(tmp_path, "a", "b") is None and worth(tmp_path, "a", "c") is None
    assert worth(tmp_path, "a", seeds=range(5, 6)) is None and worth(tmp_path, "a", step=9) is None


def test_two_cases_of_one_training_count_once(tmp_path: Path) -> None:
    add(tmp_path, 1, {name: {"train/loss": [0.2] * 4} for name in "ab"} | {"c": {"train/loss": [2e-5] * 4}})
    rows = [dataclasses.replace(row, case=dataclasses.replace(row.case, problem="p")) for row in rows_of(tmp_path)]
    assert fitness(rows, [row.case for row in rows], None, []) == pytest.approx((1.0 + 5.0) / 2, abs=1e-6)


def test_an_accuracy_is_a_share_of_what_is_left_and_a_return_of_its_own_size(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"test/accuracy": [1.0] * 4}}, primary_metric="test/accuracy")
    rows = rows_of(tmp_path)
    info = case_info("a", primary_metric="test/accuracy")
    assert fitness(rows, [info], None, []) == pytest.approx(-1.0), "it began above 1: no accuracy does"
    store = tmp_path / "return"
    add(store, 1, {"a": {"test/return": [6.0] * 4}}, primary_metric="test/return", directions={"test/return": "max"})
    assert worth(store, "a", metric="test/return") == pytest.approx(2.0)


def test_nothing_is_guessed(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"test/thing": [6.0] * 4}}, primary_metric="test/thing")
    with pytest.raises(UnknownDirection, match="the direction of test/thing is not declared"):
        worth(tmp_path, "a", metric="test/thing")
    signed = tmp_path / "signed"
    add(signed, 1, {"a": {"train/loss": [-3.0] * 4}})
    with pytest.raises(LobenchError, match="s/a: no fitness: a loss lies below 0: set Case"):
        worth(signed, "a")
