"""McNemar's exact test: its p-values against scipy's, and bounds that agree with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_rel

from lobench.analysis.stats.comparison import Effect, compare_cases, mean_difference
from lobench.analysis.stats.mcnemar import McNemar
from lobench.analysis.stats.paired_samples import Samples


def binary(gains: int, losses: int, equal: int) -> Samples:
    a = (0.0,) * gains + (1.0,) * (losses + equal)
    b = (1.0,) * gains + (0.0,) * losses + (1.0,) * equal
    return Samples(a=a, b=b, binary_unit=1.0, step=1.0)


@pytest.mark.parametrize(("gains", "losses", "equal"), [(9, 1, 40), (5, 5, 0), (0, 3, 7), (30, 12, 958), (1, 0, 1)])
def test_p_value_of_binary_pairs_is_that_of_scipy(gains: int, losses: int, equal: int) -> None:
    found = mean_difference(binary(gains, losses, equal))
    assert found.method == "mcnemar"
    assert found.p_value == pytest.approx(binomtest(gains, gains + losses).pvalue, rel=1e-12)
    assert found.mean == pytest.approx((gains - losses) / (gains + losses + equal))


def test_p_value_of_other_values_of_items_is_that_of_a_paired_t_test() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 200))
    assert mean_difference(Samples.of(a.tolist(), b.tolist())).p_value == pytest.approx(ttest_rel(b, a).pvalue)


def test_pairs_without_a_discordant_item_are_undecided_with_bounds_of_their_number() -> None:
    found = compare_cases({"qa": binary(0, 0, 100)})
    assert found.verdict is Effect.UNDECIDED and found.p_value == 1.0
    assert found.overall.lower == -found.overall.upper and 0.03 < found.overall.upper < 0.04  # about 3.84 of 104


counts = st.integers(0, 40)


@settings(max_examples=40)
@given(counts, counts, st.integers(1, 60), st.sampled_from([0.0005, 0.025, 0.05]))
def test_bounds_exclude_zero_exactly_if_the_test_rejects(gains: int, losses: int, equal: int, tail: float) -> None:
    test = McNemar(gains=gains, losses=losses, num_items=gains + losses + equal)
    low, high = test.bounds(tail)
    assert -1 <= low <= test.mean <= high <= 1
    assert (low > 0) == (test.p_above() < tail) and (high < 0) == (test.p_below() < tail)
    for shift, p_value in ((low, test.p_above), (high, test.p_below)):
        if 1e-3 < abs(shift) < 0.99:  # beyond the bound a shift is rejected, and within it is not
            outward = -1e-3 if p_value == test.p_above else 1e-3
            assert p_value(shift + outward) <= tail + 1e-6 or (shift > 0) != (shift + outward > 0)
            assert p_value(shift - outward) >= tail - 1e-6 or low > 0 or high < 0


def test_bounds_follow_the_exact_test_in_a_tail_where_the_score_test_does_not_reject() -> None:
    test = McNemar(gains=20, losses=0, num_items=50)
    tail = 2e-6
    assert test.p_above() == pytest.approx(2**-20) and test._score_p_value(0.0) > tail
    assert test.bounds(tail)[0] > 0 > McNemar(gains=0, losses=20, num_items=50).bounds(tail)[1]


def test_shifted_pairs_have_the_same_test_at_the_shift() -> None:
    pairs = binary(9, 1, 40)
    shifted, found = mean_difference(pairs.shifted(0.1)), mean_difference(pairs)
    assert shifted.mean == pytest.approx(found.mean + 0.1) and shifted.lower == pytest.approx(found.lower + 0.1)
    assert shifted.p_value <= found.p_value
