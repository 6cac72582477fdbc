"""The stratified t interval against scipy's one-sample and Welch intervals, and by its coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from shown import texts_of

from lobench.analysis.stats.intervals import (
    grouped_t_mean,
    is_trial,
    logged_step,
    metric_bounds,
    metric_mean,
    num_examples,
)
from lobench.extend import stratified_t_mean

SHOWN = texts_of("analysis")

A, B = [1.0, 2.5, 0.5, 4.0], [7.0, 7.5, 9.0, 6.0, 6.5, 8.0]


def test_one_case_is_students_interval() -> None:
    known = stats.ttest_1samp(A, 0).confidence_interval(0.95)
    found = stratified_t_mean([A])
    assert (found.mean, found.lower, found.upper) == pytest.approx((2.0, known.low, known.high))
    assert found.degrees == pytest.approx(3)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_two_ragged_cases_are_half_of_welchs_interval_of_the_sum(confidence: float) -> None:
    welch = stats.ttest_ind(A, [-value for value in B], equal_var=False)
    known = welch.confidence_interval(confidence)
    found = stratified_t_mean([A, B], confidence)
    assert (found.lower, found.upper) == pytest.approx((known.low / 2, known.high / 2))
    assert found.degrees == pytest.approx(welch.df)
    assert found.mean == pytest.approx((np.mean(A) + np.mean(B)) / 2)


def test_known_answer_for_three_cases() -> None:
    found = stratified_t_mean([[1, 3], [2, 4, 6], [5, 5]])
    # Variances 2, 4, 0: parts 1/9, 4/27, 0; degrees (7/27)^2 / ((1/9)^2 / 1 + (4/27)^2 / 2) = 49/17.
    half = stats.t.ppf(0.975, 49 / 17) * math.sqrt(7 / 27)
    assert found.degrees == pytest.approx(49 / 17)
    assert (found.mean, found.lower, found.upper) == pytest.approx((11 / 3, 11 / 3 - half, 11 / 3 + half))


def test_it_covers_what_it_says() -> None:
    """Ten cases of four seeds with unlike spreads; 2000 draws: 95% within three standard errors of the draw."""
    draw = np.random.default_rng(0)
    spreads = np.geomspace(0.1, 3, 10)[:, None]
    covered = 0
    for _ in range(2000):
        found = stratified_t_mean((draw.standard_normal((10, 4)) * spreads).tolist())
        covered += found.lower < 0 < found.upper
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_tiny_losses_keep_their_degrees_of_freedom() -> None:
    tiny = stratified_t_mean([[value * 1e-100 for value in case] for case in (A, B)])
    assert tiny.degrees == pytest.approx(stratified_t_mean([A, B]).degrees)
    assert tiny.lower < tiny.mean < tiny.upper


def test_a_single_seed_leaves_the_mean_without_bounds() -> None:
    found = stratified_t_mean([[1.0], [2.0, 4.0]])
    assert found.mean == 2.0
    assert math.isnan(found.lower) and math.isnan(found.upper) and math.isnan(found.degrees)


def test_seeds_that_agree_leave_no_width() -> None:
    found = stratified_t_mean([[1.0, 1.0], [3.0, 3.0, 3.0]])
    assert (found.mean, found.lower, found.upper, found.degrees) == (2.0, 2.0, 2.0, math.inf)


@pytest.mark.parametrize(
    ("bad", "mean"), [([math.nan, 1.0], math.nan), ([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan)]
)
def test_what_diverged_does_not_vanish(bad: list[float], mean: float) -> None:
    found = stratified_t_mean([[1.0, 2.0], bad])
    assert found.mean == pytest.approx(mean, nan_ok=True)
    assert math.isnan(found.lower) and math.isnan(found.upper)


@pytest.mark.parametrize(
    ("cells", "confidence", "message"),
    [
        ([], 0.95, SHOWN["at-least-one-case"]),
        ([[1.0, 2.0], []], 0.95, SHOWN["seed-in-each"]),
        ([A], 1.0, SHOWN["confidence-is-1-0"]),
    ],
)
def test_nothing_to_average(cells: list[list[float]], confidence: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stratified_t_mean(cells, confidence)


@given(
    st.lists(st.lists(st.floats(-100, 100), min_size=2, max_size=5), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_order_does_not_matter_and_a_shift_shifts(cells: list[list[float]], random: object) -> None:
    shuffled = [random.sample(cell, len(cell)) for cell in random.sample(cells, len(cells))]  # type: ignore[attr-defined]
    found, again = stratified_t_mean(cells), stratified_t_mean(shuffled)
    assert again.mean == pytest.approx(found.mean, abs=1e-9)
    assert (again.lower, again.upper) == pytest.approx((found.lower, found.upper), abs=1e-6)
    moved = stratified_t_mean([[value + 7 for value in cell] for cell in cells])
    assert (moved.lower, moved.upper) == pytest.approx((found.lower + 7, found.upper + 7), abs=1e-6)


@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        ([1.0] * 4, 0.025**0.25, 1.0),
        ([0.0] * 4, 0.0, 1 - 0.025**0.25),
        ([1.0, 0.0, 1.0, 1.0], 0.1941204, 0.9936905),  # scipy.stats.beta.ppf(.025, 3, 2), ppf(.975, 4, 1)
        ([1.0] * 3000, 0.025 ** (1 / 3000), 1.0),
    ],
)
def test_seeds_that_succeed_or_fail_as_a_whole_are_counted(values: list[float], lower: float, upper: float) -> None:
    found = metric_mean("success", values)
    assert (found.lower, found.upper) == pytest.approx((lower, upper), abs=1e-6)
    assert found.mean == sum(values) / len(values)


@pytest.mark.parametrize(
    ("share", "number"),
    [(1.0, 4), (0.0, 4), (0.5, 4), (0.9, 10), (0.97, 100), (31 / 32, 32), (1 / 3, 6), (0.123, 1000)],
)
def test_num_examples_is_the_smallest_that_allows_the_share(share: float, number: int) -> None:
    assert num_examples(float(np.float32(share))) == number


@pytest.mark.parametrize("num_seeds", [2, 3, 4])
@pytest.mark.parametrize(("share", "number"), [(1.0, 4), (0.9, 10), (0.0, 4)])
def test_shares_that_agree_have_the_binomial_interval_of_their_examples(
    share: float, number: int, num_seeds: int
) -> None:
    found, right = metric_mean("test/accuracy", [share] * num_seeds), round(share * number) * num_seeds
    known = stats.binomtest(right, number * num_seeds).proportion_ci(0.95, method="exact")
    assert (found.lower, found.upper) == pytest.approx((known.low, known.high), abs=1e-9)
    assert found.method == "exact" and found.mean == share


@pytest.mark.parametrize("num_seeds", [2, 3])
@pytest.mark.parametrize("num_games", [5, 10, 20, 100])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_intervals_of_win_rates_of_few_seeds_hold_the_truth(share: float, num_games: int, num_seeds: int) -> None:
    rng, held = np.random.default_rng(0), 0
    for wins in rng.binomial(num_games, share, (600, num_seeds)):
        found = metric_mean("test/win_rate", np.float32(wins / num_games).tolist())
        held += found.lower <= share <= found.upper
    assert held / 600 >= 0.9


def test_an_accuracy_is_no_coin() -> None:
    """An accuracy of 1 on each seed is the mean of many examples, and no four tosses."""
    found, tossed = metric_mean("accuracy", [1.0] * 4), metric_mean("success", [1.0] * 4)
    assert tossed.lower < 0.4 < 0.75 < found.lower < 1.0 == found.upper
    assert metric_mean("accuracy", [1.0, 0.0, 1.0, 1.0]).lower == pytest.approx(0.0413, abs=1e-3)
    assert [is_trial(name) for name in ("train/success", "test/solved", "test/accuracy", "error_rate")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(("share", "trials"), [(0.5, 1), (0.8, 1), (0.99, 1), (0.5, 10), (0.8, 10)])
def test_the_interval_of_a_share_holds_the_truth_and_lies_inside_0_and_1(share: float, trials: int) -> None:
    rng, held = np.random.default_rng(0), 0
    for successes in rng.binomial(trials, share, (400, 5)):
        found = metric_mean("success" if trials == 1 else "accuracy", (successes / trials).tolist())
        assert 0 <= found.lower <= found.mean <= found.upper <= 1
        held += found.lower <= share <= found.upper
    assert held / 400 >= 0.93


def test_what_is_a_share() -> None:
    names = ("test/accuracy", "train/success", "train/solved", "error_rate")
    assert all(metric_mean(name, [0.0, 0.5, 1.0]).method == "logit-t" for name in names)
    assert metric_mean("train/success", [1.2]).method == metric_mean("train/return", [0.5]).method == "t"


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=8))
def test_the_interval_of_a_loss_above_0_is_above_0_and_holds_the_mean(values: list[float]) -> None:
    found = metric_mean("test/loss", values)
    assert 0 < found.lower <= found.mean * (1 + 1e-12) and found.mean <= found.upper * (1 + 1e-12)
    assert found.method == "log-t" and metric_mean("test/loss", [-1.0, *values]).method == "t"


def test_the_interval_of_a_loss_spans_the_delta_methods_and_the_log_normal_laws() -> None:
    losses = [0.1, 0.4, 1.6, 0.4]
    logs, quantile = np.log(losses), stats.t.ppf(0.975, 3)
    variance = logs.var(ddof=1)
    cox = quantile * math.sqrt(variance / 4 + variance**2 / 6)
    delta = quantile * stats.sem(losses) / np.mean(losses)
    found = metric_mean("test/loss", losses)
    assert found.lower == pytest.approx(
        min(np.mean(losses) * math.exp(-delta), math.exp(logs.mean() + variance / 2 - cox))
    )
    assert found.upper == pytest.approx(math.exp(logs.mean() + variance / 2 + cox))
    even = [1.0, 1.01, 0.99, 1.0]
    found = metric_mean("test/loss", even)
    assert (found.upper - found.lower) / 2 == pytest.approx(quantile * stats.sem(even), rel=1e-3)
    assert metric_mean("test/loss", [1e-30, 1.0, 1.0, 1.0]).upper < 1e5


@pytest.mark.parametrize("num_seeds", [2, 3, 4, 20])
@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_intervals_of_log_normal_losses_hold_the_truth(num_seeds: int, sigma: float) -> None:
    rows = np.exp(np.random.default_rng(1).normal(0, sigma, (4000, num_seeds, 1)))
    lower, upper, _ = metric_bounds("test/loss", rows)
    truth = math.exp(sigma**2 / 2)
    assert np.mean((lower <= truth) & (truth <= upper)) >= 0.93 - 0.008  # two standard errors


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.5, 1.0, 2.0, math.inf, math.nan])
@pytest.mark.parametrize("metric", ["train/loss", "test/accuracy", "test/success", "train/return"])
def test_a_seed_alone_is_told_as_one_of_an_array(metric: str, value: float) -> None:
    found, (lower, upper, method) = metric_mean(metric, [value]), metric_bounds(metric, np.array([[value]]))
    assert found.mean == value or math.isnan(value)
    assert (found.degrees, found.method) == (0, method[0])
    assert all(math.isnan(bound) for bound in (found.lower, found.upper, lower[0], upper[0]))


def test_bounds_are_by_what_the_values_of_a_point_are_whatever_stands_beside_it() -> None:
    """A column of students, of a loss with a zero, of a share beyond 1, of trials."""
    plain = np.array([-1.0, 2.0, 3.0, 4.0])
    expected = stats.t.interval(0.95, 3, plain.mean(), plain.std(ddof=1) / 2)
    positive, share, trials = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, 1, 0, 1])
    for metric, points, methods in (
        ("train/return", (plain, positive), ["t", "t"]),
        ("train/loss", (plain, positive, positive - 1), ["t", "log-t", "t"]),
        ("test/accuracy", (plain, share, trials, positive), ["t", "logit-t", "logit-t", "t"]),
        ("test/success", (plain, share, trials, 1 - trials), ["t", "logit-t", "exact", "exact"]),
    ):
        lower, upper, found = metric_bounds(metric, np.stack(points, 1))
        assert found.tolist() == methods
        np.testing.assert_allclose((lower[0], upper[0]), expected)
        for place, point in enumerate(points):
            alone = metric_bounds(metric, point[:, None])
            assert (lower[place], upper[place], found[place]) == tuple(one[0] for one in alone)
        assert (lower < upper).all()


@pytest.mark.parametrize(
    ("value", "step"),
    [
        (3.28, 0.01),
        (3.2784, 1e-4),
        (3.28125, 2**-6),
        (0.5, 0.1),
        (1201.0, 1.0),
        (1e-05, 1e-5),
        (1 / 3, 0.0),
        (0.0, 0.0),
    ],
)
def test_logged_step_is_that_of_few_decimals_or_of_half_precision(value: float, step: float) -> None:
    assert logged_step(float(np.float32(value))) == pytest.approx(step)


@pytest.mark.parametrize("step", [1.0, 2.5])
@pytest.mark.parametrize("num_seeds", [2, 3, 4])
def test_intervals_of_losses_with_few_digits_hold_the_truth(step: float, num_seeds: int) -> None:
    """Losses with two decimals, which are `step` deviations of a seed; two seeds agree in .28 and .63 of the worlds."""
    draws, held = np.random.default_rng(0), 0
    for _ in range(1000):
        truth = draws.uniform(3.0, 3.5)
        losses = np.round(truth + 0.01 / step * draws.standard_normal(num_seeds), 2).astype(np.float32)
        found = metric_mean("val/loss", losses.tolist())
        held += found.lower <= truth <= found.upper
    assert held >= 930


def test_mean_of_cases_whose_seeds_agree_has_the_width_of_their_least_variances() -> None:
    alike = [[0.5] * 4, [0.7] * 4]
    assert stratified_t_mean(alike).upper == stratified_t_mean(alike).mean
    found = stratified_t_mean(alike, least=[0.04, 0.04])
    assert found.upper - found.mean == pytest.approx(2.447 * math.sqrt(0.04 / 8), rel=1e-3)  # t of 6 degrees
    grouped = grouped_t_mean([dict(enumerate(case)) for case in alike], [[0, 1]], least=[0.04, 0.04])
    assert grouped.upper - grouped.mean == pytest.approx(3.182 * math.sqrt(0.02 / 4), rel=1e-3)  # of 3
