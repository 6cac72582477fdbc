"""An exploded seed is taken as a diverged one everywhere: replacing one by the other changes no decision."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from stores import add

from lobench import import_curves
from lobench.analysis.comparisons.best_group import bold_cells
from lobench.analysis.comparisons.gates import GateRules
from lobench.analysis.comparisons.method_comparison import MethodComparison, compare_subjects
from lobench.analysis.comparisons.paired_values import paired_values
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import StoredSubject
from lobench.tools.history.history import history_of

EXPLODED = 90.0  # the start is 2
NUM_SEEDS = 12
COUNTS = [(0, 0), (0, 1), (0, 5), (1, 0), (4, 4), (0, 11), (12, 12)]


def subjects_of(store: Path, lost: float, num_a: int, num_b: int) -> list[StoredSubject]:
    """Returns two sides on two cases, some of whose seeds have a lost value, and the subject that scores about 1."""
    draw = np.random.default_rng(0)
    for step, num_lost in ((1, num_a), (2, num_b)):
        cases = {}
        for case in "ab":
            finals = (0.5 + 0.01 * draw.standard_normal(NUM_SEEDS)).tolist()
            accuracies = (0.9 + 0.01 * draw.standard_normal(NUM_SEEDS)).tolist()
            losses = [*[lost] * num_lost, *finals[num_lost:]]
            cases[case] = {
                "train/loss": losses,
                "test/loss": [2 * loss for loss in finals],
                "test/accuracy": accuracies,
            }
        add(store, step, cases)
    best = [0.1] * (NUM_SEEDS - 2) + [lost] * 2
    add(store, 3, {case: {"train/loss": best, "test/loss": best, "test/accuracy": [1.0] * NUM_SEEDS} for case in "ab"})
    return list(read_store(store).subjects)


def compared(subjects: list[StoredSubject], max_diverged: float) -> MethodComparison:
    rules = GateRules(max_diverged=max_diverged)
    metrics = ["train/loss", "test/loss", "test/accuracy"]
    (found,) = compare_subjects(subjects[:2], metrics=metrics, rules=rules, scales=Scales.of(subjects))
    return found


@pytest.mark.parametrize("max_diverged", [1.0, 0.1])
@pytest.mark.parametrize(("num_a", "num_b"), COUNTS)
def test_a_comparison_with_exploded_seeds_is_that_with_diverged_ones(
    tmp_path: Path, num_a: int, num_b: int, max_diverged: float
) -> None:
    exploded, diverged = (
        compared(subjects_of(tmp_path / str(lost), lost, num_a, num_b), max_diverged) for lost in (EXPLODED, math.nan)
    )
    assert repr(exploded.effects) == repr(diverged.effects)  # effects, gates, P(better), ratios, values, notes
    gate = exploded.primary.gate.cases[0]
    assert (gate.diverged_a, gate.diverged_b) == (num_a, num_b)


@pytest.mark.parametrize(("num_a", "num_b"), COUNTS)
def test_samples_and_bold_cells_with_exploded_seeds_are_those_with_diverged_ones(
    tmp_path: Path, num_a: int, num_b: int
) -> None:
    """Races, alarms, ablations, bold and the page compare by these samples."""
    found = []
    for lost in (EXPLODED, math.nan):
        subjects = subjects_of(tmp_path / str(lost), lost, num_a, num_b)
        scales, cells = Scales.of(subjects), [subject.cells["s/a"] for subject in subjects]
        metrics = (None, "test/loss", "test/accuracy")
        samples = [repr(paired_values(cells[0], cells[1], metric, scales)) for metric in metrics]
        scores = [sorted(scales.scores(cell, None).items()) for cell in cells]
        found.append((samples, repr(scores), [bold_cells(cells, metric or "train/loss", scales) for metric in metrics]))
    assert found[0] == found[1]


@pytest.mark.parametrize(("metric", "num_lost"), [("loss", 5), ("val/loss", 4)])
def test_imported_losses_explode_and_do_not_pass(tmp_path: Path, metric: str, num_lost: int) -> None:
    """Four of six against none is p = .03, which Holm over two cases does not take for REGRESSED, and is no PASS."""
    lines = [f"method,case,seed,step,{metric}"]
    for method, case, seed in itertools.product("ab", "xy", range(6)):
        final = 90.0 if (method, case) == ("b", "x") and seed < num_lost else 0.5 + 0.01 * seed
        lines += [f"{method},{case},{seed},0,2.0", f"{method},{case},{seed},9,{final}"]
    (tmp_path / "curves.csv").write_text("\n".join(lines))
    import_curves(tmp_path / "curves.csv", store=tmp_path / "store")
    done = lobench("compare", "a", "b", "--store", tmp_path / "store", "--format", "json")
    (found,) = json.loads(done.stdout)
    assert (found["b"]["exploded"], found["b"]["diverged"]) == (num_lost, 0)
    gate = found["metrics"][metric]["cases"]["imported/x"]["gate"]
    assert (gate["diverged_b"], gate["verdict"]) == (num_lost, "REGRESSED" if num_lost == 5 else "INCONCLUSIVE")


def nights(folder: Path, lost: float) -> Path:
    """Adds a night's store for each of 12 revisions; some seeds are lost in every night, and more from the 7th on."""
    draw = np.random.default_rng(1)
    for night in range(12):
        finals = (0.5 * np.exp(0.05 * draw.standard_normal(8))).tolist()
        num_lost = 1 if night < 6 else 6
        losses = [*[lost] * num_lost, *finals[num_lost:]]
        add(folder / f"{night:02}", 0, {"a": {"train/loss": losses}}, optimizer="adam()", revision=f"{night:040x}")
    return folder


def test_history_of_exploded_seeds_has_the_changes_of_diverged_ones(tmp_path: Path) -> None:
    found = [history_of([nights(tmp_path / str(lost), lost)], "a") for lost in (EXPLODED, math.nan)]
    assert found[0].changes == found[1].changes and [one.run_index for one in found[0].changes] == [6]
    assert [run.scores for run in found[0].runs] == [run.scores for run in found[1].runs]


def test_suite_of_exploded_seeds_is_judged_as_that_of_diverged_ones(tmp_path: Path) -> None:
    found = []
    for lost in (EXPLODED, math.nan):
        draw = np.random.default_rng(2)
        for method in range(13):
            cases = {}
            for case in "abc":
                finals = np.exp(0.2 * method * draw.random() + 0.1 * draw.standard_normal(4) - 2).tolist()
                cases[case] = {"train/loss": [lost, *finals[1:]] if method % 4 == 0 else finals}
            add(tmp_path / str(lost), 0, cases, optimizer=f"m{method}()")
        done = lobench("suite", tmp_path / str(lost), "--format", "json")
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
