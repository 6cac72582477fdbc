"""Means over cases by groups: known answers, laws, and the rate of false alarms of cases that move together."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lobench.analysis.comparisons.gates import GateRules, Verdict, gate_cases
from lobench.analysis.stats.comparison import Effect, compare_cases
from lobench.analysis.stats.intervals import grouped_t_mean, stratified_t_mean
from lobench.analysis.stats.paired_samples import DIVERGED, Samples
from lobench.analysis.stats.proportions import Counts
from lobench.analysis.stats.seed_groups import (
    group_counts,
    group_indices,
    join_cases,
    mean_over_cases,
    seed_means_ratio,
)

RUN = frozenset({"run"})


def of(differences: np.ndarray, *, shared: frozenset[str] = RUN, first_seed: int = 0) -> Samples:
    """Pairs with these differences."""
    found = Samples.of_differences(differences.tolist())
    seeds = tuple(range(first_seed, first_seed + len(differences)))
    return dataclasses.replace(found, seeds=(seeds, seeds), shared_trainings=shared)


def apart(a: np.ndarray, b: np.ndarray, shared: frozenset[str] = RUN) -> Samples:
    return dataclasses.replace(Samples.of(a.tolist(), b.tolist(), is_paired=False), shared_trainings=shared)


def test_group_of_all_cases_has_the_t_test_of_the_seeds_means() -> None:
    rows = np.random.default_rng(0).normal(0.3, 1, (6, 5))
    found = compare_cases({str(case): of(row) for case, row in enumerate(rows)})
    known = stats.ttest_1samp(rows.mean(axis=0), 0)
    interval = known.confidence_interval()
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-9)
    assert (found.overall.lower, found.overall.upper) == pytest.approx((interval.low, interval.high))
    assert found.overall.degrees == pytest.approx(4) and found.groups == (tuple("012345"),)


def test_group_of_all_cases_without_common_seeds_has_welchs_test_of_the_seeds_means() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, (4, 5)), rng.normal(0.5, 2, (4, 5))
    found = compare_cases({str(case): apart(x, y) for case, (x, y) in enumerate(zip(a, b, strict=True))})
    known = stats.ttest_ind(b.mean(axis=0), a.mean(axis=0), equal_var=False)
    assert found.p_value == pytest.approx(known.pvalue, rel=1e-9)


def test_groups_are_weighed_by_their_cases() -> None:
    rows = np.random.default_rng(2).normal(0, 1, (4, 6))
    cases = [of(row) for row in rows[:3]] + [of(rows[3], shared=frozenset())]
    found = mean_over_cases(cases)
    parts = [rows[:3].mean(axis=0), rows[3]]
    variances = [np.var(part, ddof=1) / 6 * weight**2 for part, weight in zip(parts, (0.75, 0.25), strict=True)]
    assert found.location is not None and found.groups == ((0, 1, 2), (3,))
    assert found.location.estimate.mean == pytest.approx(rows.mean())
    assert found.location.estimate.variance == pytest.approx(sum(variances))
    assert found.location.estimate.degrees == pytest.approx(sum(variances) ** 2 / sum(v**2 / 5 for v in variances))


@given(st.integers(0, 200), st.integers(1, 6), st.integers(2, 6))
def test_groups_of_one_case_change_nothing(seed: int, num_cases: int, num_seeds: int) -> None:
    rows = np.random.default_rng(seed).normal(0, 1, (num_cases, num_seeds))
    own = compare_cases({str(case): of(row, shared=frozenset({f"run {case}"})) for case, row in enumerate(rows)})
    none = compare_cases({str(case): of(row, shared=frozenset()) for case, row in enumerate(rows)})
    assert own == none or repr(own) == repr(none)
    cells = [dict(enumerate(row.tolist())) for row in rows]
    groups = [(case,) for case in range(num_cases)]
    assert repr(grouped_t_mean(cells, groups)) == repr(stratified_t_mean(rows.tolist()))


@given(st.integers(0, 200), st.permutations(range(5)))
def test_the_order_of_the_cases_does_not_matter(seed: int, order: list[int]) -> None:
    rows = np.random.default_rng(seed).normal(0, 1, (5, 4))
    shared = [frozenset({"x"}), frozenset({"x", "y"}), frozenset({"y"}), frozenset({"z"}), frozenset[str]()]
    found = compare_cases({str(case): of(rows[case], shared=shared[case]) for case in range(5)})
    other = compare_cases({str(case): of(rows[case], shared=shared[case]) for case in order})
    assert other.p_value == pytest.approx(found.p_value)
    assert {frozenset(group) for group in found.groups} == {frozenset(group) for group in other.groups}
    assert {frozenset(group) for group in found.groups} == {frozenset("012"), frozenset("3"), frozenset("4")}


def test_cases_are_joined_through_other_cases() -> None:
    assert group_indices([frozenset("a"), frozenset("b"), frozenset(), frozenset("ab")]) == ((0, 1, 3), (2,))


def test_incomplete_seeds_are_in_no_mean_and_counted() -> None:
    rows = np.random.default_rng(3).normal(0, 1, (2, 6))
    cases = [of(rows[0]), of(rows[1, :5], first_seed=1)]
    found = mean_over_cases(cases)
    assert found.num_incomplete == 1 and found.location is not None
    assert found.location.estimate.mean == pytest.approx((rows[0, 1:] + rows[1, :5]).mean() / 2)
    alone = mean_over_cases([of(rows[0]), of(rows[1], first_seed=5)])  # one seed has both cases
    assert alone.location is None and alone.groups == ()


def test_a_diverged_seed_of_a_group_counts_once_and_is_in_no_mean() -> None:
    a, b = np.zeros((3, 4)), np.random.default_rng(4).normal(0, 1, (3, 4))
    b[:, 1] = DIVERGED
    b[0, 2] = DIVERGED
    cases = []
    for x, y in zip(a, b, strict=True):
        samples = Samples(a=tuple(x.tolist()), b=tuple(y.tolist()), shared_trainings=RUN)
        cases.append(samples)
    assert group_counts(cases) == [Counts(0, 4, 2, 4)]
    whole = join_cases(cases)
    assert [value == DIVERGED for value in whole.b] == [False, True, True, False]
    assert whole.b[0] == pytest.approx(b[:, 0].mean())
    apart_counts = group_counts([dataclasses.replace(one, shared_trainings=frozenset()) for one in cases])
    assert apart_counts == [Counts(0, 4, 2, 4), Counts(0, 4, 1, 4), Counts(0, 4, 1, 4)]


def test_rounding_of_a_group_is_that_of_its_cases_together() -> None:
    flat = [Samples(a=(0.0,) * 3, b=(1.0,) * 3, step=1.0, shared_trainings=RUN) for _ in range(4)]
    assert join_cases(flat).least_variance == pytest.approx(1 / 12 / 4)


def test_the_check_finds_cases_that_move_together_and_not_independent_ones() -> None:
    rng = np.random.default_rng(5)
    own = rng.normal(0, 1, (6, 16))
    together = own + rng.normal(0, 2, 16)
    ratio, p_value = seed_means_ratio([of(row, shared=frozenset()) for row in together])
    assert ratio > 2.5 and p_value < 0.01
    pooled = together.var(axis=1, ddof=1).mean() / 6
    assert ratio == pytest.approx(np.var(together.mean(axis=0), ddof=1) / pooled)
    assert 0.3 < seed_means_ratio([of(row, shared=frozenset()) for row in own])[0] < 2
    assert math.isnan(seed_means_ratio([of(row[:7], shared=frozenset()) for row in together])[0])
    assert math.isnan(seed_means_ratio([of(row) for row in together])[0])


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_false_alarms_of_correlated_cases_keep_the_level(correlation: float) -> None:
    rng, worlds, found, regressed = np.random.default_rng(6), 400, 0, 0
    for _ in range(worlds):
        common = rng.normal(0, math.sqrt(correlation), 4)
        rows = common + rng.normal(0, math.sqrt(1 - correlation), (6, 4))
        cases = {str(case): of(row) for case, row in enumerate(rows)}
        found += compare_cases(cases).verdict is not Effect.UNDECIDED
        regressed += gate_cases(cases, GateRules(margin=0.0)).overall.verdict is Verdict.REGRESSED
    assert found / worlds <= 0.0875 and regressed / worlds <= 0.0625  # of .05 and .025, with three binomial errors
