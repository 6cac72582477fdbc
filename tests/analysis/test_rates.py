"""Coverage and false alarms in small simulations with fixed seeds; `benchmarks/` has the large ones."""

from __future__ import annotations

import sys

import pytest
from reference import ROOT

from lobench.analysis.intervals import Interval, stratified_t_mean

sys.path.insert(0, str(ROOT / "benchmarks"))

from coverage import coverage
from gate_rates import power_of_named_seeds
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
