"""Both forms of speed-up, censoring and the dual, on curves whose inverses are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lobench.analysis.speedup import Form, best_single, dual_speedup, envelope, speedup

STEPS = np.arange(0, 101, 10)
FALLING = 10.0 - STEPS / 20  # 10 .. 5
SLOW = 10.0 - STEPS / 100
LOST = np.where(STEPS > 20, np.nan, FALLING - 3)
CURVES = np.stack([np.stack([SLOW, SLOW]), np.stack([FALLING, FALLING]), np.stack([LOST, SLOW])])


def test_the_best_single_rate_counts_nan_as_worst() -> None:
    found = best_single(CURVES, STEPS.tolist())
    assert found.index == 1 and found.losses.tolist() == FALLING.tolist() and found.form is Form.BEST_SINGLE
    assert best_single(CURVES[[0, 2]], STEPS.tolist(), at=20).index == 1  # before it diverged it was lower
    with pytest.raises(ValueError, match="every learning rate"):
        best_single(np.full((2, 1, 3), np.nan), [0, 1, 2])


def test_speedup_is_the_baselines_steps_to_the_final_loss() -> None:
    baseline = best_single(CURVES, STEPS.tolist())
    found = speedup(7.0, 20, baseline)  # the baseline has 7.0 at step 60
    assert (found.value, found.censored, str(found)) == (pytest.approx(3.0), False, "3")
    beyond = speedup(4.9, 20, baseline)
    assert (beyond.value, beyond.censored, str(beyond)) == (5.0, True, ">= 5")
    assert speedup(11.0, 20, baseline).value == 0.0
    assert str(speedup(math.nan, 20, baseline)) == "diverged"


def test_a_rising_baseline_is_a_running_minimum() -> None:
    curve = np.array([[[4.0, 2.0, 3.0, 1.0]]])
    assert best_single(curve, [0, 1, 2, 3]).losses.tolist() == [4.0, 2.0, 2.0, 1.0]
    assert speedup(2.0, 1, best_single(curve, [0, 1, 2, 3])).value == 1.0


def test_the_envelope_is_smoothed_per_rate_and_lowest_over_rates() -> None:
    found = envelope(CURVES[:2], STEPS.tolist())
    smooth = FALLING[0]
    for value in FALLING[1:]:
        smooth = 0.95 * smooth + 0.05 * value
    assert len(found.steps) == len(found.losses) == 512
    assert found.losses[-1] == pytest.approx(smooth) and found.form is Form.ENVELOPE
    assert (np.diff(found.losses) <= 0).all()


def test_a_rate_that_diverges_counts_until_then() -> None:
    early = np.where(STEPS > 20, np.nan, 1.0)
    found = envelope(np.stack([[FALLING], [early]]), STEPS.tolist())
    assert found.losses[-1] == pytest.approx(1.0)


def test_the_dual_is_the_optimizers_steps_to_the_baselines_loss() -> None:
    found = dual_speedup([3.0, 2.0, 1.0], [0, 10, 20], 1.5, 60)
    assert (found.value, found.censored) == (pytest.approx(4.0), False)
    never = dual_speedup([3.0, 2.0, math.nan], [0, 10, 20], 1.5, 60)
    assert never.censored and str(never) == "never"
