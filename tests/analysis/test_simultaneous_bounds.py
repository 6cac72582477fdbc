"""Bounds beside corrected verdicts: they are of the verdicts' level, and hold for all cases together."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lobench.analysis.comparisons.gate_looks import decide_gate
from lobench.analysis.comparisons.gates import GateRules, Verdict, gate_cases
from lobench.analysis.stats.alpha_spending import Looks
from lobench.analysis.stats.comparison import Effect, compare_cases
from lobench.analysis.stats.paired_samples import DIVERGED, Samples


def draw(seed: int, num_cases: int, num_seeds: int, shift: float, *, lost: float = 0.0) -> dict[str, Samples]:
    """Returns cases of which every second one has a difference of up to `shift` deviations."""
    rng = np.random.default_rng(seed)
    found = {}
    for case in range(num_cases):
        own = shift * rng.random() if case % 2 else 0.0
        sides = rng.normal(size=(2, num_seeds)) + [[0.0], [own]]
        values = [[DIVERGED if rng.random() < lost else float(value) for value in side] for side in sides]
        found[f"case{case}"] = Samples.of(values[0], values[1])
    return found


worlds = given(
    seed=st.integers(0, 10**6),
    num_cases=st.integers(1, 8),
    num_seeds=st.integers(2, 8),
    shift=st.floats(-4, 4),
    lost=st.sampled_from([0.0, 0.0, 0.2]),
)


@settings(max_examples=80, deadline=None)
@worlds
def test_compare_cases_verdict_and_bounds_of_a_case_are_of_one_level(
    seed: int, num_cases: int, num_seeds: int, shift: float, lost: float
) -> None:
    found = compare_cases(draw(seed, num_cases, num_seeds, shift, lost=lost))
    for one in found.cases:
        paired = one.paired
        if math.isnan(paired.lower):
            continue
        assert paired.lower <= paired.mean <= paired.upper
        if math.isnan(paired.p_diverged):  # otherwise the counts of diverged seeds may decide, too
            expected = Effect.BETTER if paired.lower > 0 else Effect.WORSE if paired.upper < 0 else Effect.UNDECIDED
            assert one.verdict is expected, one
        elif one.verdict is Effect.UNDECIDED:
            assert paired.lower <= 0 <= paired.upper


@settings(max_examples=80, deadline=None)
@worlds
def test_gate_cases_verdict_and_bounds_of_a_case_are_of_one_level(
    seed: int, num_cases: int, num_seeds: int, shift: float, lost: float
) -> None:
    report = gate_cases(draw(seed, num_cases, num_seeds, shift, lost=lost), rules := GateRules(margin=0.5))
    for one in (*report.cases, report.overall):
        if math.isnan(one.lower):
            continue
        assert one.lower <= one.harm <= one.upper
        if one.verdict is Verdict.REGRESSED:
            assert one.lower > rules.margin or one.p_diverged <= rules.alpha
        else:
            assert one.lower <= rules.margin
            is_worse_elsewhere = one.p_diverged <= rules.alpha  # the divergence test alone, before Holm's correction
            assert (one.verdict is Verdict.PASS) == (one.upper < rules.margin and not is_worse_elsewhere)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(-4, 0))
def test_gate_cases_with_looks_bounds_are_of_the_verdicts_level(seed: int, shift: float) -> None:
    rules = GateRules(margin=0.5, looks=Looks(sizes=(4, 8, 12)))
    report = decide_gate(draw(seed, 3, 12, shift), rules)
    for one in (*report.cases, report.overall):
        assert (one.verdict is Verdict.REGRESSED) == (one.lower > rules.margin)
        assert (one.verdict is Verdict.PASS) == (one.upper < rules.margin and one.lower <= rules.margin)


def test_bounds_of_all_cases_hold_together() -> None:
    """All of six cases, half of them with a large difference: at least .93 of 600 experiments, .95 being promised."""
    rng = np.random.default_rng(0)
    num_held = 0
    for _ in range(600):
        truths = [0.0, 2.0, 0.0, 2.0, 0.0, 2.0]
        samples = {str(at): Samples.of([0.0] * 6, rng.normal(true, 1, 6).tolist()) for at, true in enumerate(truths)}
        cases = compare_cases(samples).cases
        num_held += all(one.paired.lower <= true <= one.paired.upper for one, true in zip(cases, truths, strict=True))
    assert num_held / 600 >= 0.93
