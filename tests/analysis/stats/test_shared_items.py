"""Means over cases that share items, against the paired t test, the stratified one and an own sum over items."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from lobench.analysis.comparisons.gates import gate_cases
from lobench.analysis.stats.comparison import compare_cases
from lobench.analysis.stats.intervals import grouped_t_mean, stratified_t_mean
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.seed_groups import mean_over_cases
from lobench.analysis.stats.shared_items import clustered_mean, item_mean

RNG = np.random.default_rng(3)


def case_of(values: dict[int, float], unit: float = 0.0) -> Samples:
    """Returns pairs of items with these differences, of which A has 0 (of binary ones, the success that B lacks)."""
    a = tuple(-min(value, 0.0) if unit else 0.0 for value in values.values())
    return Samples(
        a=a,
        b=tuple(x + value for x, value in zip(a, values.values(), strict=True)),
        seeds=(tuple(values), tuple(values)),
        shared_trainings=frozenset(f"item {item}" for item in values),
        replicate="item",
        binary_unit=unit,
    )


def test_equal_items_have_the_paired_test_of_their_means() -> None:
    rows = RNG.normal(0.2, 1, (3, 20)) + RNG.normal(0, 1, 20)
    cases = [dict(enumerate(row)) for row in rows.tolist()]
    found = item_mean([case_of(case) for case in cases])
    known = stats.ttest_1samp(rows.mean(axis=0), 0)
    assert found.p_value() == pytest.approx(known.pvalue) and found.estimate.degrees == pytest.approx(19)
    bounds = grouped_t_mean(cases, [[0, 1, 2]], have_items={0, 1, 2})
    assert (bounds.lower, bounds.upper) == pytest.approx(tuple(known.confidence_interval(0.95)))


def test_items_of_one_case_each_have_the_stratified_interval() -> None:
    cases = [dict(enumerate(RNG.normal(0, 1, size).tolist(), 100 * size)) for size in (5, 9, 30)]
    found, known = clustered_mean(cases, [1 / 3] * 3), stratified_t_mean([list(case.values()) for case in cases])
    assert (found.mean, found.degrees) == pytest.approx((known.mean, known.degrees))
    assert found.variance == pytest.approx(known.error() ** 2)


def test_partly_common_items_count_once() -> None:
    first = dict(enumerate(RNG.normal(0, 1, 12).tolist()))
    second = {item: first.get(item, 0.5) + 0.1 * item for item in range(6, 20)}
    found = clustered_mean([first, second], [0.5, 0.5])
    terms = np.zeros(20)
    for case in (first, second):
        values, size = np.asarray([*case.values()]), len(case)
        terms[list(case)] += (values - values.mean()) / 2 / np.sqrt(size * (size - 1))
    assert found.variance == pytest.approx(np.sum(terms**2))
    parts = [np.sum(terms[part] ** 2) for part in (slice(0, 6), slice(6, 12), slice(12, 20))]
    degrees = (6 * (1 - 1 / 12), 6 * (1 - 1 / 12), 8 * (1 - 1 / 14))
    assert found.degrees == pytest.approx(sum(parts) ** 2 / sum(p**2 / d for p, d in zip(parts, degrees, strict=True)))


def test_copies_of_a_binary_case_have_its_variance() -> None:
    one = case_of(dict(enumerate([1.0] * 5 + [-1.0] + [0.0] * 14)), unit=1.0)
    alone = one.estimate()
    for copies in (1, 2, 3):
        found = item_mean([one] * copies).estimate
        assert (found.mean, found.variance) == pytest.approx((alone.mean, alone.variance))
        assert found.degrees == pytest.approx(19)
    every = case_of(dict.fromkeys(range(4), 1.0), unit=1.0)  # without a difference between items
    assert compare_cases({"x": every, "y": every}).p_value > 0.01
    moved = item_mean([one.shifted(0.25)] * 2).estimate
    assert (moved.mean, moved.variance) == pytest.approx((alone.mean + 0.25, alone.variance))


@pytest.mark.parametrize("parts", [(range(40), range(20, 60)), (range(40), range(40), range(38, 44))])
def test_means_over_cases_that_share_items_keep_their_level(parts: tuple[range, ...]) -> None:
    """Two thirds of the variance are the item's own. Tests that take the cases for independent err in .08 to .12."""
    rng, found, worlds = np.random.default_rng(0), np.zeros(2), 1000
    for _ in range(worlds):
        hard = 1.4 * rng.normal(0, 1, 60)
        cases = [case_of({item: hard[item] + rng.normal() for item in part}) for part in parts]
        alone = [dataclasses.replace(case, shared_trainings=frozenset()) for case in cases]
        for place, grouped in enumerate((cases, alone)):
            mean = mean_over_cases(grouped).location
            found[place] += mean is not None and mean.p_value() <= 0.05
    together, apart = found / worlds
    assert together <= 0.0625 < apart


def test_comparison_and_gate_have_the_same_bounds_and_groups() -> None:
    cases = {
        name: case_of({i: float(RNG.normal(0.5)) for i in part})
        for name, part in {"x": range(30), "y": range(20, 50), "z": range(90, 110)}.items()
    }
    compared, gated = compare_cases(cases), gate_cases(cases)
    assert compared.groups == gated.groups == (("x", "y"), ("z",))
    both, last = item_mean([cases["x"], cases["y"]]).estimate, np.asarray(cases["z"].b)
    mean, variance = (2 * both.mean + last.mean()) / 3, (4 * both.variance + last.var(ddof=1) / 20) / 9
    assert (compared.overall.mean, -gated.overall.harm) == pytest.approx((mean, mean))
    assert compared.overall.error() == pytest.approx(variance**0.5)


def test_lost_and_single_items() -> None:
    lost = case_of(dict(enumerate([0.1, -np.inf, 0.2, 0.4])))
    other = case_of(dict(enumerate([0.3, 0.1, 0.5, 0.2])))
    found = mean_over_cases([lost, other])
    assert found.groups == ((0, 1),) and (found.num_converged, found.num_incomplete) == (3, 0)
    assert found.location is not None
    assert found.location.p_value() == pytest.approx(stats.ttest_1samp([0.2, 0.35, 0.3], 0).pvalue)
    assert np.isnan(item_mean([case_of({1: 0.5}), other]).estimate.variance)
