"""What a trial is worth: the mean score over cases, whatever else the store holds."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from shown import texts_of
from stores import add, case_info, curves

from lobench.analysis.scores.trial_fitness import fitness
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.errors import LobenchError
from lobench.core.items import seeds_of_items
from lobench.core.metric import UnknownDirection
from lobench.core.result import EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import EvaluationRow, Ledger

SHOWN = texts_of("analysis")

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
    with pytest.raises(UnknownDirection, match=SHOWN["direction-of-test-thing-is"]):
        worth(tmp_path, "a", metric="test/thing")
    signed = tmp_path / "signed"
    add(signed, 1, {"a": {"train/loss": [-3.0] * 4}})
    with pytest.raises(LobenchError, match=SHOWN["no-fitness-a-loss-lies"]):
        worth(signed, "a")


@pytest.mark.parametrize(
    ("metric", "direction", "better", "worse", "expected"),
    [
        ("valid/loss", "", [0.1, 0.001], [3.0, 4.0], 2.0),
        ("valid/accuracy", "", [0.75, 0.25], [0.25, 0.5], 0.5),
        ("valid/perplexity", "min", [20.0, 30.0], [40.0, 50.0], -25.0),
    ],
)
def test_single_values_of_a_command_are_told_apart(
    tmp_path: Path, metric: str, direction: str, better: list[float], worse: list[float], expected: float
) -> None:
    def add_values(step: int, values: list[float]) -> None:
        finals = {"a": {metric: [[value] for value in values]}}
        directions = {metric: direction} if direction else None
        add(tmp_path, step, finals, primary_metric=metric, directions=directions, evaluator="command")

    def worth_of(step: int) -> float | None:
        return worth(tmp_path, "a", seeds=range(2), metric=metric, step=step)

    for step, values in enumerate((better, worse, [NAN, 1.0], [-0.5, 1.0]), start=1):
        add_values(step, values)
    assert worth_of(1) == pytest.approx(expected, abs=1e-6)
    assert (second := worth_of(2)) is not None and second < expected
    assert worth_of(3) is None
    if metric == "valid/loss":
        with pytest.raises(LobenchError, match=SHOWN["no-fitness"]):
            worth_of(4)


def test_fitness_of_items_is_over_all_of_them(tmp_path: Path) -> None:
    case = dataclasses.replace(case_info("a", 1, primary_metric="valid/accuracy"), evaluator="command")
    case = dataclasses.replace(case, replicates="items", fixed_seeds=True)
    named = seeds_of_items(["q1", "q2", "q3"])
    made = curves({"valid/accuracy": [[1.0], [0.0], [1.0]]})
    made = dataclasses.replace(made, seeds=tuple(named), items=tuple(named.values()))
    key = EvaluationKey(
        checkpoint_sha256=f"{1:064x}",
        optimizer_hash=case.optimizer_hash,
        case_identity=case.identity,
        seed_block=SeedBlock(start=0, size=1),
        program_version="1",
    )
    with Ledger.open(tmp_path) as ledger:
        ledger.record_sighting(Subject.of_checkpoint(Checkpoint(uri="a.npz", sha256=f"{1:064x}", outer_step=1)))
        ledger.record_evaluation(key, case, Outcome.PASSED, curves=made)
    assert fitness(rows_of(tmp_path), [case], range(1), []) == pytest.approx(2 / 3)
