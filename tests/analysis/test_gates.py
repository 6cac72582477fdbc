"""Gate verdicts, the seeds that would decide, alpha spent over looks; known answers and simulated rates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats
from shown import texts_of

from lobench.analysis.comparisons import gate_looks, gates
from lobench.analysis.comparisons.gates import GateReport, GateResult, GateRules, Verdict, seeds_to_decide
from lobench.analysis.stats.alpha_spending import Looks, nominal_levels
from lobench.analysis.stats.paired_samples import Samples

SHOWN = texts_of("analysis")

LOOKS = Looks(sizes=(4, 8, 12))
RULES = GateRules(margin=0.02)


def gate(differences: Sequence[float], *args: Any, **options: Any) -> GateResult:
    return gates.gate(Samples.of_differences(differences), *args, **options)


def gate_cases(differences: Mapping[str, Sequence[float]], *args: Any, **options: Any) -> GateReport:
    samples = {case: Samples.of_differences(values) for case, values in differences.items()}
    return gates.gate_cases(samples, *args, **options)


def test_verdicts_are_one_sided_t_tests_against_the_margin() -> None:
    harms = np.array([0.10, 0.14, 0.08, 0.12])
    found = gate((-harms).tolist(), RULES, case="relu32")
    assert found.verdict is Verdict.REGRESSED and found.case == "relu32" and found.seeds_to_decide is None
    assert found.p_regressed == pytest.approx(stats.ttest_1samp(harms, 0.02, alternative="greater").pvalue)
    low = stats.ttest_1samp(harms, 0, alternative="greater").confidence_interval(0.95).low
    assert found.lower == pytest.approx(low)
    assert gate([0.01, -0.01, 0.0, 0.005], RULES).verdict is Verdict.PASS
    undecided = gate([0.1, -0.1, 0.0, 0.02], RULES)
    assert undecided.verdict is Verdict.INCONCLUSIVE and undecided.seeds_to_decide > 4


def test_the_same_scores_never_regress() -> None:
    for margin in (0.0, 0.02):
        report = gate_cases({"a": [0.0] * 4, "b": [0.0] * 4}, GateRules(margin=margin))
        assert report.verdict is not Verdict.REGRESSED
    assert report.verdict is Verdict.PASS


def test_what_cannot_be_measured_is_inconclusive_and_says_why() -> None:
    assert gate([0.5]).note == SHOWN["undecidable-below-n-2"]
    assert gate([]).note == SHOWN["no-common-seed"]
    lost = gate_cases({"a": [0.0, 0.01, 0.0], "lost": [math.nan, 0.1]})
    assert lost.verdict is Verdict.INCONCLUSIVE and lost.overall.note == SHOWN["without-1-case-that-cannot"]


def test_holm_asks_more_of_a_case_among_many() -> None:
    harms = [0.06, 0.14, 0.05, 0.12]
    assert gate([-h for h in harms], RULES).verdict is Verdict.REGRESSED
    draw = np.random.default_rng(0)
    others = {f"case{i}": (0.02 * draw.standard_normal(4)).tolist() for i in range(25)}
    report = gate_cases({"bad": [-h for h in harms], **others}, RULES)
    assert report.cases[0].verdict is Verdict.INCONCLUSIVE
    assert report.cases[0].p_holm > report.cases[0].p_regressed


def test_a_harm_spread_over_all_cases_shows_in_the_mean() -> None:
    draw = np.random.default_rng(1)
    report = gate_cases({f"case{i}": (-0.08 + 0.1 * draw.standard_normal(4)).tolist() for i in range(26)})
    assert report.overall.verdict is Verdict.REGRESSED and report.verdict is Verdict.REGRESSED


def test_near_the_margin_no_seeds_are_named_that_are_there_already() -> None:
    """Many seeds of a harm at the margin: those that find margin + .05 are fewer, and would not decide."""
    near = [-0.02 + 0.01 * (-1) ** i for i in range(40)]
    alone, several = gate(near, RULES, case="a"), gate_cases({"a": near, "b": near, "c": []}, RULES)
    for result in (alone, *several.cases[:2], several.overall):
        assert result.verdict is Verdict.INCONCLUSIVE and result.seeds_to_decide is None
        assert SHOWN["harm-is-too-near-the"] in result.note
    assert SHOWN["cannot-be-measured"] in several.overall.note


def test_seeds_to_decide_has_the_power_of_the_noncentral_t() -> None:
    n = seeds_to_decide(0.1, 5)
    limit = 0.1 * math.sqrt(4 / stats.chi2.ppf(0.2, 4))

    def power(n: int) -> float:
        return float(stats.nct.sf(stats.t.isf(0.05, n - 1), n - 1, 0.05 / limit * math.sqrt(n)))

    assert n is not None and power(n) >= 0.9 > power(n - 1)
    assert seeds_to_decide(0.0, 5) == 2
    assert seeds_to_decide(0.1, 1) is None and seeds_to_decide(math.nan, 5) is None
    assert seeds_to_decide(100.0, 5) is None


@pytest.mark.parametrize("sd", [0.05, 0.1])
def test_named_seeds_find_a_true_harm_over_pilots(sd: float) -> None:
    """Mean power at least .9 where a pilot of four names the seeds; median at most 2.5 times the oracle's."""
    draw = np.random.default_rng(0)
    named = np.array([seeds_to_decide(s, 4) for s in sd * np.sqrt(draw.chisquare(3, 150) / 3)])
    power = stats.nct.sf(stats.t.isf(0.05, named - 1), named - 1, 0.05 / sd * np.sqrt(named)).mean()
    oracle = 2
    while stats.nct.sf(stats.t.isf(0.05, oracle - 1), oracle - 1, 0.05 / sd * math.sqrt(oracle)) < 0.9:
        oracle += 1
    assert power >= 0.9
    assert np.median(named) <= 2.5 * oracle


def test_levels_of_the_looks_spend_alpha_exactly() -> None:
    """A million normal paths with known variance cross the three bounds with probability .05, a third at each."""
    levels = nominal_levels((4, 8, 12), 0.05)
    assert levels[0] == pytest.approx(0.05 / 3)
    draw = np.random.default_rng(0)
    sums = np.cumsum(draw.standard_normal((400_000, 3)), axis=1)
    crossed = sums / np.sqrt([1, 2, 3]) > stats.norm.isf(levels)
    first = [crossed[:, 0], crossed[:, 1] & ~crossed[:, 0], crossed[:, 2] & ~crossed[:, :2].any(axis=1)]
    assert [float(look.mean()) for look in first] == pytest.approx([0.05 / 3] * 3, abs=0.001)


def test_a_sequential_p_value_is_the_alpha_whose_level_it_is() -> None:
    for size, level in zip(LOOKS.sizes, nominal_levels(LOOKS.sizes, 0.013), strict=True):
        assert LOOKS.p_value(size, level) == pytest.approx(0.013, rel=0.02)
    assert LOOKS.p_value(8, 1e-12) < 1e-11 and LOOKS.p_value(8, 0.99) == 1.0
    with pytest.raises(ValueError, match=SHOWN["seeds-are-not-a-planned"]):
        LOOKS.p_value(6, 0.01)
    with pytest.raises(ValueError, match="increasing"):
        Looks(sizes=(4, 4))


@pytest.mark.parametrize("looks", [None, LOOKS])
def test_false_alarms_at_the_margin_stay_below_alpha(looks: Looks | None) -> None:
    """A true harm of exactly the margin: REGRESSED in at most .06 of 2,000, with three looks too."""
    draw = np.random.default_rng(2)
    rules, alarms = GateRules(looks=looks), 0
    for _ in range(2000):
        differences = -0.02 + 0.1 * draw.standard_normal(12)
        verdicts = [gate(differences[:n], rules).verdict for n in (LOOKS.sizes if looks else (4,))]
        alarms += Verdict.REGRESSED in verdicts
    assert alarms / 2000 <= 0.06


@pytest.mark.parametrize("size, verdict", [(2, "INCONCLUSIVE"), (13, "INCONCLUSIVE"), (14, "PASS")])
def test_where_nothing_varies_pass_takes_as_many_seeds_as_show_that(size: int, verdict: str) -> None:
    """Accuracies of 0.9 on all seeds of both sides: nobody knows in what steps they move."""
    found = gates.gate(Samples.of([0.9] * size, [0.9] * size))
    assert found.verdict == verdict
    if verdict != "PASS":
        assert found.note == SHOWN["too-few-seeds-all-have"].format(size=size) and found.seeds_to_decide == 14
        assert found.upper > 0.05, "the bound is the share that cannot be ruled out, times the step"
    itself = dataclasses.replace(Samples.of([0.9] * size, [0.9] * size), may_vary=True)
    assert gates.gate(itself).verdict is Verdict.PASS, "scores that are clipped, or one evaluation twice"


def test_the_mean_over_cases_of_which_none_varies_is_no_pass_either() -> None:
    report = gates.gate_cases({name: Samples.of([1.0] * 4, [1.0] * 4) for name in "ab"})
    assert (
        report.verdict is report.overall.verdict is Verdict.INCONCLUSIVE
        and SHOWN["too-few-seeds"] in report.overall.note
    )


@pytest.mark.parametrize("size, verdict", [(4, "INCONCLUSIVE"), (35, "INCONCLUSIVE"), (36, "PASS")])
def test_seeds_of_one_value_are_counted_against_the_cases_own_margin(size: int, verdict: str) -> None:
    """An accuracy's scale is linear, with a margin of .02 where the rules have .05."""
    samples = Samples.of([0.9] * size, [0.9] * size)
    found = gate_looks.decide_gate({"a": samples}, GateRules(), {"a": 0.02}).overall
    assert found.verdict == verdict
    if verdict != "PASS":
        assert found.note == SHOWN["too-few-seeds-all-have-one"].format(size=size)
    assert (found.upper < 0.02) == (verdict == "PASS"), "the bound is in the units of the harm"
    mixed = gate_looks.decide_gate({"a": samples, "b": samples}, GateRules(), {"a": 0.02}).overall
    assert mixed.verdict is (Verdict.INCONCLUSIVE if size == 4 else Verdict.PASS), "the mean's margin is .035"


def lacking_worst(values: np.ndarray) -> np.ndarray:
    """Returns values of which the worst tenth is missing."""
    return np.where(values < np.quantile(values, 0.1), np.nan, values)


@pytest.mark.parametrize(("num_cases", "num_seeds"), [(1, 20), (6, 8)])
@pytest.mark.parametrize("side", ["a", "b", "both"])
def test_false_alarms_stay_below_alpha_if_the_worst_seeds_of_a_side_crash(
    num_cases: int, num_seeds: int, side: str
) -> None:
    draws, alarms = np.random.default_rng(3), 0
    for _ in range(300):
        a, b = draws.normal(0, 1, (2, num_cases, num_seeds))
        a, b = (lacking_worst(one) if side in (name, "both") else one for name, one in (("a", a), ("b", b)))
        samples = {}
        for case in range(num_cases):
            kept = np.isfinite(a[case]) & np.isfinite(b[case])
            missing_a, missing_b = (frozenset(np.flatnonzero(np.isnan(side[case])).tolist()) for side in (a, b))
            own = Samples.of(a[case][kept].tolist(), b[case][kept].tolist())
            samples[str(case)] = dataclasses.replace(own, missing_seeds=(missing_a, missing_b))
        alarms += gates.gate_cases(samples, GateRules(margin=0.0, resolution=1e6)).verdict is Verdict.REGRESSED
    assert alarms <= 24  # .08: a level of .05, and 2.4 errors


def test_a_gate_finds_a_large_harm_although_the_reference_lacks_seeds_and_its_bound_allows_for_them() -> None:
    draws = np.random.default_rng(4)
    a = draws.normal(0, 0.05, 7).tolist()
    b = [value - 1 + 0.05 * draws.normal() for value in a]
    whole = Samples.of(a, b)
    seeds = (frozenset({7}), frozenset[int]())
    complete, lacking = (gates.gate(samples) for samples in (whole, dataclasses.replace(whole, missing_seeds=seeds)))
    assert complete.verdict is lacking.verdict is Verdict.REGRESSED
    feigned = np.std(np.subtract(a, b), ddof=1) * math.sqrt(1 / 7)
    assert lacking.lower == pytest.approx(complete.lower - feigned) and lacking.upper == complete.upper
    by_group = [
        dataclasses.replace(whole, missing_seeds=seeds, shared_trainings=frozenset({"one training"})) for _ in range(2)
    ]
    report = gates.gate_cases(dict(zip("xy", by_group, strict=True)))
    assert report.overall.missing_a == 1  # one seed, which both cases of the group lack
    complete_group = [dataclasses.replace(one, missing_seeds=(frozenset(), frozenset())) for one in by_group]
    mean_of_both = gates.gate_cases(dict(zip("xy", complete_group, strict=True)))
    assert report.overall.lower == pytest.approx(mean_of_both.overall.lower - feigned)
    assert report.overall.lower < gates.gate_cases(dict.fromkeys("xy", whole)).overall.lower
