"""Which numbers of seeds a gate looks at, and the verdict after all looks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lobench.analysis.comparisons import gate_looks, gates
from lobench.analysis.comparisons.gate_looks import look_sizes, num_usable_seeds
from lobench.analysis.comparisons.gates import GateReport, GateRules, Verdict
from lobench.analysis.stats.alpha_spending import Looks
from lobench.analysis.stats.paired_samples import Samples


def decide(differences: Mapping[str, Sequence[float]], *args: Any) -> GateReport:
    return gate_looks.decide_gate({case: Samples.of_differences(values) for case, values in differences.items()}, *args)


def gate_cases(differences: Mapping[str, Sequence[float]], *args: Any) -> GateReport:
    return gates.gate_cases({case: Samples.of_differences(values) for case, values in differences.items()}, *args)


def is_settled(differences: Sequence[float], *args: Any) -> bool:
    return gate_looks.is_settled(Samples.of_differences(differences), *args)


def test_looks_double_in_whole_blocks_up_to_the_maximum() -> None:
    assert look_sizes(4, 4, 32) == (4, 8, 16, 32)
    assert look_sizes(4, 4, 30) == (4, 8, 16, 28)
    assert look_sizes(5, 2, 16) == (5, 11, 15)
    assert look_sizes(4, 4, 0) == look_sizes(4, 4, 7) == (4,)


@given(st.integers(2, 20), st.integers(1, 20), st.integers(0, 200))
def test_looks_grow_by_blocks_and_leave_less_than_one(num_seeds: int, step: int, maximum: int) -> None:
    sizes = look_sizes(num_seeds, step, maximum)
    assert sizes[0] == num_seeds
    assert all(b > a and (b - a) % step == 0 for a, b in itertools.pairwise(sizes))
    assert max(maximum, num_seeds) - step < sizes[-1] <= max(maximum, num_seeds)


def test_seeds_beyond_the_last_full_look_do_not_count() -> None:
    rules = GateRules(looks=Looks(sizes=(4, 8)))
    assert [num_usable_seeds(n, rules) for n in (3, 4, 7, 8, 9)] == [0, 4, 4, 8, 8]
    assert num_usable_seeds(7, GateRules()) == 7


def test_without_looks_it_is_the_plain_gate() -> None:
    differences = {"a": [-0.3, -0.2, -0.25], "b": [0.0, 0.1, 0.05]}
    assert repr(decide(differences, GateRules())) == repr(gate_cases(differences, GateRules()))


def test_what_was_rejected_at_a_look_stays_rejected() -> None:
    rules = GateRules(looks=Looks(sizes=(4, 8)))
    clear = [-0.5, -0.51, -0.49, -0.5]
    noise = [2.0, -2.0, 2.0, -2.0]
    assert decide({"a": clear}, rules).verdict is Verdict.REGRESSED
    assert decide({"a": clear + noise}, rules).verdict is Verdict.REGRESSED
    assert gate_cases({"a": clear + noise}, rules).verdict is Verdict.INCONCLUSIVE  # the last look by itself


def test_cases_may_stand_at_different_looks() -> None:
    rules = GateRules(looks=Looks(sizes=(2, 4, 8)))
    same = np.zeros(2).tolist()
    report = decide({"same": same, "noisy": [0.5, -0.5, 0.4, -0.6, 0.5, -0.5, 0.4, -0.6]}, rules)
    assert [(case.case, case.num_seeds) for case in report.cases] == [("same", 2), ("noisy", 8)]
    assert report.cases[0].verdict is Verdict.PASS
    assert report.verdict is Verdict.INCONCLUSIVE


def test_a_case_is_settled_at_the_level_that_holm_can_ask_of_it() -> None:
    rules = GateRules(looks=Looks(sizes=(4, 8)))
    harm = [-0.10, -0.15, -0.12, -0.11]
    assert is_settled(harm, rules, 1)
    assert not is_settled(harm, rules, 500)
    assert is_settled([0.0] * 4, rules, 500), "passing needs no correction"
    assert not is_settled([], rules, 1)


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_case_without_common_seeds_is_inconclusive(adaptive: bool) -> None:
    rules = GateRules(looks=Looks(sizes=(2, 4)) if adaptive else None)
    report = decide({"a": [], "b": [0.0, 0.0]}, rules)
    assert [case.verdict for case in report.cases] == [Verdict.INCONCLUSIVE, Verdict.PASS]
    assert report.verdict is Verdict.INCONCLUSIVE


def test_a_case_with_a_margin_of_its_own_is_held_to_that() -> None:
    harm = {"a": [-0.30, -0.31, -0.29, -0.30], "b": [-0.30, -0.31, -0.29, -0.30]}
    report = decide(harm, GateRules(margin=0.02), {"a": 0.5})
    assert [case.verdict for case in report.cases] == [Verdict.PASS, Verdict.REGRESSED]
    assert [case.harm for case in report.cases] == pytest.approx([0.3, 0.3])
    assert report.overall.harm == pytest.approx(0.3)
    assert report.overall.verdict is Verdict.REGRESSED, "0.3 is more than the mean margin of 0.26"
    assert decide(harm, GateRules(margin=0.02), {"a": 0.7}).overall.verdict is Verdict.PASS


def test_decide_takes_the_mean_over_the_cases_that_have_results() -> None:
    found = Samples.of([0.1, 0.2, 0.35, 0.3], [0.05, 0.1, 0.3, 0.3])
    alone = gate_looks.decide_gate({"a": found}, GateRules(), {"a": 1.0}).overall
    nothing = Samples(missing_seeds=(frozenset(), frozenset(range(4))))
    mean = gate_looks.decide_gate({"a": found, "b": nothing}, GateRules(), {"a": 1.0}).overall
    assert mean.harm == pytest.approx(alone.harm) and mean.upper == pytest.approx(alone.upper)
    assert mean.verdict is Verdict.INCONCLUSIVE
