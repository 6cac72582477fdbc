"""Coverage and false alarms in small simulations with fixed seeds; `benchmarks/` has the large ones."""

from __future__ import annotations

import json
import sys

import pytest
from reference import ROOT
from stores import case_info

from lobench.analysis.scores.baseline_file import Baseline
from lobench.analysis.scores.score_scale import ScaleKind, scores
from lobench.analysis.stats.intervals import Interval, stratified_t_mean
from lobench.core.metric import Direction

sys.path.insert(0, str(ROOT / "benchmarks"))

from coverage import coverage, coverage_of_losses
from gate_rates import (
    false_alarms_on_losses,
    passed_regressions,
    power_of_named_seeds,
    seeds_to_pass,
)
from quick_subjects import FACTOR_FILE, SUITE
from simulated_seeds import Population


@pytest.mark.parametrize("num_cases", [10, 26])
@pytest.mark.parametrize("kind", ["normal", "skewed", "diverged"])
def test_the_mean_over_cases_covers_its_expectation(kind: str, num_cases: int) -> None:
    population = Population(kind=kind, num_cases=num_cases)
    found = coverage(population, 5, population.many().mean(), stratified_t_mean, 2000)
    assert 0.93 <= found <= 0.97


def test_an_interval_that_is_too_narrow_is_seen() -> None:
    def narrow(cells: list[list[float]]) -> Interval:
        return stratified_t_mean(cells, 0.85)

    population = Population(kind="normal", num_cases=10)
    assert coverage(population, 5, population.many().mean(), narrow, 400) < 0.9


def test_the_named_seeds_have_the_power_that_was_asked() -> None:
    power, median, oracle = power_of_named_seeds(0.1, 4, 200)
    assert power >= 0.9 and median <= 2.5 * oracle


@pytest.mark.parametrize(
    ("sigma", "num_cases", "untrained", "kind", "expected"),
    [
        (1.0, 1, 100.0, ScaleKind.LOG, 0.945),
        (1.0, 1, 100.0, ScaleKind.LINEAR, 0.825),
        (3.0, 6, 1e6, ScaleKind.LOG, 0.955),
        (3.0, 6, 1e6, ScaleKind.LINEAR, 0.43),
    ],
)
def test_where_seeds_differ_by_decades_the_log_scale_covers(
    sigma: float, num_cases: int, untrained: float, kind: ScaleKind, expected: float
) -> None:
    found = coverage_of_losses(sigma, num_cases, untrained, kind, 500)
    assert found == pytest.approx(expected, abs=0.06 if kind is ScaleKind.LINEAR else 0.025)


@pytest.mark.parametrize(("sigma", "num_cases"), [(1.0, 1), (3.0, 6)])
def test_no_more_false_alarms_than_alpha_at_the_tolerated_ratio(sigma: float, num_cases: int) -> None:
    assert false_alarms_on_losses(sigma, num_cases, 400) <= 0.06


def test_the_seeds_that_pass_what_did_no_harm() -> None:
    found = {margin: (seeds_to_pass(0.06, margin), seeds_to_pass(0.08, margin)) for margin in (0.02, 0.05, 0.1)}
    assert found == {0.02: (79, 139), 0.05: (14, 24), 0.1: (5, 8)}


def test_no_clear_regression_passes() -> None:
    log, linear = passed_regressions(ScaleKind.LOG), passed_regressions(ScaleKind.LINEAR)
    assert log["gate"][1] >= 20 and (log["gate"][0], log["mean"][0]) == (0, 0)
    # The linear scale lets pass what is out of its sight, near 1.
    assert linear["mean"][0] > 0 and linear["case"][0] > 10 * log["case"][0]
    assert log["case"][0] <= 0.02 * log["case"][1]


def test_adam_at_its_tuned_rate_is_the_baseline() -> None:
    """The stored subject with factor 1 was trained four seeds wide, the baseline seventy-five: the rest is rounding."""
    subject = json.loads(FACTOR_FILE.read_text(encoding="utf-8"))["1"]
    baseline = Baseline.load(SUITE.parent / "baselines" / "adam-velo.json")
    for key, case in baseline.cases.items():
        cell = subject[key.partition(":")[2]]["train/loss"]
        info = case_info("any")
        scale = case.score_scale("train/loss", Direction.MIN, is_primary=info.primary_metric == "train/loss")
        ours, tuned = (
            scores(side, scale, starts=cell["starts"]) for side in (cell["finals"], case.tuned["train/loss"][:4])
        )
        assert abs(float((ours - tuned).mean())) < 0.005, key
