"""Imported curves in a store: once, whole, marked, and told apart from what lobench trained."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from imported import curve, held, write_csv
from scipy import stats
from shown import texts_of
from stores import add

from lobench import open_results
from lobench.analysis.store.snapshot import read_store
from lobench.api.compare import compare
from lobench.core.errors import UsageError
from lobench.pytest_plugin.references import _store_reference
from lobench.tools.curve_import.evaluations import number_seeds
from lobench.tools.curve_import.imports import import_curves
from lobench.tools.curve_import.points import CurveRun

SHOWN = texts_of("import")

ADAM, MINE = (0.31, 0.29, 0.35), (0.21, 0.24, 0.20, 0.22)


def two_methods(path: Path, *, mine: tuple[float, ...] = MINE, starts: float = 2.3) -> Path:
    rows = [row for seed, last in enumerate(ADAM) for row in curve("adam", seed, [starts, 1.0, last])]
    rows += [row for seed, last in enumerate(mine) for row in curve("mine", seed, [starts, 0.8, last])]
    return write_csv(path, rows)


def test_a_second_import_adds_nothing(tmp_path: Path) -> None:
    file, store = two_methods(tmp_path / "a.csv"), tmp_path / "store"
    first = import_curves(file, store=store)
    before = held(store)
    again = import_curves(file, store=store)
    assert (first.num_new, again.num_new, again.num_known) == (7, 0, 7)
    moved = import_curves(shutil.copy(file, tmp_path / "b.csv"), store=store)
    assert (moved.num_new, moved.num_known) == (0, 7)
    assert held(store) == before
    assert len(read_store(store).subjects) == 2


def test_a_file_with_more_seeds_adds_them_and_says_that_it_changed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    import_curves(two_methods(tmp_path / "a.csv", mine=MINE[:2]), store=store)
    grown = import_curves(two_methods(tmp_path / "a.csv"), store=store)
    assert (grown.num_new, grown.num_known) == (2, 5)
    assert any(SHOWN["csv-has-changed-since-it"] in note for note in grown.notes)


def test_other_values_are_refused_whole_and_replaced_where_that_is_asked(tmp_path: Path) -> None:
    store = tmp_path / "store"
    import_curves(two_methods(tmp_path / "a.csv"), store=store)
    before = held(store)
    two_methods(tmp_path / "a.csv", mine=(*MINE[:3], 0.19, 0.18))
    with pytest.raises(UsageError, match=SHOWN["other-values-of-mine-case"]):
        import_curves(tmp_path / "a.csv", store=store)
    assert held(store) == before, "a part was written"
    other = write_csv(tmp_path / "b.csv", curve("mine", 0, [2.3, 0.9]))
    with pytest.raises(UsageError, match=SHOWN["those-of-a-csv-replace"]):
        import_curves(other, store=store)
    assert import_curves(other, store=store, rename=["mine=theirs"]).num_new == 1
    import_curves(two_methods(tmp_path / "a.csv", mine=(0.5,)), store=store, replace=True)
    found = {key[:1] + key[2:]: points["val/loss"][-1][1] for key, points in held(store).items()}
    assert found == {("adam", 0): 0.31, ("adam", 1): 0.29, ("adam", 2): 0.35, ("mine", 0): 0.5, ("theirs", 0): 0.9}


def test_a_run_that_has_gone_on_is_refused_with_both_ends(tmp_path: Path) -> None:
    store = tmp_path / "store"
    import_curves(write_csv(tmp_path / "a.csv", curve("mine", 0, [2.3, 0.9])), store=store)
    longer = write_csv(tmp_path / "a.csv", curve("mine", 0, [2.3, 0.9, 0.8]))
    expected = SHOWN["only-a-part-of-mine"]
    with pytest.raises(UsageError, match=expected):
        import_curves(longer, store=store)
    assert import_curves(longer, store=store, replace=True).num_replaced == 1
    assert held(store) == {("mine", "imported/mnist", 0): {"val/loss": [(0, 2.3), (100, 0.9), (200, 0.8)]}}


def test_a_run_keeps_its_seed_wherever_it_stands_in_a_later_file(tmp_path: Path) -> None:
    store, old = tmp_path / "store", [*curve("adam", "run-b", [2.0, 0.2]), *curve("adam", "run-c", [2.0, 0.3])]
    import_curves(write_csv(tmp_path / "a.csv", old), store=store)
    grown = write_csv(tmp_path / "a.csv", [*curve("adam", "run-a", [2.0, 0.1]), *old])
    again = import_curves(grown, store=store)
    assert (again.num_new, again.num_known) == (1, 2)
    assert [held(store)["adam", "imported/mnist", seed]["val/loss"][-1][1] for seed in range(3)] == [0.2, 0.3, 0.1]
    with pytest.raises(UsageError, match=SHOWN["got-this-very-file-imported"]):
        import_curves(grown, store=store, until_step=["0"])
    assert import_curves(grown, store=store, until_step=["0"], replace=True).num_new == 3


def test_a_failing_import_makes_no_store_and_leaves_one_as_it_was(tmp_path: Path) -> None:
    bad = write_csv(tmp_path / "bad.csv", [*curve("adam", 0, [2.3, 0.5]), *curve("adam", 0, [2.3])])
    with pytest.raises(UsageError, match="twice"):
        import_curves(bad, store=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    import_curves(two_methods(tmp_path / "a.csv"), store=tmp_path / "store")
    before = held(tmp_path / "store")
    with pytest.raises(UsageError, match="twice"):
        import_curves(bad, store=tmp_path / "store", rename=["adam=new"])
    assert held(tmp_path / "store") == before


def test_it_is_marked_as_imported_everywhere(tmp_path: Path) -> None:
    file, store = two_methods(tmp_path / "a.csv"), tmp_path / "store"
    import_curves(file, store=store)
    records = json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    assert {(one["kind"], one["label"], one["program"]) for one in records} == {
        ("imported", SHOWN["adam-imported"], "imported"),
        ("imported", SHOWN["mine-imported"], "imported"),
    }
    origin = records[0]["imported"]
    assert (origin["file"], origin["kind"], len(origin["sha256"])) == (str(file), "tidy", 64)
    assert SHOWN["of-2-imported-methods"] in lobench("results", "--store", store, "--evaluations").stdout
    assert SHOWN["adam-imported"] in lobench("results", "--store", store, "--by", "method").stdout
    report = lobench("report", "--store", store, "--output", tmp_path / "r.html")
    assert report.returncode == 0, report.stderr
    assert SHOWN["mine-imported"] in (tmp_path / "r.html").read_text()


def test_without_common_seeds_compare_takes_welchs_interval(tmp_path: Path) -> None:
    import_curves(two_methods(tmp_path / "a.csv"), store=tmp_path / "store")
    (pair,) = compare("adam", "mine", store=tmp_path / "store").pairs
    (values,) = pair.primary.values.values()
    expected = stats.ttest_ind(np.float32(MINE).astype(float), np.float32(ADAM).astype(float), equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert values.method == "welch"
    assert (values.mean, values.lower, values.upper) == pytest.approx(
        (np.mean(MINE) - np.mean(ADAM), interval.low, interval.high), rel=1e-6
    )
    assert values.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert pair.primary.num_pairs == 0


def test_seeds_that_are_said_to_be_the_same_draws_are_paired(tmp_path: Path) -> None:
    import_curves(two_methods(tmp_path / "a.csv"), store=tmp_path / "store", paired_seeds=True)
    (pair,) = compare("adam", "mine", store=tmp_path / "store").pairs
    (values,) = pair.primary.values.values()
    expected = stats.ttest_rel(np.float32(MINE[:3]), np.float32(ADAM)).confidence_interval(0.95)
    assert (values.method, pair.primary.num_pairs) == ("paired", 3)
    assert (values.lower, values.upper) == pytest.approx((expected.low, expected.high), rel=1e-5)
    (note,) = pair.primary.notes.values()
    assert note.endswith(SHOWN["common-seeds-of-3-and"])  # the means that stand beside are over all
    text = write_csv(tmp_path / "b.csv", curve("adam", "first", [1.0]))
    with pytest.raises(UsageError, match=SHOWN["seed-of-curves-with-equal"]):
        import_curves(text, store=tmp_path / "other", paired_seeds=True)


def test_seeds_of_equal_draws_may_be_the_fresh_ones_of_a_search() -> None:
    run = CurveRun("t 1 on fresh seeds", "bowl", "1000000")
    assert [number_seeds([run], are_draws=are_draws)[run] for are_draws in (True, False)] == [1_000_000, 0]


def test_the_gates_verdict_is_the_exit_code(tmp_path: Path) -> None:
    import_curves(two_methods(tmp_path / "a.csv"), store=tmp_path / "store")
    assert lobench("compare", "adam", "mine", "--store", tmp_path / "store").returncode == 0
    worse = lobench("compare", "mine", "adam", "--store", tmp_path / "store", "--margin", "0.01")
    assert worse.returncode == 1 and "REGRESSED" in worse.stdout
    assert SHOWN["no-common-seeds-welch-s"] in worse.stdout


def test_compare_imports_prints_means_and_differences_of_one_statistic_and_one_sign(tmp_path: Path) -> None:
    import_curves(two_methods(tmp_path / "a.csv"), store=tmp_path / "store")
    output = lobench("compare", "adam", "mine", "--store", tmp_path / "store", "--details").stdout
    lines = [line for line in output.splitlines() if re.match("means of val/loss by case|imported/mnist", line)]
    header, row = (re.split(" {2,}", line) for line in lines[-2:])
    cells = dict(zip(header, row, strict=False))
    printed, better = (float(cells[name].split()[0]) for name in ("as printed, + is better", "score, + is better"))
    (pair,) = compare("adam", "mine", store=tmp_path / "store").pairs
    assert printed == pytest.approx(np.mean(ADAM) - np.mean(MINE), rel=1e-3) and printed > 0 and better > 0
    assert header[0] == SHOWN["means-of-val-loss-by"] and "ratio" not in cells
    assert float(row[1]) == pytest.approx(np.mean(ADAM), rel=1e-5)
    assert pair.b.label == SHOWN["mine-imported"] and better == pytest.approx(
        pair.primary.comparison.overall.mean, abs=1e-3
    )


def test_curves_of_a_case_that_lobench_trains_are_of_that_case(tmp_path: Path) -> None:
    store = tmp_path / "store"
    add(store, 100, {"relu32": {"train/loss": [0.5, 0.6, 0.4, 0.5]}})
    rows = [
        row
        for seed, last in enumerate((0.2, 0.3, 0.25))
        for row in [
            ("torch", "relu32", seed, step, "train_loss", v) for step, v in ((0, 2.0), (5, 1), (10, last), (15, 9))
        ]
    ]
    imported = import_curves(write_csv(tmp_path / "a.csv", rows), store=store)
    assert SHOWN["case-relu32-is-s-relu32"] in imported.notes
    (pair,) = compare("100", "torch", store=store).pairs
    (values,) = pair.primary.values.values()
    assert values.mean == pytest.approx(-0.25), "curves end where the case's training ends"
    assert values.method == "welch", "seed 0 of PyTorch is not lobench's"
    short = write_csv(
        tmp_path / "b.csv", [("short", "s/relu32", 0, 0, "train_loss", 2), ("short", "s/relu32", 0, 5, "train_loss", 1)]
    )
    with pytest.raises(UsageError, match=SHOWN["no-value-at-step-10"]):
        import_curves(short, store=store)
    other = write_csv(tmp_path / "c.csv", [("o", "relu32", 0, 10, "val_loss", 2)])
    with pytest.raises(UsageError, match=SHOWN["lacks-the-primary-metric-train"]):
        import_curves(other, store=store)


def test_lobenchs_own_results_keep_their_cases_and_pairs(tmp_path: Path) -> None:
    add(tmp_path / "one", 100, {"relu32": {"train/loss": [0.5, 0.6, 0.4, 0.55]}})
    add(tmp_path / "two", 200, {"relu32": {"train/loss": [0.4, 0.55, 0.3, 0.5]}})
    done = lobench(
        "results", "--store", tmp_path / "one", "--format", "json", "--curves", "--output", tmp_path / "one.json"
    )
    assert done.returncode == 0, done.stderr
    imported = import_curves(tmp_path / "one.json", store=tmp_path / "two")
    assert imported.kinds == ("lobench",)
    (pair,) = compare("theta_100.npz", "200", store=tmp_path / "two").pairs
    (values,) = pair.primary.values.values()
    assert (values.method, pair.primary.num_pairs) == ("paired", 4)
    assert values.mean == pytest.approx(-0.075)
    assert pair.a.label == SHOWN["theta-100-npz-imported"]


def test_a_watched_run_takes_no_import_for_its_checkpoint(tmp_path: Path) -> None:
    store = tmp_path / "store"
    add(store, 100, {"relu32": {"train/loss": [0.5, 0.6, 0.4, 0.5]}})
    import_curves(two_methods(tmp_path / "a.csv"), store=store)
    rows = sqlite3.connect(store / "ledger.sqlite").execute(
        "SELECT kind, admission, finished, (SELECT COUNT(*) FROM deliveries d WHERE d.position = s.position) "
        "FROM subjects s"
    )
    assert {row[:3] for row in rows if row[0] == "imported" and row[3] == 0} == {("imported", "admitted", 1)}
    best = lobench("best", "--store", store, "--top", "1")
    assert "imported" not in best.stdout


def test_curves_that_begin_later_have_a_scale_and_say_so(tmp_path: Path) -> None:
    rows = [("adam", "m", seed, step, "loss", v / step) for seed, v in ((0, 100), (1, 110)) for step in (10, 20, 40)]
    rows += [("mine", "m", seed, step, "loss", v / step) for seed, v in ((0, 50), (1, 54)) for step in (20, 40)]
    import_curves(write_csv(tmp_path / "a.csv", rows), store=tmp_path / "store")
    found = compare("adam", "mine", store=tmp_path / "store")
    assert SHOWN["other-methods-in-the-store"] in found.scale
    assert SHOWN["neither-has-a-step-0"] in found.pairs[0].primary.notes.popitem()[1]
    assert found.pairs[0].primary.comparison.overall.mean > 0


def test_seeds_of_other_lengths_have_a_mean_curve_on_their_common_steps(tmp_path: Path) -> None:
    rows = [*curve("adam", 0, [3, 2, 1]), *curve("adam", 1, [5, 4]), *curve("adam", "x", [1, 1])]
    imported = import_curves(write_csv(tmp_path / "a.csv", rows), store=tmp_path / "store")
    assert any(SHOWN["its-seeds-end-at-steps"] in note for note in imported.notes)
    (own,) = open_results(tmp_path / "store").curves("val/loss")
    assert (own.steps.tolist(), own.values.tolist()) == ([0, 100], [[3, 2], [5, 4], [1, 1]])
    report = lobench("report", "--store", tmp_path / "store", "--output", tmp_path / "r.html")
    assert report.returncode == 0, report.stderr
    (cell,) = read_store(tmp_path / "store").subjects[0].cells.values()
    assert (cell.steps.tolist(), cell.mean_curve("val/loss").tolist()) == ([0, 100], [3, pytest.approx(7 / 3)])
    assert [row.curves.provenance.imported["run"] for row in open_results(tmp_path / "store").rows].count("x") == 1


def test_seeds_without_a_common_step_have_their_ends(tmp_path: Path) -> None:
    rows = [("adam", "m", seed, step + seed, "loss", 10 - step) for seed in (0, 1) for step in (0, 4, 8)]
    import_curves(write_csv(tmp_path / "a.csv", rows), store=tmp_path / "store")
    (cell,) = read_store(tmp_path / "store").subjects[0].cells.values()
    assert (cell.steps.tolist(), cell.mean_curve("loss").tolist()) == ([9], [2])
    report = lobench("report", "--store", tmp_path / "store", "--output", tmp_path / "r.html")
    assert report.returncode == 0, report.stderr
    assert open_results(tmp_path / "store").curves("loss")[0].values.shape == (2, 0)


def test_a_diverged_run_is_data(tmp_path: Path) -> None:
    import_curves(
        write_csv(tmp_path / "a.csv", curve("adam", 0, [2.0, float("inf"), float("nan")])), store=tmp_path / "s"
    )
    (row,) = open_results(tmp_path / "s").rows
    assert (row.curves.diverged_at, str(row.outcome)) == ((100,), "passed")


def test_steps_to_a_target(tmp_path: Path) -> None:
    steps = {"adam": (300, 400, 300), "mine": (200, 200, 100, 300)}
    rows = [
        row
        for method, found in steps.items()
        for seed, at in enumerate(found)
        for row in curve(method, seed, [2.0 if 100 * place < at else 0.5 for place in range(6)])
    ]
    import_curves(write_csv(tmp_path / "a.csv", rows), store=tmp_path / "s")
    (cases,) = compare("adam", "mine", store=tmp_path / "s", target="val/loss=0.5").steps
    expected = stats.ttest_ind(steps["mine"], steps["adam"], equal_var=False).confidence_interval(0.95)
    assert (cases[0].difference.lower, cases[0].difference.upper) == pytest.approx((expected.low, expected.high))
    shown = lobench("compare", "adam", "mine", "--store", tmp_path / "s", "--target", "0.4", "--format", "json")
    record = json.loads(shown.stdout)[0]["steps_to_target"]["imported/mnist"]
    assert (record["a"]["num_reached"], record["difference"]["note"]) == (0, SHOWN["seed-did-not-get-there"])
    assert "--target" in lobench("compare", "adam", "mine", "--store", tmp_path / "s", "--target", "low").stderr


HOSTILE = ["<script>alert(1)</script>", "\x1b[31mred", "a;b=c", "../../up", "100", "ö" * 300, "a#b", "=1+2"]


def test_hostile_names_are_names(tmp_path: Path) -> None:
    store = tmp_path / "store"
    rows = [row for name in HOSTILE for seed in (0, 1) for row in curve(name, seed, [2, 1 + seed / 9], case=name)]
    import_curves(write_csv(tmp_path / "a.csv", rows), store=store)
    assert {key[0] for key in held(store)} == set(HOSTILE)
    assert [subject.subject.name for subject in read_store(store).subjects] == HOSTILE
    assert SHOWN["imported-methods-cases"].format(count=len(HOSTILE)) in repr(open_results(store))
    for command in (("results",), ("results", "--by", "method"), ("report", "--output", tmp_path / "r.html")):
        done = lobench(*command, "--store", store)
        assert done.returncode == 0 and "\x1b" not in done.stdout, done.stderr
    assert "<script>alert(1)" not in (tmp_path / "r.html").read_text()
    with pytest.raises(UsageError, match=SHOWN["no-case-in-common"]):
        compare("100", "a#b", store=store)


def test_an_imported_name_hides_no_checkpoint(tmp_path: Path) -> None:
    add(tmp_path / "s", 0, {"a": {"train/loss": [0.5, 0.6]}}, uri="run/7")
    add(tmp_path / "s", 7, {"a": {"train/loss": [0.5, 0.7]}})
    import_curves(write_csv(tmp_path / "a.csv", [("x", "a", 0, 10, "train_loss", 2)]), store=tmp_path / "s")
    (pair,) = compare("0", "7", store=tmp_path / "s").pairs
    assert (pair.a.checkpoint.uri, pair.b.checkpoint.outer_step) == ("run/7", 7)


def test_a_merged_store_tells_no_sink_of_imports(tmp_path: Path) -> None:
    import_curves(two_methods(tmp_path / "a.csv"), store=tmp_path / "one")
    add(tmp_path / "two", 1, {"a": {"train/loss": [0.5, 0.6]}})
    assert lobench("merge", tmp_path / "one", tmp_path / "two", "--output", tmp_path / "both").returncode == 0
    assert held(tmp_path / "both") == held(tmp_path / "one")
    completions = sqlite3.connect(tmp_path / "both" / "ledger.sqlite").execute(
        "SELECT DISTINCT s.kind FROM deliveries d JOIN subjects s ON s.position = d.position"
    )
    assert completions.fetchall() == [("checkpoint",)]


def test_a_gate_in_pytest_refuses_seeds_that_are_not_its_own(tmp_path: Path) -> None:
    rows = [("torch", "relu32", seed, step, "train_loss", 2) for seed in (0, 1) for step in (0, 10)]
    import_curves(write_csv(tmp_path / "a.csv", rows), store=tmp_path / "s")
    snapshot = read_store(tmp_path / "s")
    assert snapshot.subjects[snapshot.headline_index].subject.is_imported
    with pytest.raises(UsageError, match=SHOWN["seeds-of-imported-curves-are"]):
        _store_reference(tmp_path / "s")


def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    from lobench.engine.store.ledger import Ledger

    with Ledger.open(tmp_path / "store", name="a watch"):
        done = lobench("import", two_methods(tmp_path / "a.csv"), "--store", tmp_path / "store")
    assert done.returncode == 2 and SHOWN["a-watch"] in done.stderr and len(done.stderr.splitlines()) == 1
    assert (tmp_path / "store").is_dir()
