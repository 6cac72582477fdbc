"""`lobench suite`: planted cases are seen for what they are, and subsets are judged by methods that did not choose."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from commands import lobench
from report_store import make_baseline, make_store
from scipy.stats import spearmanr, t
from shown import texts_of

from lobench.analysis.store.snapshot import Snapshot
from lobench.core.errors import StoreError
from lobench.tools.suite.suite_output import suite_record, suite_text
from lobench.tools.suite.worth import SuiteScores, seed_noise, seeds_needed, suite_worth

SHOWN = texts_of("suite")

NAMES = ("one", "its copy", "another", "nothing")


def planted(rng: np.random.Generator, num_methods: int = 18, num_seeds: int = 5) -> list[list[dict[int, float]]]:
    """Two kinds of skill; the second case is the first one's copy, and the last one tells nothing."""
    skill = rng.standard_normal((num_methods, 2)) * 0.3
    truth = np.stack([skill[:, 0], skill[:, 0], skill[:, 1], 0 * skill[:, 0]], axis=1)
    common = rng.standard_normal((1, 4, num_seeds))  # what a seed does to all methods alike is no noise
    found = truth[:, :, None] + common + 0.05 * rng.standard_normal((num_methods, 4, num_seeds))
    return [[dict(enumerate(cell)) for cell in row] for row in found.tolist()]


def worth(scores: list[list[dict[int, float]]], **more: float) -> object:
    methods = [f"m{place}" for place in range(len(scores))]
    judged = SuiteScores(methods=methods, cases=NAMES, scores=scores, seconds=[1.0, 2.0, 3.0, 4.0])
    return suite_worth(judged, num_splits=50, **more)


def test_a_copy_adds_nothing_and_a_silent_case_is_told() -> None:
    found = worth(planted(np.random.default_rng(0)))
    one, copy, another, nothing = found.cases
    assert one.signal == pytest.approx(0.3, rel=0.5) and one.noise == pytest.approx(0.05, rel=0.3)
    assert one.own < 0.3 and another.own > 0.5
    assert nothing.p_value > 0.05 > max(one.p_value, copy.p_value, another.p_value)
    assert nothing.signal < 0.03
    first_two = {NAMES[case] for case in found.subsets[1].cases}
    assert "another" in first_two and "nothing" not in first_two, "one of the two copies is enough"
    assert found.subsets[-1].lower == found.subsets[-1].share_of_cost == 1.0


def test_noise_is_what_is_left_when_method_and_seed_are_known() -> None:
    rng = np.random.default_rng(1)
    table = rng.standard_normal((6, 1)) * 9 + rng.standard_normal((1, 400)) * 7 + 0.25 * rng.standard_normal((6, 400))
    assert seed_noise([dict(enumerate(row)) for row in table.tolist()]) == pytest.approx(0.25, rel=0.05)
    apart = [{seed + 1000 * place: value for seed, value in enumerate(row)} for place, row in enumerate(table.tolist())]
    assert seed_noise(apart) == pytest.approx(7, rel=0.1), "no seed is common: what seeds do cannot be told from noise"
    assert math.isnan(seed_noise([{0: 1.0}, {1: 2.0}]))


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.3])
def test_as_many_seeds_are_needed_as_give_a_paired_test_its_power(noise: float) -> None:
    rng, difference = np.random.default_rng(2), 0.1
    count = seeds_needed(noise, difference)
    pairs = difference + noise * math.sqrt(2) * rng.standard_normal((4000, count))
    values = pairs.mean(axis=1) / (pairs.std(axis=1, ddof=1) / math.sqrt(count))
    assert 0.76 < np.mean(values > t.ppf(0.975, count - 1)) < 0.9
    assert seeds_needed(noise, 1e-9) is None


def test_subsets_are_judged_on_methods_that_did_not_choose() -> None:
    """Where all cases are noise, a subset looks good to those who chose it, and to nobody else."""
    rng, output = np.random.default_rng(3), []
    means = rng.standard_normal((20, 12))
    scores = [[{0: value, 1: value} for value in row] for row in means.tolist()]
    names = [f"case{place}" for place in range(12)]
    methods = [f"m{row}" for row in range(20)]
    found = suite_worth(SuiteScores(methods=methods, cases=names, scores=scores, seconds=[1.0] * 12))
    for subset in found.subsets[:3]:
        chosen = spearmanr(means[:, list(subset.cases)].mean(axis=1), means.mean(axis=1)).statistic
        output.append(chosen - subset.rank_correlation)
    assert min(output) > 0.05 and found.chosen is None


@pytest.mark.parametrize("num_methods", [6, 11])
def test_few_methods_give_no_interval_and_no_subset(num_methods: int) -> None:
    found = worth(planted(np.random.default_rng(0), num_methods=num_methods), keep=0.0)
    assert found.chosen is None and all(math.isnan(subset.lower) for subset in found.subsets[:-1])
    text = suite_text(found)
    assert SHOWN["no-subset-is-offered"] in text and "[" not in text, text


def test_no_interval_of_a_subset_has_zero_width() -> None:
    found = worth(planted(np.random.default_rng(0), num_methods=18), keep=0.0)
    intervals = [(one["lower"], one["upper"]) for one in suite_record(found)["subsets"]]
    assert all(math.isnan(lower) or lower < upper for lower, upper in intervals)
    assert math.isnan(intervals[-1][0]), "all cases have the rank correlation 1 by definition"


def test_too_few_methods_are_refused_with_what_to_do() -> None:
    with pytest.raises(StoreError, match=SHOWN["got-5-methods-expected-at"]):
        worth(planted(np.random.default_rng(0), num_methods=5))


def test_a_suite_is_judged_by_its_tuned_baselines(tmp_path: Path) -> None:
    done = lobench("suite", "quick", "--output", "page.html", cwd=tmp_path)
    assert done.returncode == 0 and SHOWN["cases-by"] in done.stdout, done.stderr
    assert (tmp_path / "page.html").read_text().count("<svg") == 2
    found = json.loads(lobench("suite", "quick", "--format", "json", "--keep", "0", cwd=tmp_path).stdout)
    assert len(found["cases"]) == 6 and len(found["chosen"]) == 1
    assert "STORE|SUITE" in lobench("suite", "--help", cwd=tmp_path).stdout


def test_a_store_is_judged_by_its_subjects_and_says_who_is_left_out(tmp_path: Path) -> None:
    store, baseline = make_store(tmp_path, num_checkpoints=9), make_baseline(tmp_path)
    done = lobench("suite", str(store), "--baseline", str(baseline), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "by 9 methods" in done.stdout or SHOWN["left-out"] in done.stdout
    few = lobench("suite", str(make_store(tmp_path / "few")), cwd=tmp_path)
    assert few.returncode == 2 and SHOWN["too-little-to-judge-a"] in few.stderr
    (tmp_path / "empty").mkdir()
    empty = lobench("suite", "empty", cwd=tmp_path)
    assert empty.returncode == 2 and SHOWN["empty-neither-a-store-nor"] in empty.stderr
    gone = lobench("suite", "nowhere", cwd=tmp_path)
    assert (gone.returncode == 2 and SHOWN["no-such-suite"] in gone.stderr) or SHOWN["no-store"] in gone.stderr


def test_a_store_that_other_code_made_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, baseline = make_store(tmp_path, num_checkpoints=9), make_baseline(tmp_path)
    monkeypatch.setattr(Snapshot, "edited_code_line", lambda self: "its code is old")
    for options, stream in (((), "stdout"), (("--format", "json"), "stderr")):
        done = lobench("suite", str(store), "--baseline", str(baseline), *options)
        assert "its code is old" in getattr(done, stream), done
