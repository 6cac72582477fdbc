"""Two samples that share no seed: Welch's law, alone, in a mean over cases and in a gate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats
from shown import texts_of

from lobench.analysis.comparisons.gate_looks import decide_gate
from lobench.analysis.comparisons.gates import GateRules, Verdict, gate
from lobench.analysis.stats.comparison import Effect, compare_cases, mean_difference
from lobench.analysis.stats.paired_samples import Samples

SHOWN = texts_of("analysis")

A, B = (0.31, 0.29, 0.35, 0.30, 0.33), (0.41, 0.38, 0.47)


def apart(a: Sequence[float], b: Sequence[float]) -> Samples:
    return Samples.of(a, b, is_paired=False)


def test_two_samples_have_welchs_interval() -> None:
    found = mean_difference(apart(A, B), 0.9)
    expected = stats.ttest_ind(B, A, equal_var=False)
    interval = expected.confidence_interval(0.9)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert (found.lower, found.upper) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.degrees == pytest.approx(expected.df, rel=1e-9)
    assert (found.method, found.num_seeds, mean_difference(Samples.of_differences([0.1, 0.2])).method) == (
        "welch",
        3,
        "paired",
    )


def test_below_two_seeds_of_a_side_nothing_is_decided() -> None:
    assert "n = 2" in mean_difference(apart(A, (0.4,))).note
    assert mean_difference(apart(A, ())).note == SHOWN["no-seed"]
    assert SHOWN["no-score"] in mean_difference(apart(A, (0.4, math.nan))).note


def test_samples_without_spread_have_the_noise_of_their_rounding() -> None:
    assert mean_difference(apart((1.0, 1.0), (1.0, 1.0))).p_value == 1
    two = mean_difference(apart((1.0, 1.0), (2.0, 2.0 + 1e-16)))
    assert math.isnan(two.p_value) and two.note == SHOWN["too-few-seeds-two-without"]
    four = mean_difference(apart((1.0,) * 4, (2.0,) * 4))
    assert four.p_value == pytest.approx(2 * stats.t.sf(1 / math.sqrt(2 / 12 / 4), 6), rel=1e-9)
    one_flat = mean_difference(apart((1.0, 1.0), (2.0, 3.0, 4.0)))
    assert one_flat.degrees == pytest.approx(27 / 11)  # hardly more than the other side's own


def test_a_mean_over_cases_takes_pairs_and_samples() -> None:
    pairs = [0.1, 0.12, 0.09]
    found = compare_cases({"pairs": Samples.of_differences(pairs), "apart": apart(A, B)})
    parts = [np.var(pairs, ddof=1) / 3, np.var(A, ddof=1) / 5 + np.var(B, ddof=1) / 3]
    means = [np.mean(pairs), np.mean(B) - np.mean(A)]
    assert found.overall.mean == pytest.approx(np.mean(means))
    half = stats.t.ppf(0.975, found.overall.degrees) * math.sqrt(sum(parts)) / 2
    assert found.overall.upper == pytest.approx(np.mean(means) + half, rel=1e-9)
    assert found.verdict is Effect.BETTER


def permutation_p(low: Sequence[float], high: Sequence[float]) -> float:
    """Returns the one-sided p-value of the studentized permutation test by another program."""

    def statistic(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        error = x.var(axis, ddof=1) / x.shape[axis] + y.var(axis, ddof=1) / y.shape[axis]
        return (x.mean(axis) - y.mean(axis)) / np.sqrt(error)

    found = stats.permutation_test((high, low), statistic, vectorized=True, alternative="greater", n_resamples=np.inf)
    return float(found.pvalue)


@pytest.mark.parametrize("noisy", [1.0, 4.0, 40.0])
def test_sizes_of_twice_or_more_have_the_larger_p_of_welch_and_permutation_in_compare_and_gate(noisy: float) -> None:
    low = (*A, 0.32, 0.28)[: 6 + (noisy > 1)]
    high = tuple(0.42 + noisy * (value - 0.42) for value in B)
    welch = stats.ttest_ind(high, low, equal_var=False, alternative="greater").pvalue
    expected = max(permutation_p(low, high), welch)
    assert mean_difference(apart(low, high)).p_value == pytest.approx(min(1.0, 2 * expected), rel=1e-6)
    gated = gate(apart(low, [value - 0.02 for value in high]), GateRules(margin=0.02))
    assert gated.p_pass == pytest.approx(expected, rel=1e-6)


def test_a_gate_decides_on_samples_as_welch_does() -> None:
    result = gate(apart(A, B), GateRules(margin=0.02))
    statistic = stats.ttest_ind(A, [b + 0.02 for b in B], equal_var=False, alternative="less")
    assert result.p_pass == pytest.approx(statistic.pvalue, rel=1e-9)
    assert result.verdict is Verdict.PASS
    worse = decide_gate({"c": apart(B, A)}, GateRules(), {"c": 0.01})
    assert worse.verdict is Verdict.REGRESSED
    assert worse.overall.harm == pytest.approx(np.mean(B) - np.mean(A))


def test_too_few_seeds_note_how_many_would_decide() -> None:
    result = gate(apart((0.3, 0.5, 0.1), (0.35, 0.2, 0.5)), GateRules(margin=0.05))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.seeds_to_decide is not None and result.seeds_to_decide > 3


def test_a_shift_is_of_the_difference_and_first_seeds_are_of_either_side() -> None:
    samples = apart(A, B)
    assert samples.shifted(0.5).estimate().mean == pytest.approx(samples.estimate().mean + 0.5)
    assert (samples.first_seeds(2).a, samples.first_seeds(2).b) == (A[:2], B[:2])
