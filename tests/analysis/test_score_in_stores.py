"""The score where losses span decades, explode or are signed: what everything that tells of a store says."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path

import pytest
from commands import lobench
from report_store import make_baseline
from shown import texts_of
from stores import add, case_info, curves

from lobench.analysis.comparisons.gates import Verdict
from lobench.analysis.comparisons.method_comparison import MethodComparison, compare_subjects
from lobench.analysis.comparisons.summary import improvement_note, summary_of
from lobench.analysis.scores.baseline_file import Baseline
from lobench.analysis.scores.scales import Scales
from lobench.analysis.scores.score_scale import ScaleKind
from lobench.analysis.stats.comparison import Effect
from lobench.analysis.store.snapshot import read_store
from lobench.analysis.store.subjects import subjects_of
from lobench.analysis.tables.frames import open_results
from lobench.core.case import CaseInfo
from lobench.engine.store.ledger import Ledger
from lobench.report.tables.comparison import comparison_records
from lobench.report.tables.comparison_text import comparison_text

SHOWN = texts_of("analysis")


def compared(store: Path, **options: float) -> tuple[MethodComparison, Scales]:
    ledger = Ledger.open(store, read_only=True)
    subjects = subjects_of(ledger.evaluations())
    ledger.close()
    scales = Scales.of(subjects)
    (found,) = compare_subjects(subjects, scales=scales, **options)
    return found, scales


def test_eight_orders_of_magnitude_are_a_difference_and_no_pass(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [2.4e-8, 2.6e-8, 2.0e-8, 3.0e-8]}})
    add(tmp_path, 2, {"a": {"train/loss": [0.79, 0.8, 0.7, 0.76]}})
    found, _ = compared(tmp_path)
    assert found.primary.comparison.verdict is Effect.WORSE
    assert found.primary.gate.verdict is Verdict.REGRESSED
    ratio = found.primary.ratios["s/a"].interval
    assert ratio.lower < ratio.mean < ratio.upper and ratio.mean == pytest.approx(3e7, rel=0.2)
    text = comparison_text([found], scale="")
    assert SHOWN["b-is-worse-than"] in text.replace("theta_2.npz", "2") and "> 10,000 times" in text


@pytest.mark.parametrize(("num_a", "num_b"), [(0, 4), (4, 0)])
def test_comparison_text_of_a_side_without_converged_seeds_counts_cases_and_seeds(
    tmp_path: Path, num_a: int, num_b: int
) -> None:
    for step, lost in ((1, num_a), (2, num_b)):
        add(tmp_path, step, {"a": {"train/loss": [math.nan] * lost + [0.5, 0.6, 0.4, 0.55][lost:]}})
    found, _ = compared(tmp_path)
    first = comparison_text([found], scale="").splitlines()[0]
    assert (
        SHOWN["1-case-x-4-seeds"] in first
        and SHOWN["diverged-or-exploded-of-4"].format(num_b=num_b, num_a=num_a) in first
    )


def test_what_exploded_is_counted_beside_what_diverged_wherever_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add(store := tmp_path / "store", 1, {"a": {"train/loss": [0.5, 0.5]}})
    add(store, 2, {"a": {"train/loss": [4e13, 0.5]}})
    found, _ = compared(store)
    assert (found.a.num_exploded, found.b.num_exploded) == (0, 1)
    (record,) = comparison_records([found], scale="")
    assert (record["b"]["diverged"], record["b"]["exploded"], record["score_version"]) == (0, 1, 2)
    assert SHOWN["diverged-or-exploded-1-of"] in comparison_text([found], scale="").splitlines()[0]
    output = lobench("report", "--store", store, "--format", "text").stdout
    assert SHOWN["diverged-or-exploded-seeds-1"] in output
    (line, *_) = [
        row for row in lobench("results", "--store", store, "--evaluations").stdout.splitlines() if " 2 " in row
    ]
    assert line.split()[-4:-1][0:2] == ["0", "1"], line
    (run,) = json.loads(lobench("results", "--store", store, "--history", "--format", "json").stdout)
    assert (run["num_diverged"], run["num_exploded"], run["score_version"]) == (0, 1, 2)
    (one, two) = json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    assert (one["exploded"], two["exploded"]) == (0, 1)


@pytest.mark.parametrize(
    ("changes", "finals", "expected"),
    [
        ({}, [4.0, 4.1, math.nan], 1),
        ({"scale": "linear"}, [4.1], 0),
        ({}, [4.1, -1.0], 0),
        ({}, [1e30, math.nan, 4.0, 4.01, 2.0], 2),
        ({"minimum": 1.0}, [0.5, 3.5], 1),
        ({"minimum": 1.0}, [3.1, 2.9], 1),
        ({"primary_metric": "train/return"}, [9.0], 0),
    ],
)
def test_a_seed_explodes_above_twice_its_start(changes: dict[str, object], finals: list[float], expected: int) -> None:
    case: CaseInfo = dataclasses.replace(case_info("a"), **changes)
    assert curves({case.primary_metric: finals}).num_exploded(case) == expected


def test_exploded_counts_of_restarted_starts_and_single_points_agree_in_every_output(tmp_path: Path) -> None:
    """Each seed is measured against its own start: another subject's start, or one point alone, says nothing."""
    store = tmp_path / "store"
    finals = {"low(x)": [[0.1, 0.1], [0.1, 0.1]], "high(x)": [[1.0, 1.5], [1.0, 2.5]], "points(x)": [[5.0], [9.0]]}
    for name, values in finals.items():
        add(store, 0, {"a": {"train/loss": values}}, optimizer=name)
    expected = {"low(x)": 0, "high(x)": 1, "points(x)": 0}
    snapshot = read_store(store)
    by_subject = {one.label: one.num_exploded for one in snapshot.subjects}
    assert by_subject == expected
    assert [len(one.cells["s/a"].exploded_seeds) for one in snapshot.subjects] == list(expected.values())
    records = json.loads(lobench("results", "--store", store, "--format", "json").stdout)
    assert {one["label"]: one["exploded"] for one in records} == expected
    frame = open_results(store).evaluations()
    assert dict(zip(frame["label"], frame["exploded"], strict=True)) == expected
    for a, b in itertools.permutations(expected, 2):
        (record,) = json.loads(lobench("compare", a, b, "--store", store, "--format", "json").stdout)
        assert (record["a"]["exploded"], record["b"]["exploded"]) == (expected[a], expected[b])
    output = lobench("report", "--store", store, "--format", "text").stdout
    assert SHOWN["diverged-or-exploded-seeds-1-of"] in output


def test_signed_losses_are_linear_in_reports_and_decide_no_gate(tmp_path: Path) -> None:
    add(tmp_path, 1, {"a": {"train/loss": [0.5, 0.4]}, "b": {"train/loss": [0.5, 0.5]}})
    add(tmp_path, 2, {"a": {"train/loss": [-1.0, -1.2]}, "b": {"train/loss": [0.05, 0.05]}})
    found, scales = compared(tmp_path)
    assert scales.scale(found.cases["s/a"], "train/loss").kind is ScaleKind.LINEAR
    assert scales.scale(found.cases["s/b"], "train/loss").kind is ScaleKind.LOG
    # Without a baseline the case is linear from the start: nothing was frozen that is contradicted.
    assert not scales.is_signed(found.cases["s/a"], "train/loss")


def with_baseline(tmp_path: Path, finals: list[float], **tuned: object) -> Path:
    """Writes a store, a first subject at .5 and one with these finals, and a baseline beside its suite."""
    store = tmp_path / "store"
    suite = make_baseline(tmp_path)
    path = suite / "baselines" / "adam-velo.json"
    baseline = Baseline.load(path)
    case = dataclasses.replace(
        baseline.cases["digits.gin:case0"],
        untrained={"train/loss": 2.0},
        **{
            "starts": {"train/loss": (2.0,) * 5},
            "tuned": {"train/loss": (0.02, 0.03, 0.02, 0.01, 0.02)},
            **tuned,
        },
    )
    dataclasses.replace(baseline, cases={"digits.gin:case0": case}).save(path)
    add(store, 1, {"case0": {"train/loss": [0.5] * len(finals)}})
    add(store, 2, {"case0": {"train/loss": finals}})
    return suite


def test_a_signed_loss_on_a_frozen_log_scale_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = with_baseline(tmp_path, [-0.5, 0.02, 0.02, 0.02])
    done = lobench("compare", "1", "2", "--store", "store", "--baseline", suite)
    assert done.returncode == 0 and "INCONCLUSIVE" in done.stdout and 'Case.scale = "linear"' in done.stdout
    report = lobench("report", "--store", "store", "--baseline", suite, "--format", "text").stdout
    assert SHOWN["train-loss-lies-below-0"] in report
    assert "s/case0" in report.partition(SHOWN["lies-below-0"])[2]


def test_tuned_adam_is_compared_by_pairs_of_seeds(tmp_path: Path) -> None:
    """Seeds differ by a factor of three and the subject is a tenth better on each: unpaired nothing would show."""
    tuned = (0.02, 0.03, 0.02, 0.01, 0.02)
    suite = with_baseline(tmp_path, [0.9 * value for value in tuned[:4]])
    found = summary_of(tmp_path / "store", [suite]).comparison_with_tuned("primary")
    assert found is not None and len(found.cases) == 1 and found.num_undecidable == 0
    assert 0 < found.overall.lower <= found.overall.mean
    unit = math.fsum(math.log(2.0 / value) for value in tuned) / 5
    assert found.overall.mean == pytest.approx(-math.log(0.9) / unit, rel=1e-6)
    text = lobench("report", "--store", tmp_path / "store", "--baseline", suite, "--format", "text").stdout
    assert SHOWN["is-above-tuned-adam-on"] in text, text


def test_with_one_common_seed_tuned_adam_is_undecided(tmp_path: Path) -> None:
    found = summary_of(tmp_path / "store", [with_baseline(tmp_path, [0.02])]).comparison_with_tuned("primary")
    assert found is not None and (len(found.cases), found.num_undecidable) == (1, 1)


def test_thin_scales_and_missing_starts_are_named(tmp_path: Path) -> None:
    suite = with_baseline(tmp_path, [0.5, 0.5], tuned={"train/loss": (1.9, 0.001, 1.9, 1.9, 1.9)}, starts={})
    text = lobench("compare", "1", "2", "--store", tmp_path / "store", "--baseline", suite).stdout
    assert SHOWN["thin-scale-the-tuned-baseline"] in text
    assert SHOWN["taken-to-begin-at-the"] in text


def test_where_the_mean_and_the_seeds_disagree_the_headline_says_both(tmp_path: Path) -> None:
    """One seed in eight is terrible, the others are a little better, on each of four cases."""
    for step, finals in ((1, [0.2] * 8), (2, [*[0.19] * 7, 3.9])):
        add(tmp_path, step, {name: {"train/loss": finals} for name in "abcd"})
    found, _ = compared(tmp_path)
    effect = found.primary
    assert effect.comparison.verdict is Effect.UNDECIDED and effect.improvement_probability.lower > 0.5
    assert improvement_note(effect.comparison, effect.improvement_probability) == SHOWN["better-on-more-seeds-than"]
    first = comparison_text([found], scale="").splitlines()[0]
    assert SHOWN["no-difference"] in first and SHOWN["better-on-more-seeds-than"] in first
    report = lobench("report", "--store", tmp_path, "--format", "text").stdout
    assert SHOWN["no-difference-of-the-score"] in report


def test_a_margin_is_the_scales_default_unless_it_was_set(tmp_path: Path) -> None:
    finals = {"train/loss": [0.5, 0.5], "test/accuracy": [3.0, 3.0]}
    add(tmp_path, 1, {"a": finals})
    add(tmp_path, 2, {"a": {"train/loss": [0.4, 0.4], "test/accuracy": [4.0, 4.0]}})
    found, scales = compared(tmp_path)
    assert found.primary.margins == {"s/a": 0.05}
    unit = scales.scale(found.cases["s/a"], "train/loss").unit
    assert found.primary.tolerated_ratios == {"s/a": pytest.approx(math.exp(0.05 * unit))}
    assert compared(tmp_path, margin=0.3)[0].primary.margins == {"s/a": 0.3}
