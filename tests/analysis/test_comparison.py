"""The paired comparison against scipy, and where it must not decide."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from shown import texts_of

from lobench.analysis.stats.comparison import Effect, compare_cases, holm, mean_difference
from lobench.analysis.stats.paired_samples import Samples

SHOWN = texts_of("analysis")

A, B = [0.5, 0.7, 0.4, 0.9], [0.8, 0.9, 0.7, 1.0]


def test_a_paired_difference_is_scipys() -> None:
    known = stats.ttest_rel(B, A)
    interval = known.confidence_interval(0.95)
    found = mean_difference(Samples.of(A, B))
    assert (found.mean, found.p_value) == pytest.approx((0.225, known.pvalue))
    assert (found.lower, found.upper) == pytest.approx((interval.low, interval.high))


def test_below_two_pairs_nothing_is_decided_and_it_says_so() -> None:
    found = mean_difference(Samples.of_differences([0.3]))
    assert found.mean == 0.3 and math.isnan(found.lower) and math.isnan(found.p_value)
    assert found.note == SHOWN["undecidable-below-n-2"]
    assert mean_difference(Samples()).note == SHOWN["no-common-seed"]
    assert SHOWN["no-score"] in mean_difference(Samples.of_differences([0.1, math.nan])).note


def test_equal_differences_are_no_certainty() -> None:
    assert mean_difference(Samples.of_differences([0.0] * 4)).p_value == 1.0
    same = mean_difference(Samples.of_differences([0.3, 0.3 + 1e-16, 0.3]))
    assert same.p_value == pytest.approx(2 * stats.t.sf(0.3 / math.sqrt(0.3**2 / 6 / 3), 2))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    found = holm([0.01, math.nan, 0.02])
    assert found[0] == pytest.approx(0.03) and math.isnan(found[1]) and found[2] == pytest.approx(0.04)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_does_not_hang_on_the_order(p_values: list[float], random: object) -> None:
    order = list(range(len(p_values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = holm([p_values[index] for index in order])
    assert shuffled == pytest.approx([holm(p_values)[index] for index in order])
    assert all(a >= p for a, p in zip(holm(p_values), p_values, strict=True))


def test_cases_are_decided_together_and_the_mean_apart() -> None:
    differences = {"clear": [0.5, 0.51, 0.49, 0.505], "noise": [0.3, -0.3, 0.2, -0.2]}
    differences |= {"lost": [math.nan, 0.1], "one": [0.2]}
    found = compare_cases({case: Samples.of_differences(values) for case, values in differences.items()})
    verdicts = {case.case: case.verdict for case in found.cases}
    assert verdicts["clear"] is Effect.BETTER
    assert {verdicts[name] for name in ("noise", "lost", "one")} == {Effect.UNDECIDED}
    assert found.num_undecidable == 2
    assert found.overall.mean == pytest.approx(0.250625)
    t = found.overall.mean / ((found.overall.upper - found.overall.mean) / stats.t.ppf(0.975, found.overall.degrees))
    assert found.p_value == pytest.approx(2 * stats.t.sf(t, found.overall.degrees))


def test_with_itself_nothing_differs() -> None:
    found = compare_cases(dict.fromkeys("ab", Samples.of_differences([0.0] * 4)))
    assert found.verdict is Effect.UNDECIDED and found.p_value == 1.0
    assert (found.overall.lower, found.overall.upper) == (0.0, 0.0)


def test_all_cases_without_a_score_leave_no_verdict() -> None:
    found = compare_cases({"a": Samples.of_differences([math.nan])})
    assert found.verdict is Effect.UNDECIDED and math.isnan(found.overall.mean) and found.num_undecidable == 1
    with pytest.raises(ValueError, match=SHOWN["at-least-one-case"]):
        compare_cases({})
