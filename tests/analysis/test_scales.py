"""Comparisons on the scale of a tuned baseline."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from commands import Done, lobench
from hypothesis import given
from hypothesis import strategies as st
from report_store import NASTY, make_baseline, make_store
from shown import texts_of
from stores import add, case_info

from lobench.analysis.comparisons.summary import summary_of
from lobench.analysis.scores.baseline_file import Baseline, BaselineError
from lobench.analysis.scores.scales import CaseBaselines, Scales, seed_scores
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell, StoredSubject, subjects_of
from lobench.engine.store.ledger import Ledger

SHOWN = texts_of("analysis")


def subjects(store: Path) -> list[StoredSubject]:
    ledger = Ledger.open(store, read_only=True)
    try:
        return subjects_of(ledger.evaluations())
    finally:
        ledger.close()


def run(folder: Path, *arguments: str | Path) -> Done:
    return lobench(*arguments, cwd=folder)


def test_every_case_that_a_baseline_knows_has_its_scale(tmp_path: Path) -> None:
    known = subjects(make_store(tmp_path))
    found = Scales.of(known, [make_baseline(tmp_path)])
    assert (found.baseline_label, len(found.baselines.baseline_by_case), found.num_cases) == (SHOWN["tuned-adam"], 2, 3)
    assert SHOWN["identity-of"].format(nasty=NASTY) not in found.baselines.baseline_by_case
    assert [type(problem) for problem in found.baselines.problems] == [BaselineError]
    cell = known[0].cells["identity of case0"]
    scale = found.scale(cell.case, "train/loss")
    assert (scale.untrained, scale.unit) == (pytest.approx(2.3), pytest.approx(math.log(2.3 / 0.2)))
    assert found.scores(cell, None) == found.scores(cell, "train/loss")


def test_where_what_was_tuned_overfits_nothing_is_scored_on_test(tmp_path: Path) -> None:
    """Its test loss ends above untrained: on a scale from there up to it, the worst test loss would score highest."""
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    path = suite / "baselines" / "adam-velo.json"
    baseline = Baseline.load(path)
    overfit = {"test/loss": (5.0,) * 5}
    cases = {n: dataclasses.replace(case, tuned={**case.tuned, **overfit}) for n, case in baseline.cases.items()}
    dataclasses.replace(baseline, cases=cases).save(path)
    summary = summary_of(store, [suite])
    tuned = [case for case in summary.snapshot.cases if case.identity in summary.scales.baselines.baseline_by_case]
    assert len(tuned) == 2 and not any(summary.scales.scale(case, "test/loss").is_usable for case in tuned)
    assert all(summary.scales.scale(case, "train/loss").is_usable for case in tuned)
    found = summary.mean_score(0, "test/loss")
    assert found.num_missing == 2 and not found.scores.keys() & summary.scales.baselines.baseline_by_case.keys()


def test_without_a_baseline_nothing_is_tuned(tmp_path: Path) -> None:
    found = Scales.of(subjects(make_store(tmp_path)), [tmp_path])
    assert found.baselines == CaseBaselines() and (found.num_cases, found.baseline_label) == (3, "")


def test_compare_says_what_its_scale_is(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    command = ("compare", f"{store}@0", f"{store}@2")
    tuned = run(tmp_path, *command, "--baseline", suite).stdout
    assert SHOWN["tuned-adam-on-2-of"] in tuned
    assert SHOWN["without-a-baseline-digits"] in tuned and SHOWN["run-lobench-baseline-nowhere"] in tuned
    among = run(tmp_path, *command).stdout
    assert SHOWN["best-mean-that-is-stored-on"] in among and SHOWN["baseline-suite-names-one"] in among
    (pair,) = json.loads(run(tmp_path, *command, "--format", "json").stdout)
    assert pair["scale"] in among


def test_baselines_beside_the_suite_of_the_stores_cases_are_found(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    suite.rename(tmp_path / "nowhere")  # where the store's cases say that they are
    compared = run(tmp_path, "compare", f"{store}@0", f"{store}@2").stdout
    assert SHOWN["tuned-adam-on-2-of"] in compared
    runs = run(tmp_path, "results", "--store", store, "--history").stdout
    assert SHOWN["tuned-adam-on-2-of"] in runs
    elsewhere = run(store, "results", "--store", store, "--history").stdout
    assert SHOWN["best-mean-that-is-stored-on"] in elsewhere


def test_a_stale_baseline_is_an_error_where_it_was_named_and_else_a_note(tmp_path: Path) -> None:
    store, suite = make_store(tmp_path), make_baseline(tmp_path)
    (file,) = (suite / "baselines").iterdir()
    file.write_text(file.read_text().replace("problem of case0", "what it was before"))
    command = ("compare", f"{store}@0", f"{store}@2")
    named = run(tmp_path, *command, "--baseline", suite)
    assert named.returncode == 2 and len(named.stderr.splitlines()) == 1
    assert (
        SHOWN["digits-case0-the-baseline-tuned"] in named.stderr
        and SHOWN["lobench-baseline-suites-digits"] in named.stderr
    )
    suite.rename(tmp_path / "nowhere")
    found = run(tmp_path, *command)
    assert SHOWN["tuned-adam-on-1-of"] in found.stdout
    assert SHOWN["without-a-baseline-digits-case0"] in found.stdout


NAME = "train/loss"
VALUES = st.floats(2.0**-20, 8.0, width=32)


@st.composite
def cells(draw: st.DrawFn) -> Cell:
    """A cell of few seeds: some diverged, some without a start, some that are not lobench's."""
    seeds = draw(st.lists(st.integers(0, 5), max_size=4, unique=True))
    diverged = draw(st.sets(st.sampled_from(seeds), max_size=2)) if seeds else set()
    begun = draw(st.lists(st.sampled_from(seeds), unique=True)) if seeds else []
    return Cell(
        case=case_info("a"),
        final_values={NAME: {seed: math.nan if seed in diverged else draw(VALUES) for seed in seeds}} if seeds else {},
        untrained_values={NAME: {seed: draw(VALUES | st.just(math.nan)) for seed in begun}} if begun else {},
        diverged_at=dict.fromkeys(diverged, 3),
        draws=draw(st.sampled_from([LOBENCH_SEEDS, LOBENCH_SEEDS, "", "other"])),
    )


@given(st.lists(cells(), min_size=1, max_size=6))
def test_the_scores_of_all_cells_at_once_are_those_of_each_alone(among: list[Cell]) -> None:
    case = among[0].case
    scales = Scales(all_cells={case.identity: among}, cases={case.identity: case})
    scale = scales.scale(case, NAME)
    for cell in among:
        alone = seed_scores(cell.final_values.get(NAME, {}), scales.cell_starts(cell, NAME), cell.diverged_at, scale)
        assert repr(scales.scores(cell, None)) == repr(alone)  # NaN is NaN


def test_scale_of_single_values_does_not_begin_at_a_file_without_a_step(tmp_path: Path) -> None:
    values = {"ckpt_20.pt": (20, [1.0, 1.1]), "ckpt_40.pt": (40, [0.2, 0.3]), "last.pt": (0, [0.1, 0.2])}
    for place, (name, (step, finals)) in enumerate(values.items()):
        of_case = {"a": {"valid/loss": [[value] for value in finals]}}
        identity = {"uri": f"run/{name}", "sha256": f"{place:064x}"}
        add(tmp_path, step, of_case, primary_metric="valid/loss", evaluator="command", **identity)
    known = subjects(tmp_path)
    scales = Scales.of(known)
    found = {one.label: sum(scales.scores(one.cells["s/a"], None).values()) / 2 for one in known}
    assert found["ckpt_20.pt"] == 0
    assert 0 < found["ckpt_40.pt"] < found["last.pt"]
