"""Groups of cases by how they were made: one run, declared common seeds, own trainings of several lengths."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from imported import write_csv
from scipy import stats
from shown import texts_of
from stores import add

from lobench import import_curves
from lobench.analysis.scores.mean_scores import mean_score
from lobench.analysis.scores.scales import Scales
from lobench.analysis.store.case_groups import case_groups
from lobench.analysis.store.snapshot import read_store
from lobench.api.compare import compare
from lobench.core.errors import UsageError
from lobench.core.training_identity import training_hash

SHOWN = texts_of("analysis")

CASES, SEEDS = ("x", "y", "z"), 5
HORIZON = """\
{scope}/lobench.Case.eval_every = {every}
{scope}/lobench.Case.num_inner_steps = %horizon
horizon/gin.macro.value = {steps}
{scope}/lobench.Case.num_seeds = 3
{scope}/lobench.Case.task = @{scope}/Dish()
{scope}/lobench.Dish.dim = {dim}
lobench.Case.optimizer = @sgd()
lobench.sgd.learning_rate = %horizon
"""


def finals() -> dict[str, np.ndarray]:
    """Finals of two methods, float32[num_cases, num_seeds], that a seed moves alike on all cases."""
    draw = np.random.default_rng(3)
    found = {}
    for method, level in (("a", 1.0), ("b", 1.02)):
        common = draw.normal(0, 0.05, SEEDS)
        found[method] = np.float32(level + common + draw.normal(0, 0.01, (len(CASES), SEEDS)))
    return found


def rows() -> list[str]:
    head = "method,case,seed,step,metric,value"
    return [
        head,
        *(
            f"{method},{case},{seed},10,val/loss,{value:.9g}"
            for method, table in finals().items()
            for case, line in zip(CASES, table, strict=True)
            for seed, value in enumerate(line)
        ),
    ]


def table(folder: Path) -> Path:
    path = folder / "tidy.csv"
    path.write_text("\n".join(rows()) + "\n")
    return path


def groups_of(store: Path) -> set[frozenset[str]]:
    snapshot = read_store(store)
    names = {case.identity: case.name for case in snapshot.cases}
    found = case_groups([subject.cells for subject in snapshot.subjects], list(names))
    return {frozenset(names[case] for case in group) for group in found}


def test_cases_of_declared_common_seeds_are_one_group_with_the_paired_t_of_the_seeds_means(tmp_path: Path) -> None:
    import_curves(table(tmp_path), store=tmp_path / "s", paired_seeds=True)
    (pair,) = compare("a", "b", store=tmp_path / "s").pairs
    found = finals()
    units = np.mean([found["a"], found["b"]], axis=(0, 2))[:, None]  # differences are relative to the mean of a case
    low = {method: -side.astype(float) / units for method, side in found.items()}
    known = stats.ttest_rel(low["b"].mean(axis=0), low["a"].mean(axis=0))
    assert pair.primary.comparison.p_value == pytest.approx(known.pvalue, rel=1e-4)
    assert [set(group) for group in pair.groups] == [{f"imported/{case}" for case in CASES}]
    assert not pair.has_labels


def test_rows_of_a_table_of_labels_are_independent_unless_an_option_says_otherwise(tmp_path: Path) -> None:
    import_curves(table(tmp_path), store=tmp_path / "s")
    assert groups_of(tmp_path / "s") == {frozenset({case}) for case in CASES}
    by_design = lobench("compare", "a", "b", "--store", tmp_path / "s")
    assert SHOWN["seeds-are-labels-of-a"] in by_design.stdout and SHOWN["cases-in-one-group"] not in by_design.stdout
    together = lobench("compare", "a", "b", "--store", tmp_path / "s", "--seed-means", "--format", "json")
    metric = json.loads(together.stdout)[0]["metrics"]["val/loss"]
    assert metric["groups"] == [[f"imported/{case}" for case in CASES]]
    (one,) = compare("a", "b", store=tmp_path / "s", seed_means=True).pairs
    (none,) = compare("a", "b", store=tmp_path / "s", independent_cases=True).pairs
    assert one.primary.comparison.p_value > none.primary.comparison.p_value and not none.has_labels
    width = [
        pair.primary.improvement_probability.upper - pair.primary.improvement_probability.lower for pair in (one, none)
    ]
    assert width[0] > width[1]
    with pytest.raises(UsageError, match="contradict"):
        compare("a", "b", store=tmp_path / "s", seed_means=True, independent_cases=True)


def test_columns_of_one_file_that_are_imported_as_cases_are_one_group(tmp_path: Path) -> None:
    lines = ["method,seed,step,val_x,val_y"]
    lines += [f"{method},{seed},10,{1 + seed / 10},{2 + seed / 10}" for method in "ab" for seed in range(3)]
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n")
    for case in ("x", "y"):
        import_curves(tmp_path / "wide.csv", store=tmp_path / "s", case=case, metrics=[f"val_{case}=val/loss"])
    assert groups_of(tmp_path / "s") == {frozenset("xy")}
    import_curves(write_csv(tmp_path / "z.csv", [["a", "z", "0", "10", "val/loss", "1"]]), store=tmp_path / "s")
    assert groups_of(tmp_path / "s") == {frozenset("xy"), frozenset("z")}


def test_metrics_of_runs_of_a_logger_that_are_imported_as_cases_are_one_group(tmp_path: Path) -> None:
    names = [f"adam_seed{seed}" for seed in range(3)]
    for case in ("x", "y"):
        header = ",".join(['"Step"', *(f'"{name} - val_{case}"' for name in names)])
        (tmp_path / f"{case}.csv").write_text(f"{header}\n10,{1.0},{1.1},{1.3}\n")
        import_curves(tmp_path / f"{case}.csv", store=tmp_path / "s", case=case, metrics=[f"val_{case}=val/loss"])
    assert groups_of(tmp_path / "s") == {frozenset("xy")}


def test_trainings_that_differ_in_their_lengths_and_evaluations_are_one() -> None:
    short = training_hash(HORIZON.format(scope="a", every=10, steps=20, dim=3))
    assert short and short == training_hash(HORIZON.format(scope="b", every=50, steps=400, dim=3))
    assert short != training_hash(HORIZON.format(scope="a", every=10, steps=20, dim=4))
    assert short != training_hash(
        HORIZON.format(scope="a", every=10, steps=20, dim=3) + "a/lobench.Case.num_lanes = 2\n"
    )
    assert training_hash("x = 1") == training_hash("") == ""


def test_score_intervals_of_a_group_have_the_degrees_of_its_seeds(tmp_path: Path) -> None:
    lines = [line.replace(",10,", ",0,").rpartition(",")[0] + ",2" for line in rows()[1:]]
    (tmp_path / "scores.csv").write_text("\n".join([*rows(), *lines]) + "\n")
    degrees, widths = [], []
    for store, paired in (("common", True), ("labels", False)):
        import_curves(tmp_path / "scores.csv", store=tmp_path / store, paired_seeds=paired)
        subjects = read_store(tmp_path / store).subjects
        found = mean_score(subjects[0], None, Scales.of(subjects))
        middle = found.interquartile_mean()
        degrees.append(found.interval.degrees)
        widths.append(middle.upper - middle.lower)
    assert degrees[0] == pytest.approx(SEEDS - 1) and degrees[1] > SEEDS - 1
    assert widths[0] > widths[1]


def test_cases_with_common_items_are_one_group(tmp_path: Path) -> None:
    finals = {name: {"train/loss": [0.1, 0.2, 0.3][:size]} for name, size in (("a", 3), ("b", 3), ("c", 2), ("d", 2))}
    add(tmp_path, 0, finals)
    (subject,) = read_store(tmp_path).subjects
    cells = {
        name: replace(cell, case=replace(cell.case, replicates="items", seed_block=None))
        for name, cell in subject.cells.items()
    }
    others = {seed + 10: source for seed, source in cells["s/d"].curves_by_seed.items()}
    cells["s/d"] = replace(cells["s/d"], curves_by_seed=others)
    alone = (("s/a",), ("s/b",), ("s/c",), ("s/d",))
    assert case_groups([subject.cells], list(cells)) == alone
    assert case_groups([cells], list(cells)) == (("s/a", "s/b", "s/c"), ("s/d",))
    assert case_groups([cells], list(cells), "independent") == alone
