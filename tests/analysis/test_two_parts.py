"""Seeds that diverge are counted, those that converge are compared, and a p-value says both; ties and unequal sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from shown import texts_of

from lobench.analysis.comparisons.gates import GateRules, Verdict, gate, gate_cases
from lobench.analysis.stats.comparison import Effect, compare_cases, effect_words, mean_difference
from lobench.analysis.stats.location import locate
from lobench.analysis.stats.paired_samples import DIVERGED, Samples, rounding_step
from lobench.analysis.stats.permutation import Permutation
from lobench.analysis.stats.proportions import Counts, least_share, most_share, p_fewer, p_more, two_sided

SHOWN = texts_of("analysis")

A = (0.51, 0.48, 0.55, 0.5, 0.47, 0.53, 0.49, DIVERGED)
B = (0.71, 0.66, 0.7, 0.72, 0.64, 0.75, 0.69, 0.7)


@pytest.mark.parametrize("counts", [Counts(1, 4, 3, 4), Counts(0, 8, 4, 8), Counts(7, 20, 1, 4), Counts(2, 5, 2, 5)])
def test_shares_that_diverge_have_boschloos_p_value(counts: Counts) -> None:
    a, num_a, b, num_b = counts
    table = [[b, a], [num_b - b, num_a - a]]
    assert p_more([counts]) == pytest.approx(stats.boschloo_exact(table, "greater").pvalue, abs=2e-4)
    both = stats.boschloo_exact(table).pvalue
    assert two_sided(p_more([counts]), p_fewer([counts])) == pytest.approx(both, abs=4e-4)


def test_shares_of_several_cases_are_compared_within_each() -> None:
    """Fisher's conditional law of the sum: 2 of 2 among 2 + 2 and 1 of 1 among 1 + 3."""
    found = p_more([Counts(0, 2, 2, 2), Counts(0, 3, 1, 1)])
    assert found == pytest.approx(1 / 6 * 1 / 4)
    assert p_more([Counts(0, 4, 0, 4)]) == p_more([]) == 1.0


def test_bounds_of_a_share_are_clopper_and_pearsons() -> None:
    for count, trials in ((0, 4), (1, 4), (4, 4), (3, 29)):
        known = stats.binomtest(count, trials).proportion_ci(0.9)
        assert (least_share(count, trials, 0.05), most_share(count, trials, 0.05)) == pytest.approx(tuple(known))
    assert most_share(0, 29, 0.05) < 0.1 < most_share(0, 28, 0.05)


def test_a_difference_is_of_the_seeds_that_converge_and_of_how_many_do() -> None:
    found = mean_difference(Samples.of(A, B))
    expected = stats.ttest_rel(B[:7], A[:7])
    assert (found.num_seeds, found.num_converged, found.p_converged) == (8, 7, pytest.approx(expected.pvalue))
    assert found.p_diverged == pytest.approx(stats.boschloo_exact([[0, 1], [8, 7]]).pvalue, abs=1e-3)
    assert found.p_value == pytest.approx(2 * min(found.p_converged, found.p_diverged))
    interval = expected.confidence_interval(0.975)
    assert (found.lower, found.upper) == pytest.approx((interval.low, interval.high))
    assert effect_words(found) == SHOWN["better-on-the-7-seeds"]


def test_either_part_may_tell_and_both_may_disagree() -> None:
    noise = np.random.default_rng(0).normal(0.5, 0.05, (2, 12))
    lost = [DIVERGED] * 8
    same, diverging = noise[0].tolist(), [*noise[1, :4].tolist(), *lost]
    assert compare_cases({"c": Samples.of(same, diverging)}).verdict is Effect.WORSE
    assert compare_cases({"c": Samples.of(diverging, same)}).verdict is Effect.BETTER
    better = [*(noise[0, :4] + 0.3).tolist(), *lost]
    found = compare_cases({"c": Samples.of(same, better)})
    assert found.verdict is found.cases[0].verdict is Effect.MIXED
    several = compare_cases({name: Samples.of(same, diverging) for name in "ab"})
    assert several.verdict is Effect.WORSE and several.p_diverged < several.p_converged
    assert several.diverged == Counts(0, 24, 16, 24)


def test_nothing_is_said_of_seeds_that_all_diverge_alike() -> None:
    found = mean_difference(Samples(a=(DIVERGED,) * 4, b=(DIVERGED,) * 4))
    assert found.p_value == 1.0 and math.isnan(found.mean) and SHOWN["none-converged"] in found.note
    assert gate(Samples(a=(DIVERGED,) * 4, b=(DIVERGED,) * 4)).verdict is Verdict.INCONCLUSIVE


def test_values_that_repeat_at_different_seeds_were_rounded() -> None:
    assert rounding_step([0.82, 0.84, 0.84], [0.9, 0.86, 0.82], is_paired=True) == pytest.approx(0.02)
    assert rounding_step([0.8, 0.81, 0.85], [0.82, 0.83, 0.87], is_paired=True) == pytest.approx(0.01)
    same = np.random.default_rng(0).normal(size=6).tolist()
    assert rounding_step(same, same, is_paired=True) == 0.0, "equal methods are no rounded ones"
    nearly = [value * (1 + 1e-8) for value in same]
    assert rounding_step(same, nearly, is_paired=True) == 0.0, "nor is one against its own rounded record"
    assert rounding_step(same, same[:3], is_paired=False) > 0
    found = mean_difference(Samples.of([0.8, 0.82, 0.84], [0.82, 0.84, 0.86]))
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.02 / math.sqrt(0.02**2 / 6 / 3), 2), rel=1e-6)
    two = mean_difference(Samples.of([0.8, 0.82], [0.84, 0.86]))
    assert math.isnan(two.p_value) and two.note == SHOWN["too-few-seeds-two-without"]


def test_the_floor_of_rounding_keeps_the_level_at_few_seeds() -> None:
    """Three accuracies of 50 examples: t alone says p = 0 of three equal differences."""
    draw, alarms = np.random.default_rng(0), 0
    for _ in range(2000):
        a, b = np.round(draw.normal(0.8, 0.02, (2, 6, 3)) / 0.02) * 0.02
        found = compare_cases({str(i): Samples.of(a[i].tolist(), b[i].tolist()) for i in range(6)})
        alarms += any(case.verdict is not Effect.UNDECIDED for case in found.cases)
    assert alarms / 2000 <= 0.0625


def test_unequal_samples_are_permuted() -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(0, 1, 3), draw.normal(2, 3, 8)

    def statistic(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        error = x.var(axis, ddof=1) / x.shape[axis] + y.var(axis, ddof=1) / y.shape[axis]
        return (x.mean(axis) - y.mean(axis)) / np.sqrt(error)

    known = stats.permutation_test((b, a), statistic, vectorized=True, alternative="greater", n_resamples=np.inf)
    found = Permutation([Samples.of(a.tolist(), b.tolist(), is_paired=False)])
    assert found.p_above() == pytest.approx(known.pvalue) and found.least_p_value == pytest.approx(1 / 165)
    moved = Permutation([Samples.of(a.tolist(), (b - 0.7).tolist(), is_paired=False)])
    assert found.p_above(0.7) == pytest.approx(moved.p_above()) and found.p_below(0.7) == pytest.approx(moved.p_below())
    difference = mean_difference(Samples.of(a.tolist(), b.tolist(), is_paired=False))
    assert difference.method == "permutation"
    welch = stats.ttest_ind(b, a, equal_var=False).pvalue
    assert difference.p_value == pytest.approx(max(2 * min(known.pvalue, found.p_below()), welch))
    both = locate(Samples.of(a.tolist(), b.tolist(), is_paired=False))
    for bound, tail in ((difference.lower, both.p_above), (difference.upper, both.p_below)):
        outward = math.copysign(1e-3, bound - difference.mean)
        assert tail(bound + outward) <= 0.025 < tail(bound - outward * 20)
    for size, method in ((3, "welch"), (5, "welch"), (6, "permutation"), (7, "permutation")):
        assert mean_difference(Samples.of(a.tolist(), b.tolist()[:size], is_paired=False)).method == method
    doubled = Samples.of(a.tolist(), b.tolist()[:6], is_paired=False)
    assert gate_cases({"c": doubled}, GateRules(margin=0.05)).overall.p_pass == Permutation([doubled]).p_above(-0.05)
    few = mean_difference(Samples.of([1.0, 1.1], [2.0, 2.1, 2.2, 2.5, 2.6], is_paired=False))
    assert few.note == SHOWN["too-few-seeds-a-permutation"] and few.p_value > 0.05


def test_a_mean_over_cases_permutes_each_among_itself() -> None:
    """Lognormal seeds, 3 against 10, six cases: the stratified t says .08 of nothing."""
    draw, alarms = np.random.default_rng(1), 0
    for _ in range(150):
        found = compare_cases(
            {
                str(case): Samples.of(
                    draw.lognormal(size=3).tolist(), draw.lognormal(size=10).tolist(), is_paired=False
                )
                for case in range(6)
            }
        )
        alarms += found.p_value <= 0.05
        assert (found.overall.lower > 0 or found.overall.upper < 0) == (found.p_value <= 0.05)
    assert alarms / 150 <= 0.0625


def test_a_gate_judges_harm_on_what_converges_and_divergence_apart() -> None:
    good = tuple(np.random.default_rng(0).normal(0.5, 0.005, 12))
    near = tuple(value + 0.001 * (-1) ** place for place, value in enumerate(good))
    passed = gate(Samples.of(good[:4], near[:4]))
    assert passed.verdict is Verdict.PASS and passed.divergence == SHOWN["of-4-diverged-or-exploded"]
    assert gate(Samples.of(good[:4], near[:4]), GateRules(max_diverged=0.1)).verdict is Verdict.INCONCLUSIVE
    rare = (*near[:11], DIVERGED)
    found = gate(Samples.of(good, rare))
    assert found.verdict is Verdict.PASS and found.divergence == SHOWN["of-12-diverged-or-exploded"]
    often = (*near[:5], *[DIVERGED] * 7)
    lost = gate(Samples.of(good, often))
    assert lost.verdict is Verdict.REGRESSED and lost.harm == pytest.approx(0, abs=0.01) and lost.p_diverged < 0.01
    report = gate_cases({"a": Samples.of(good, near), "b": Samples.of(good, often)})
    assert [case.verdict for case in report.cases] == [Verdict.PASS, Verdict.REGRESSED]
    assert gate_cases({"a": Samples.of(good, good)}).verdict is Verdict.PASS


def test_29_seeds_without_a_divergence_rule_out_a_tenth() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.01, 29).tolist()
    samples = Samples.of(values, [value + 1e-4 * place for place, value in enumerate(values)])
    assert gate(samples, GateRules(max_diverged=0.1)).verdict is Verdict.PASS
    assert gate(samples.first_seeds(28), GateRules(max_diverged=0.1)).verdict is Verdict.INCONCLUSIVE
