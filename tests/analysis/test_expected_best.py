"""The expected best of k trials: against all subsets, and how often its interval holds."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lobench.analysis.stats import expected_best as module
from lobench.analysis.stats.expected_best import SHARE_WITH_INTERVAL, are_ahead, expected_best


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=7))
def test_it_is_the_mean_over_all_subsets(values: list[float]) -> None:
    for k, found in enumerate(expected_best(values), 1):
        assert found.mean == pytest.approx(np.mean([max(some) for some in combinations(values, k)]), abs=1e-9)


def test_a_trial_that_failed_is_as_bad_as_the_worst() -> None:
    assert [one.mean for one in expected_best([1.0, math.nan, 2.0])] == [
        one.mean for one in expected_best([1.0, 1.0, 2.0])
    ]
    assert math.isnan(expected_best([math.nan])[0].mean) and expected_best([]) == []


def test_the_interval_is_the_studentized_bootstraps() -> None:
    values, k = np.sort(np.random.default_rng(0).standard_normal(30))[::-1], 4
    of_all, of_fewer = ([math.comb(n - i, k - 1) / math.comb(n, k) for i in range(1, n + 1)] for n in (30, 29))

    def mean_and_error(sample: np.ndarray) -> tuple[float, float]:
        without = np.array([np.delete(sample, place) @ of_fewer for place in range(30)])
        return float(sample @ of_all), math.sqrt(29 / 30 * np.sum((without - without.mean()) ** 2))

    mean, error = mean_and_error(values)
    resamples = np.random.default_rng(0).integers(0, 30, (999, 30))
    resampled = [mean_and_error(values[np.sort(places)]) for places in resamples]
    most, least = np.quantile([(one - mean) / its for one, its in resampled], [0.975, 0.025])
    found = expected_best(values)[k - 1]
    assert (found.lower, found.mean, found.upper) == pytest.approx((mean - most * error, mean, mean - least * error))
    assert repr(expected_best(values)) == repr(expected_best(values[::-1])), "some bounds are NaN"
    assert math.isnan(expected_best(values)[int(30 * SHARE_WITH_INTERVAL)].lower), "beyond a fifth of the trials"


def test_equal_trials_have_an_interval_without_width() -> None:
    found = expected_best([1.0] * 5)[0]
    assert (found.lower, found.mean, found.upper) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("world", ["normal", "ceiling", "failures"])
@pytest.mark.parametrize("count", [20, 60])
def test_the_interval_holds_in_90_to_99_of_100_searches(
    world: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allowance of two points is what 400 searches leave open."""
    asked, find = (1, count // 10, count // 5), module._mean_and_error
    none = np.full(1, math.nan), np.zeros(1)  # for the numbers of trials that this test does not check
    monkeypatch.setattr(module, "_mean_and_error", lambda samples, k: find(samples, k) if k in asked else none)
    rng = np.random.default_rng(1)

    def draw(num: int) -> np.ndarray:
        if world == "normal":
            return rng.standard_normal((num, count))
        if world == "ceiling":
            return rng.beta(5, 1, (num, count))
        return np.where(rng.random((num, count)) < 0.4, -1.0, rng.beta(2, 4, (num, count)))

    searches, many = [expected_best(row) for row in draw(400)], draw(20_000)
    for k in asked:
        truth = many[:, :k].max(axis=1).mean()
        held = np.mean([one[k - 1].lower <= truth <= one[k - 1].upper for one in searches])
        assert 0.88 <= held <= 0.99


def test_an_interval_needs_five_trials() -> None:
    assert math.isnan(expected_best([1.0, 2.0, 3.0, 4.0])[0].lower)
    assert not math.isnan(expected_best([1.0, 2.0, 3.0, 4.0, 5.0])[0].lower)


def test_are_ahead_of_two_equal_searches_seldom_shows_a_lead_and_finds_a_real_one() -> None:
    rng = np.random.default_rng(3)
    searches = rng.standard_normal((60, 2, 20))
    shown = [any(are_ahead(a, b)) or any(are_ahead(b, a)) for a, b in searches]
    assert sum(shown) <= 7, "60 x .05 is 3, and 7 has a chance of .03"
    found = [are_ahead(a + 1.0, b) for a, b in searches]
    assert np.mean([one[0] for one in found]) > 0.7, "the mean of 20 trials, one deviation apart"
    assert not any(any(one[4:]) for one in found), "no interval beyond a fifth of the trials"
    assert are_ahead([1.0] * 4, [0.0] * 4) == [False] * 4 and are_ahead([math.nan], [1.0, 2.0]) == [False]
