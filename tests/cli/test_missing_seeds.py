"""Planned seeds without a value: no PASS and no "better" in `lobench compare`, and a mark at each value."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from imported import write_csv
from shown import texts_of
from stores import add, case_info, curves

from lobench import import_curves
from lobench.core.case import SeedBlock
from lobench.core.checkpoint import Checkpoint
from lobench.core.result import Curves, EvaluationKey, Outcome
from lobench.core.subject import Subject
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("lobench")

DRAW = np.random.default_rng(0)
FINALS = [0.5 + 0.01 * draw for draw in DRAW.standard_normal(8)]
BETTER = [value - 0.2 for value in FINALS]
WORSE = [value + 0.4 for value in FINALS]
LOST = 2  # of eight seeds


def add_lacking(store: Path, step: int, finals: list[float], kind: str) -> None:
    """Adds a checkpoint on a case of eight seeds, two of which have no value."""
    if kind == "complete":
        add(store, step, {"a": {"train/loss": finals}})
        return
    whole = dataclasses.replace(case_info("a", len(finals)), seed_block=LOST)
    ledger = Ledger.open(store, name="test")
    subject = Subject.of_checkpoint(Checkpoint(uri=f"run/theta_{step}.npz", sha256=f"{step:064x}", outer_step=step))
    position = ledger.record_sighting(subject)
    ledger.record_admission(position, "admitted")
    for block in whole.blocks():
        is_lost = block.start + block.size == len(finals)
        if is_lost and kind == "not run":
            continue
        outcome = Outcome(kind) if is_lost and kind != "ended early" else Outcome.PASSED
        found = curves({"train/loss": finals[block.start : block.start + block.size]}, start=block.start)
        if is_lost and kind == "ended early":
            found = until(found, 2)
        ledger.record_evaluation(
            EvaluationKey.of(subject.sha256, whole, SeedBlock(start=block.start, size=block.size), "1"),
            whole,
            outcome,
            curves=found if outcome is Outcome.PASSED else None,
        )
    ledger.finish_checkpoint(position, programs=["1"], case_keys=[whole.key])
    ledger.close()


def until(found: Curves, num_evals: int) -> Curves:
    """Returns curves that end before the last step."""
    metrics = {name: memoryview(np.asarray(values)[:, :num_evals].copy()) for name, values in found.metrics.items()}
    return dataclasses.replace(found, metrics=metrics, eval_steps=found.eval_steps[:num_evals])


KINDS = ["error", "timeout", "oom", "poisoned", "expired", "skipped", "not run", "ended early"]
Compare = Callable[..., tuple[int, dict, str]]


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    def compared(a: tuple[list[float], str], b: tuple[list[float], str]) -> tuple[int, dict, str]:
        for step, (finals, kind) in enumerate((a, b), 1):
            add_lacking(tmp_path, step, finals, kind)
        done = lobench("compare", "1", "2", "--store", tmp_path, "--format", "json")
        text = lobench("compare", "1", "2", "--store", tmp_path)
        return done.returncode, json.loads(done.stdout)[0], text.stdout

    return compared


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_seed_on_either_side_allows_no_pass_and_no_better(compare: Compare, kind: str, side: str) -> None:
    whole, lacking = "complete", kind
    code, found, text = compare(
        (FINALS, lacking if side == "a" else whole), (BETTER, lacking if side == "b" else whole)
    )
    effect = found["metrics"]["train/loss"]
    assert (code, found["verdict"], effect["effect"]) == (0, "INCONCLUSIVE", "undecided"), text
    assert effect["cases"]["s/a"]["effect"] == "undecided" and effect["gate"]["verdict"] == "INCONCLUSIVE"
    if kind != "ended early":
        assert "(6 of 8 seeds)" in text and f"(2 {kind})" in text


@pytest.mark.parametrize("kind", ["complete", *KINDS])
def test_a_candidate_that_is_worse_on_the_seeds_that_are_left_has_regressed(compare: Compare, kind: str) -> None:
    code, found, text = compare((FINALS, "complete"), (WORSE, kind))
    assert (code, found["verdict"], found["metrics"]["train/loss"]["effect"]) == (1, "REGRESSED", "worse"), text


@pytest.mark.parametrize(
    ("a", "b"), [((FINALS, "complete"), (BETTER, "error")), ((FINALS, "error"), (WORSE, "complete"))]
)
def test_compare_verdict_that_missing_seeds_leave_undecided_does_not_deny_the_difference(
    compare: Compare, a: tuple[list[float], str], b: tuple[list[float], str]
) -> None:
    _, found, text = compare(a, b)
    effect, first = found["metrics"]["train/loss"], " ".join(text.split("gate")[0].split())
    assert effect["effect"] == "undecided" and effect["p_value"] < 0.05
    assert SHOWN["undecided-on-train-loss-as"] in first and SHOWN["no-difference"] not in first, first


def test_complete_sides_are_compared_as_before(compare: Compare) -> None:
    code, found, _ = compare((FINALS, "complete"), (BETTER, "complete"))
    assert (code, found["verdict"], found["metrics"]["train/loss"]["effect"]) == (0, "PASS", "better")


def test_a_case_that_one_side_lost_leaves_no_pass_of_the_mean(tmp_path: Path) -> None:
    add(tmp_path, 1, {name: {"train/loss": FINALS} for name in "abc"})
    add(tmp_path, 2, {"a": {"train/loss": BETTER}, "b": {"train/loss": BETTER}, "c": Outcome.OOM})
    (found,) = json.loads(lobench("compare", "1", "2", "--store", tmp_path, "--format", "json").stdout)
    effect = found["metrics"]["train/loss"]
    assert found["verdict"] == effect["gate"]["verdict"] == "INCONCLUSIVE" and effect["effect"] == "undecided"


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_method_that_lacks_a_seed_is_marked_and_never_the_best(tmp_path: Path, kind: str) -> None:
    add_lacking(tmp_path, 1, FINALS, "complete")
    add_lacking(tmp_path, 2, BETTER, kind)
    text = lobench("results", "--store", tmp_path, "--by", "method").stdout
    assert "(6 of 8 seeds)" in text and SHOWN["seeds-missing"] in text, text
    records = json.loads(lobench("results", "--store", tmp_path, "--by", "method", "--format", "json").stdout)
    assert all(one["missing"] == 2 and not one["bold"] for one in records if one["method"] == "theta_2.npz")
    assert any(one["bold"] for one in records)
    lobench("report", "--store", tmp_path, "--format", "latex", "--output", tmp_path / "table.tex")
    latex = (tmp_path / "table.tex").read_text()
    assert "(6 of 8 seeds)" in latex and "mathbf" in latex, latex


def test_a_method_without_any_seed_has_no_result_in_the_table(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": FINALS}})
    add(tmp_path, 2, {"a": Outcome.ERROR})
    assert SHOWN["no-result-0-of-4"] in lobench("results", "--store", tmp_path, "--by", "method").stdout


def imported(folder: Path, holes: Collection[tuple[str, str, int]], *, paired_seeds: bool) -> Path:
    """Imports two methods on two cases with eight seeds each, without those of the holes; returns the store."""
    rows = [
        (method, case, seed, 10, "val/loss", final)
        for method, finals in (("a", FINALS), ("b", BETTER))
        for case in "xy"
        for seed, final in enumerate(finals)
        if (method, case, seed) not in holes
    ]
    import_curves(write_csv(folder / "tidy.csv", rows), store=folder / "imported", paired_seeds=paired_seeds)
    return folder / "imported"


@pytest.mark.parametrize("methods", ["a", "b", "ab"])
@pytest.mark.parametrize("cases", ["x", "xy"])
def test_a_hole_in_paired_imports_allows_no_pass_and_no_better(tmp_path: Path, methods: str, cases: str) -> None:
    """A seed that one side lacks, or that one case of the group lacks on one side or on both."""
    holes = {(method, case, 7) for method in methods for case in cases}
    store = imported(tmp_path, holes, paired_seeds=True)
    done = lobench("compare", "a", "b", "--store", store, "--format", "json")
    (found,) = json.loads(done.stdout)
    effect = found["metrics"]["val/loss"]
    if (methods, cases) == ("ab", "xy"):  # nobody has the seed: nothing is missing
        assert (found["verdict"], effect["effect"]) == ("PASS", "better")
        return
    assert (done.returncode, found["verdict"], effect["effect"]) == (0, "INCONCLUSIVE", "undecided")
    assert effect["cases"]["imported/x"]["effect"] == "undecided"
    records = json.loads(lobench("results", "--store", store, "--by", "method", "--format", "json").stdout)
    bold = {one["method"] for one in records if one["bold"] and (one["case"] != "y" or "y" in cases)}
    assert not bold & {f"{method} (imported)" for method in methods}, records


def test_report_best_method_beside_a_higher_mean_that_lacks_a_seed_is_the_best_of_the_others(tmp_path: Path) -> None:
    store = imported(tmp_path, {("b", "x", 7), ("b", "y", 7)}, paired_seeds=True)
    text = lobench("report", "--store", store, "--format", "text").stdout
    assert SHOWN["imported-has-the-highest-mean"] in text, text


def test_seeds_that_are_labels_of_a_table_have_no_holes(tmp_path: Path) -> None:
    store = imported(tmp_path, {("a", "x", 7), ("b", "y", 6)}, paired_seeds=False)
    (found,) = json.loads(lobench("compare", "a", "b", "--store", store, "--format", "json").stdout)
    assert (found["verdict"], found["metrics"]["val/loss"]["effect"]) == ("PASS", "better")


def test_a_run_that_lacks_a_case_of_its_group_allows_no_pass(tmp_path: Path) -> None:
    for case, num_seeds in (("x", 8), ("y", 7)):
        columns = [
            (f"{name}_seed{seed}", finals[seed])
            for name, finals in (("a", FINALS), ("b", BETTER))
            for seed in range(8 if name == "b" else num_seeds)
        ]
        header = ",".join(['"Step"', *(f'"{name} - val_{case}"' for name, _ in columns)])
        (tmp_path / f"{case}.csv").write_text(f"{header}\n10,{','.join(str(final) for _, final in columns)}\n")
        import_curves(tmp_path / f"{case}.csv", store=tmp_path / "s", case=case, metrics=[f"val_{case}=val/loss"])
    done = lobench("compare", "a", "b", "--store", tmp_path / "s", "--format", "json")
    assert (done.returncode, json.loads(done.stdout)[0]["verdict"]) == (0, "INCONCLUSIVE")
    text = lobench("compare", "a", "b", "--store", tmp_path / "s").stdout
    assert SHOWN["has-7-of-8-seeds"] in text or "(7 of 8 seeds)" in text, text
