"""Aggregates against computations with scipy alone, to 1e-12."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats
from shown import texts_of

from lobench.analysis.stats.aggregates import (
    bootstrap_interval,
    iqm,
    iqm_interval,
    probability_of_improvement,
    probability_of_improvement_interval,
)

SHOWN = texts_of("analysis")

DRAW = np.random.default_rng(0)
RAGGED = [DRAW.standard_normal(n).round(1).tolist() for n in (4, 5, 3, 7, 2, 6)]
OTHERS = [DRAW.standard_normal(n).round(1).tolist() for n in (3, 5, 5, 4, 6, 2)]


def scores(shape: str, seed: int) -> tuple[list[list[float]], list[list[float]]]:
    """Two sides, the same cases: normal; of five values alone, so that most are equal; of one to nine seeds a case."""
    draw = np.random.default_rng(seed)
    sides = []
    for _ in range(2):
        sizes = draw.integers(1, 10, 26).tolist() if shape == "ragged" else [5] * 26
        cells = [draw.normal(0.8, 0.5, size) for size in sizes]
        sides.append([(cell.round(0) if shape == "tied" else cell).clip(-1, 2).tolist() for cell in cells])
    return sides[0], sides[1]


@pytest.mark.parametrize("shape", ["random", "tied", "ragged"])
@pytest.mark.parametrize("seed", range(20))
def test_aggregates_are_those_of_scipy_alone(shape: str, seed: int) -> None:
    ours, theirs = scores(shape, seed)
    pooled = np.concatenate(ours)
    shares = [
        stats.mannwhitneyu(x, y, method="asymptotic").statistic / (len(x) * len(y))
        for x, y in zip(ours, theirs, strict=True)
    ]
    found = [iqm(ours), probability_of_improvement(ours, theirs)]
    known = [stats.trim_mean(pooled, 0.25), stats.tmean(shares)]
    np.testing.assert_allclose(found, known, rtol=0, atol=1e-12)


def test_aggregates_by_hand() -> None:
    assert iqm([[0.0, 1.0, 2.0, 30.0]]) == 1.5
    assert probability_of_improvement([[1.0, 1.0]], [[1.0, 0.0]]) == 0.75
    with pytest.raises(ValueError, match=SHOWN["cases-against-1"]):
        probability_of_improvement(RAGGED, [[1.0]])


@given(st.lists(st.lists(st.floats(-1, 2), min_size=1, max_size=5), min_size=1, max_size=5))
def test_the_other_way_round_is_the_rest(cells: list[list[float]]) -> None:
    others = [[value / 2 for value in cell] for cell in cells]
    total = probability_of_improvement(cells, others) + probability_of_improvement(others, cells)
    assert total == pytest.approx(1, abs=1e-12)


def test_intervals_hold_their_estimates_and_repeat() -> None:
    for interval in (
        iqm_interval(RAGGED, num_resamples=500),
        probability_of_improvement_interval(RAGGED, OTHERS),
    ):
        assert interval.lower <= interval.mean <= interval.upper
    # Bounds of a bootstrap have NaN for degrees, which equals itself in a text alone.
    assert repr(iqm_interval(RAGGED, num_resamples=500)) == repr(iqm_interval(RAGGED, num_resamples=500))


def test_improvement_interval_of_one_case_is_newcombes() -> None:
    # Newcombe 2006, part 2, method 5, by scipy's root finder: the P whose variance reaches the observed .625.
    x, y = [1.0, 4.0, 6.0, 8.0], [0.0, 2.0, 5.0, 7.0]
    found = probability_of_improvement_interval([x], [y])
    assert found.mean == 10 / 16

    def excess(p: float) -> float:
        variance = p * (1 - p) * (1 + 3 * ((1 - p) / (2 - p) + p / (1 + p))) / 16
        return abs(p - 10 / 16) - 1.959963984540054 * math.sqrt(variance) - 1 / 32

    lower, upper = (optimize.brentq(excess, end, 10 / 16) for end in (1e-9, 1 - 1e-9))
    assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=1e-9)
    assert math.isnan(probability_of_improvement_interval([[1.0], *RAGGED], [[1.0, 2.0], *OTHERS]).lower)


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_improvement_interval_of_few_seeds_contains_one_half_when_one_side_wins_all(num_seeds: int) -> None:
    found = probability_of_improvement_interval([[1.0] * num_seeds], [[0.0] * num_seeds])
    assert (found.mean, found.upper) == (1, 1) and found.lower <= 0.5
    several = probability_of_improvement_interval([[1.0] * num_seeds] * 6, [[0.0] * num_seeds] * 6)
    assert 0.5 < several.lower < 0.95
    one_group = probability_of_improvement_interval([[1.0] * num_seeds] * 6, [[0.0] * num_seeds] * 6, groups=[range(6)])
    assert one_group.lower <= 0.5


def test_improvement_interval_of_a_group_is_that_of_its_case_repeated() -> None:
    x, y = [1.0, 4.0, 6.0, 8.0, 9.0, 10.0], [0.0, 2.0, 5.0, 7.0, 3.0, 6.5]
    one = probability_of_improvement_interval([x], [y])
    same = probability_of_improvement_interval([x] * 4, [y] * 4, groups=[range(4)])
    apart = probability_of_improvement_interval([x] * 4, [y] * 4)
    assert same.lower == pytest.approx(one.lower, abs=0.02) and apart.lower > one.lower + 0.1


def test_bootstrap_resamples_the_seeds_of_a_group_together() -> None:
    cell = [1.0, 2.0, 4.0, 7.0, 11.0]
    one = iqm_interval([cell])
    together = iqm_interval([cell] * 4, groups=[range(4)])
    apart = iqm_interval([cell] * 4)
    assert together.upper - together.lower == pytest.approx(one.upper - one.lower, rel=0.25)
    assert apart.upper - apart.lower < 0.7 * (together.upper - together.lower)


def test_bootstrap_intervals_are_stretched_for_few_seeds() -> None:
    cells = [[0.0, 1.0]] * 20

    def mean(resampled: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(resampled, axis=1).mean(axis=1)

    plain = 2 * 1.96 * 0.5 / math.sqrt(40)  # of values that are 0 or 1, resampled as they are
    lower, upper = bootstrap_interval(cells, mean)
    assert (upper - lower) / plain == pytest.approx(math.sqrt(2) * stats.t.ppf(0.975, 20) / 1.96, rel=0.05)


def test_what_cannot_be_resampled_has_no_interval_and_nothing_vanishes() -> None:
    assert math.isnan(iqm_interval([[1.0], [1.0, 2.0]]).lower)
    assert math.isnan(iqm([[1.0, math.nan, 2.0, 3.0]]))
    assert math.isnan(probability_of_improvement([[math.nan, 1.0]], [[0.0, 0.5]]))
    with pytest.raises(ValueError, match=SHOWN["seed-in-each"]):
        iqm([[1.0], []])


def test_an_interval_has_the_percentiles_of_the_resampled_around_the_estimate() -> None:
    def evenly(resampled: list[np.ndarray]) -> np.ndarray:
        return np.linspace(0, 100, len(resampled[0])) if len(resampled[0]) > 1 else np.asarray([7.0])

    half = 45 * math.sqrt(2) * stats.t.ppf(0.95, 1) / stats.norm.ppf(0.95)
    assert bootstrap_interval([[1.0, 2.0]], evenly, confidence=0.9) == pytest.approx((7 - half, 7 + half))


def test_intervals_of_the_interquartile_mean_hold_it_if_seeds_diverge() -> None:
    """A tenth of the seeds scores -1; the plain percentile interval holds the truth in .89."""
    draw, held, worlds = np.random.default_rng(0), 0, 300
    many = np.where(draw.random(400_000) < 0.1, -1.0, draw.normal(0.8, 0.1, 400_000))
    truth = float(stats.trim_mean(many, 0.25))
    for _ in range(worlds):
        scores = np.where(draw.random((10, 5)) < 0.1, -1.0, draw.normal(0.8, 0.1, (10, 5)))
        found = iqm_interval(scores.tolist(), num_resamples=300)
        held += found.lower <= truth <= found.upper
    assert held / worlds >= 0.93 - 0.015
