"""The rule of the score, held against known answers, and its laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lobench.analysis.scores.score_scale import (
    DEFAULT_MARGINS,
    ScaleKind,
    ScoreScale,
    are_log_ratios,
    are_uninformative,
    check_score_versions,
    is_signed,
    ordering_values,
    scores,
)
from lobench.core.errors import LobenchError
from lobench.core.metric import Direction

TUNED = (0.024, 0.0024)


def scale_of(**changes: object) -> ScoreScale:
    values = {"metric": "train/loss", "untrained": 2.4, "tuned": TUNED, "starts": (2.4, 2.4), **changes}
    return ScoreScale.of_baseline(**values)  # type: ignore[arg-type]


def score(final: float, start: float | None = None, scale: ScoreScale | None = None) -> float:
    return float(scores([final], scale or scale_of(), starts=None if start is None else [start])[0])


def test_one_is_the_mean_of_the_baselines_orders_of_magnitude() -> None:
    assert scale_of().kind is ScaleKind.LOG
    assert scale_of().unit == pytest.approx(5.75646273, abs=1e-8)


@pytest.mark.parametrize(
    ("start", "final", "expected"),
    [
        (2.4, 2.4, 0.0),
        (2.4, 0.024, 0.8),
        (2.4, 0.0024, 1.2),
        (2.4, 0.00758946638, 1.0),
        (2.4, 0.0, 2.0),
        (2.4, 3.6, -0.5),
        (2.4, 4.8, -1.0),
        (2.4, 1e30, -1.0),
        (2.4, math.nan, -1.0),
        (2.4, math.inf, -1.0),
        (7.2, 3.6, 0.120412),
    ],
)
def test_known_scores(start: float, final: float, expected: float) -> None:
    assert score(final, start) == pytest.approx(expected, abs=1e-6)


def test_the_baselines_own_seeds_average_one_wherever_they_start() -> None:
    scale = scale_of(starts=(1.2, 4.8))
    assert scale.unit == pytest.approx(scale_of().unit, abs=1e-12)
    found = scores(TUNED, scale, starts=[1.2, 4.8])
    assert found == pytest.approx([0.679588, 1.320412], abs=1e-6)
    assert found.mean() == pytest.approx(1, abs=1e-12)


def test_a_baseline_at_the_floor_leaves_no_more_than_its_own_score() -> None:
    scale = scale_of(untrained=6.287, starts=(6.287,), tuned=(7.8e-14,))
    assert scale.unit == pytest.approx(27.6310211, abs=1e-7)
    assert score(1.96e-4, 6.287, scale) == pytest.approx(0.375516, abs=1e-6)
    assert score(0, 6.287, scale) == 1


def test_a_thin_scale() -> None:
    scale = scale_of(untrained=1, starts=(1,), tuned=(0.99,))
    assert scale.unit == pytest.approx(-math.log(0.99), abs=1e-12)
    assert scale.is_thin, "one seed of the baseline"
    for final, expected in ((0.995, 0.498744), (1.005, -0.496256), (1.02, -1)):
        assert score(final, 1, scale) == pytest.approx(expected, abs=1e-6)
    # Gains of ln 100 and ln 1000: their mean is 3.5 times their spread. Of 0 and ln 10 it is .7 times.
    assert not scale_of().is_thin
    assert scale_of(tuned=(2.4, 0.24)).is_thin


def test_a_start_that_is_not_known_is_the_untrained_mean() -> None:
    for start in (None, math.nan, 0.0, -1.0):
        assert score(0.024, start) == score(0.024, 2.4)
    scale = scale_of(starts=())
    assert (scale.unit, scale.has_starts) == (scale_of().unit, False)


def test_rounding_below_zero_is_at_the_floor_and_more_is_signed() -> None:
    scale = scale_of()
    assert score(-1e-7 * 2.4, 2.4) == score(0, 2.4)
    assert not is_signed([-1e-7 * 2.4, 1.0], scale)
    assert is_signed([-1e-3 * 2.4, 1.0], scale)
    assert not is_signed([-1e-3 * 2.4], scale.as_linear())
    assert not is_signed([-1e-3 * 2.4], scale_of(minimum=0.0)), "a declared minimum makes it a floor"
    assert not is_signed([-math.inf, math.nan], scale), "which diverged"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, ScaleKind.LOG),
        ({"metric": "test/loss"}, ScaleKind.LOG),
        ({"metric": "train/normalized_loss"}, ScaleKind.LINEAR),
        ({"metric": "test/accuracy", "direction": Direction.MAX, "untrained": 0.1, "tuned": (0.9,)}, ScaleKind.LINEAR),
        ({"tuned": (0.024, -1e-3 * 2.4)}, ScaleKind.LINEAR),
        ({"tuned": (0.024, -1e-7 * 2.4)}, ScaleKind.LOG),
        ({"curve": (2.4, -0.1, 0.01)}, ScaleKind.LINEAR),
        ({"starts": (2.4, 0.0)}, ScaleKind.LINEAR),
        ({"untrained": 0.0}, ScaleKind.LINEAR),
        ({"declared": "linear"}, ScaleKind.LINEAR),
        ({"declared": "log", "curve": (-0.1,)}, ScaleKind.LOG),
        ({"minimum": -1.0, "curve": (-0.9,)}, ScaleKind.LOG),
    ],
)
def test_which_scale_a_case_has(changes: dict[str, object], kind: ScaleKind) -> None:
    assert scale_of(**changes).kind is kind


def test_a_linear_scale_is_the_share_of_the_way() -> None:
    scale = scale_of(declared="linear")
    mean = np.mean(TUNED)
    assert score(1.2, 9.9, scale) == pytest.approx(1.2 / (2.4 - mean))
    assert score(mean, None, scale) == pytest.approx(1)
    assert (score(100, None, scale), score(math.nan, None, scale)) == (-1, -1)
    rising = scale_of(metric="test/accuracy", untrained=0.1, tuned=(0.8, 1.0), starts=(), direction=Direction.MAX)
    assert score(0.5, None, rising) == pytest.approx(0.5)
    assert ordering_values([0.5, 0.6], rising).tolist() == [0.5, 0.6]


@pytest.mark.parametrize(
    "changes",
    [
        {"tuned": (0.024, math.nan)},
        {"tuned": (2.5, 2.5)},
        {"tuned": (2.4, 2.4)},
        {"tuned": (2.5,), "declared": "linear"},
        {"tuned": (0.5,), "untrained": -1.0, "declared": "log"},
        {"untrained": math.nan},
        {"direction": None},
    ],
)
def test_no_scale_gives_no_score(changes: dict[str, object]) -> None:
    scale = scale_of(**changes)
    assert not scale.is_usable
    assert math.isnan(score(1.0, 2.4, scale)) and math.isnan(score(math.nan, 2.4, scale))


def test_a_minimum_is_subtracted_from_everything() -> None:
    lifted = scale_of(minimum=1.0, untrained=3.4, tuned=(1.024, 1.0024), starts=(3.4, 3.4))
    assert lifted.unit == pytest.approx(scale_of().unit)
    assert score(1.024, 3.4, lifted) == pytest.approx(0.8)
    assert lifted.floor == pytest.approx(1e-7)
    assert score(0.5, 3.4, lifted) == score(1.0, 3.4, lifted), "below the minimum is at the floor"


def test_a_difference_is_a_ratio_of_losses() -> None:
    scale = scale_of()
    a, b = scores([0.02, 0.01], scale, starts=[2.4, 2.4])
    assert scale.ratio(b - a) == pytest.approx(0.5)
    assert scale.tolerated_ratio(0.05) == pytest.approx(math.exp(0.05 * 5.75646273))
    assert math.isnan(scale.as_linear().ratio(0.1))
    finals = [0.02, 2.4, 2.5, 0.0, 1e-9, math.nan]
    assert are_log_ratios(finals, scale, starts=[2.4] * 6).tolist() == [True, True, False, False, False, False]


def test_seeds_on_which_nothing_can_be_told() -> None:
    scale = scale_of(untrained=6.287, starts=(6.287,), tuned=(7.8e-14,))
    ours, theirs = [0.0, 100.0, math.nan, 1.0, 0.0], [1e-13, 200.0, 90.0, 1.0, 1.0]
    assert are_uninformative(ours, theirs, scale, starts=[6.287] * 5).tolist() == [True, True, True, False, False]


def test_merits_are_unclipped_and_a_diverged_seed_is_worst() -> None:
    found = ordering_values([1e-9, 1e-8, 1e30, math.nan, 1.0], scale_of(), diverged=[False] * 4 + [True])
    assert found[0] > found[1] > found[2] > found[3] == found[4] == -math.inf
    assert ordering_values([0.0, 1e-13], scale_of())[0] == ordering_values([0.0, 1e-13], scale_of())[1]
    no_scale = scale_of(tuned=(2.5, 2.5))
    assert ordering_values([-1.0, 0.0, 1.0], no_scale).tolist() == [0, 0, -1]
    assert ordering_values([-1.0, 1.0], scale_of().as_linear()).tolist() == [1, -1]


def test_without_a_baseline_one_is_the_best_of_the_compared() -> None:
    starts = {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}
    good = {0: 0.02, 1: 0.02, 2: 0.02, 3: math.nan}
    lucky = {0: 1e-9, 1: math.nan, 2: math.nan, 3: math.nan}
    scale = ScoreScale.of_subjects("train/loss", finals=[good, lucky, dict.fromkeys(range(4), 1.0)], starts=starts)
    assert (scale.kind, scale.is_thin) == (ScaleKind.LOG, False)
    assert scale.unit == pytest.approx(math.log(100)), "half of its seeds at most may have diverged"
    worse = ScoreScale.of_subjects("train/loss", finals=[dict.fromkeys(range(4), 3.0)], starts=starts)
    assert not worse.is_usable
    signed = ScoreScale.of_subjects("train/loss", finals=[{0: 1.0, 1: -0.1}], starts=starts)
    assert signed.kind is ScaleKind.LINEAR and signed.is_usable
    assert not ScoreScale.of_subjects("train/loss", finals=[good], starts={}).is_usable


@given(st.lists(st.lists(st.floats(2.0**-20, 8.0, width=32), min_size=1, max_size=4), min_size=1, max_size=5))
def test_among_the_compared_the_unit_is_the_best_mean_of_logarithms(finals: list[list[float]]) -> None:
    starts = {0: 2.0, 1: 4.0, 2: 1.0}
    scale = ScoreScale.of_subjects("train/loss", finals=[dict(enumerate(values)) for values in finals], starts=starts)
    begins = [*starts.values(), np.mean([*starts.values()])]  # who has no start has the mean
    gains = [np.mean([math.log(begins[seed] / value) for seed, value in enumerate(values)]) for values in finals]
    best = max(gains)
    assert (scale.log_unit == pytest.approx(best, abs=1e-12)) if best > 1e-9 else not scale.log_unit > 1e-9


@given(st.lists(st.lists(st.sampled_from([0.1, 0.3, 0.7, 1.1, math.nan, math.inf]), max_size=4), max_size=6))
def test_among_the_compared_units_are_exact_means_of_those_of_whom_half_is_known(finals: list[list[float]]) -> None:
    scale = ScoreScale.of_subjects("x", finals=[dict(enumerate(values)) for values in finals], starts={0: 2.0, 1: 2.0})
    known = [[value for value in values if math.isfinite(value)] for values in finals]
    kept = [own for own, values in zip(known, finals, strict=True) if own and 2 * len(own) >= len(values)]
    if not kept:
        assert math.isnan(scale.linear_unit) and math.isnan(scale.log_unit)
        return
    assert scale.linear_unit == 2 - min(math.fsum(own) / len(own) for own in kept)
    gains = [math.fsum(math.log(2) - math.log(value) for value in own) / len(own) for own in kept]
    assert scale.log_unit == max(gains)


def test_numbers_of_two_rules_are_not_compared() -> None:
    check_score_versions({"a": 2, "b": 2})
    with pytest.raises(LobenchError, match="score_version 1"):
        check_score_versions({"a": None, "b": 2})


def test_default_margins() -> None:
    assert (DEFAULT_MARGINS[ScaleKind.LOG], DEFAULT_MARGINS[ScaleKind.LINEAR]) == (0.05, 0.02)
    assert (scale_of().default_margin, scale_of().as_linear().default_margin) == (0.05, 0.02)


positive = st.floats(1e-3, 1e3)
losses = st.floats(1e-20, 1e20)


@st.composite
def scales(draw: st.DrawFn) -> ScoreScale:
    zero = draw(positive)
    tuned = draw(st.lists(st.floats(1e-9, 0.9), min_size=1, max_size=4))
    starts = [zero * draw(st.floats(0.5, 2)) for _ in tuned]
    return scale_of(untrained=zero, tuned=[zero * share for share in tuned], starts=starts)


@given(scales(), losses, losses, positive)
def test_a_score_never_rises_with_the_loss_and_stays_in_its_range(
    scale: ScoreScale, a: float, b: float, start: float
) -> None:
    if not scale.is_usable:
        return
    low, high = scores(sorted((a, b)), scale, starts=[start, start])
    assert -1 <= high <= low <= 2
    assert score(start, start, scale) == 0


@given(scales(), losses, positive)
def test_a_score_is_continuous(scale: ScoreScale, final: float, start: float) -> None:
    if not scale.is_usable:
        return
    near, far = scores([final, final * (1 + 1e-9)], scale, starts=[start, start])
    assert abs(near - far) <= 1e-9 * max(2, 1 / scale.unit) * 1.01 + 1e-12
    below, above = scores([start * (1 - 1e-12), start * (1 + 1e-12)], scale, starts=[start, start])
    assert abs(below - above) < 1e-11 * max(2, 1 / scale.unit)


@given(st.floats(1e-6, 1e6), losses, positive, st.sampled_from([None, 0.0, -0.5, 0.1]))
def test_units_of_the_loss_do_not_count(k: float, final: float, start: float, minimum: float | None) -> None:
    def found(times: float) -> float:
        scale = scale_of(
            untrained=2.4 * times,
            tuned=[0.224 * times, 0.2024 * times],
            starts=[2.4 * times, 3.0 * times],
            minimum=None if minimum is None else minimum * times,
        )
        return score(final * times, start * times, scale)

    assert found(k) == pytest.approx(found(1), abs=1e-6)
