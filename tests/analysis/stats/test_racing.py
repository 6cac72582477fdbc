"""Evidence of a race: against the formula written out, at a known level, and where it says nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lobench.analysis.stats.racing import PairSums, eliminated_methods, log_threshold


def pairs(values: np.ndarray, steps: float = 0.0) -> PairSums:
    """Sums of all pairs of methods: values[method, case, seed]."""
    return PairSums.of(values[:, None], values[None], np.full(values.shape[1], steps))


def log_evidence(y: np.ndarray) -> float:
    """The one-sided t Bayes factor as it is published, with a prior of variance 20."""
    n, g, total, squares = len(y), 20.0, y.sum(), (y**2).sum()
    if total <= 0:
        return -math.inf
    rest = squares - n**2 * g / (1 + n * g) * (total / n) ** 2
    return -math.log(1 + n * g) / 2 + n / 2 * (math.log(squares) - math.log(rest)) + math.log(2)


@given(st.integers(0, 1000), st.integers(3, 40), st.floats(-0.5, 2), st.floats(1, 8))
def test_the_mean_is_beyond_its_bound_where_the_evidence_is_above_the_level(
    seed: int, num_seeds: int, mean: float, level: float
) -> None:
    y = np.random.default_rng(seed).normal(mean, 1, num_seeds)
    sums = PairSums.of(y[None], np.zeros((1, num_seeds)))
    assert bool(sums.mean > sums.half_width(level)) == (log_evidence(y) > level)


@given(st.integers(0, 1000), st.integers(3, 40), st.floats(-0.5, 2))
def test_evidence_of_mean_is_half_of_the_one_sided_bayes_factor(seed: int, num_seeds: int, mean: float) -> None:
    y = np.random.default_rng(seed).normal(mean, 1, num_seeds)
    sums = PairSums.of(y[None], np.zeros((1, num_seeds)))
    expected = log_evidence(y) - math.log(2)
    assert sums.log_evidence_of_mean() == pytest.approx(expected, abs=1e-9)


def test_seeds_that_are_added_say_what_they_say_together() -> None:
    values = np.random.default_rng(0).normal(size=(3, 2, 12))
    values[1, 0, 4] = -np.inf
    whole, parts = pairs(values), pairs(values[..., :5]) + pairs(values[..., 5:])
    for name in PairSums.__slots__:
        np.testing.assert_allclose(getattr(whole, name), getattr(parts, name), atol=1e-12)


def test_a_clear_loser_is_out_and_the_unit_of_the_scores_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    values = np.stack([rng.normal(gap, 0.1, (2, 8)) for gap in (0.5, 0.45, 0.0)])
    level = log_threshold(3, 0.05)
    for unit in (1e-6, 1.0, 1e6):
        out, beats = eliminated_methods(pairs(values * unit), level)
        assert out.tolist() == [False, False, True] and beats[0, 2] and not beats[2].any()


def test_nothing_is_decided_on_two_seeds_nor_on_equal_values() -> None:
    level = log_threshold(2, 0.05)
    assert not eliminated_methods(pairs(np.array([[[1.0, 1.1]], [[0.0, 0.1]]])), level)[0].any()
    assert not eliminated_methods(pairs(np.zeros((2, 3, 50))), level)[0].any()
    diverged = np.stack([np.zeros((9, 2)), np.full((9, 2), -np.inf)])
    assert not eliminated_methods(pairs(diverged), level)[0].any()


def test_differences_below_the_rounding_decide_nothing() -> None:
    values = np.stack([np.full((1, 8), 0.02), np.zeros((1, 8))])
    level = log_threshold(2, 0.05)
    assert eliminated_methods(pairs(values), level)[0].tolist() == [False, True]
    assert not eliminated_methods(pairs(values, steps=0.1), level)[0].any()


def test_who_diverges_more_is_out_unless_it_is_better_where_it_converges() -> None:
    rng, level = np.random.default_rng(2), log_threshold(2, 0.05)
    steady, wild = rng.normal(0, 0.1, (3, 12)), rng.normal(0, 0.1, (3, 12))
    wild[:2, 2:] = -np.inf
    assert eliminated_methods(pairs(np.stack([steady, wild])), level)[0].tolist() == [False, True]
    out, beats = eliminated_methods(pairs(np.stack([steady, wild + 1.0])), level)
    assert not out.any() and not beats.any()


@pytest.mark.parametrize("num_seeds", range(3, 25))
def test_who_diverges_on_all_seeds_of_a_case_and_is_better_on_another_eliminates_nobody(num_seeds: int) -> None:
    """The mean alone is shown from three seeds on, and the divergences from nine on."""
    steady, wild = np.random.default_rng(5).normal(0, 0.01, (2, 2, num_seeds))
    wild[0] += 1.0
    wild[1] = -np.inf
    assert not eliminated_methods(pairs(np.stack([steady, wild])), log_threshold(2, 0.05))[0].any()
    wild[1] = 1.0
    wild[1, 0] = -np.inf  # one seed contradicts nothing
    out, _ = eliminated_methods(pairs(np.stack([steady, wild])), log_threshold(2, 0.05))
    assert out.tolist() == [True, False]


def test_who_diverges_less_does_not_eliminate_who_is_likely_better_on_the_other_seeds() -> None:
    level, wild = log_threshold(2, 0.05), np.zeros((1, 14))
    wild[0, :10] = -np.inf
    steady = np.array([[0.0] * 10 + [-0.1, -0.2, -0.3, -0.1]])
    found = pairs(np.stack([steady, wild]))
    assert 0 < found.mean[1, 0] < found.half_width(level)[1, 0]
    assert not eliminated_methods(found, level)[0].any()


@pytest.mark.parametrize("num_methods", [2, 5])
def test_the_best_of_equals_stays_in_most_races_though_each_seed_is_looked_at(num_methods: int) -> None:
    values = np.random.default_rng(3).normal(size=(400, num_methods, 2, 30))
    level, thrown = log_threshold(num_methods, 0.05), np.zeros(400, bool)
    for end in range(3, 31):
        part = values[..., :end]
        thrown |= eliminated_methods(PairSums.of(part[:, :, None], part[:, None]), level)[0][:, 0]
    assert thrown.mean() <= 0.05


def lost(by_a: int, by_b: int, num_seeds: int) -> PairSums:
    """One case on which each of two methods diverges on so many seeds of its own."""
    a, b = np.zeros((2, 1, num_seeds))
    a[0, :by_a], b[0, by_a : by_a + by_b] = -np.inf, -np.inf
    return PairSums.of(a, b)


@pytest.mark.parametrize(("by_a", "by_b", "evidence"), [(0, 3, 2.5), (1, 2, 0.5), (0, 4, 4.375)])
def test_the_evidence_of_divergence_is_that_of_the_beta_binomial_by_hand(by_a: int, by_b: int, evidence: float) -> None:
    """With Jeffreys's prior: C(2 n, n) / 2^n of n that all fall on one side, Beta(5/2, 3/2) / pi * 8 of two and one."""
    assert math.isclose(float(lost(by_a, by_b, 5).log_evidence_of_divergence()), math.log(evidence))
    assert math.isclose(float(lost(by_a, by_b, by_a + by_b).log_evidence_of_divergence()), math.log(evidence))
    assert lost(by_b, by_a, 5).log_evidence_of_divergence() == -math.inf


def test_as_many_divergences_on_both_sides_or_two_seeds_are_no_evidence() -> None:
    assert lost(2, 2, 5).log_evidence_of_divergence() == lost(0, 2, 2).log_evidence_of_divergence() == -math.inf


def test_the_sums_are_of_the_cases_of_a_seed_on_which_both_converge() -> None:
    a = np.array([[1.0, 2.0, -np.inf, -np.inf, np.nan], [3.0, np.nan, 7.0, -np.inf, np.nan]])
    b = np.array([[0.5, 0.0, 1.0, -np.inf, 1.0], [0.5, 1.0, 4.0, -np.inf, 1.0]])
    found = PairSums.of(a, b, np.array([0.6, 1.2]))
    assert (found.num_seeds, found.num_converged, found.lost_by_a, found.lost_by_b) == (4, 3, 1, 0)
    assert math.isclose(found.difference_sum, 1.5 + 2 + 3)
    rounding = (0.06 + 0.24) / 4 + 0.06 + 0.24  # of a seed: the mean of a sixth of the squares, over its cases
    assert math.isclose(found.square_sum, 1.5**2 + 2**2 + 3**2 + rounding)


def test_a_seed_that_diverges_on_many_cases_counts_once() -> None:
    steady, wild = np.zeros((12, 9)), np.zeros((12, 9))
    wild[:, :2], steady[3, 0] = -np.inf, -np.inf
    found = PairSums.of(steady, wild)
    assert (found.lost_by_a, found.lost_by_b) == (0, 1)  # on seed 0 both diverge, on some case


@pytest.mark.parametrize("num_methods", [2, 4])
def test_equals_that_diverge_on_all_cases_of_a_seed_stay_in_most_races(num_methods: int) -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(300, num_methods, 6, 24))
    values[np.broadcast_to(rng.random((300, num_methods, 1, 24)) < 0.2, values.shape)] = -np.inf
    level, thrown = log_threshold(num_methods, 0.05), np.zeros(300, bool)
    for end in range(4, 25, 4):
        part = values[..., :end]
        thrown |= eliminated_methods(PairSums.of(part[:, :, None], part[:, None]), level)[0][:, 0]
    assert thrown.mean() <= 0.05


def test_who_is_out_of_the_race_throws_nobody_out() -> None:
    values = np.repeat(np.array([2.0, 1.0, 0.0]), 16).reshape(3, 1, 16)
    values += np.random.default_rng(0).normal(0, 0.01, values.shape)
    racing = np.array([False, True, True])
    out, beats = eliminated_methods(pairs(values), log_threshold(3, 0.05), racing)
    assert out.tolist() == [False, False, True] and beats.sum() == 1 and beats[1, 2]
