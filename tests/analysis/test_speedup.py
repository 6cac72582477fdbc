"""Speed-up and its censoring on curves whose inverses are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lobench.analysis.stats.speedup import BaselineCurve, SpeedupReference, envelope, speedup

STEPS = np.arange(0, 101, 10)
FALLING = 10.0 - STEPS / 20  # 10 .. 5
SLOW = 10.0 - STEPS / 100
LOST = np.where(STEPS > 20, np.nan, FALLING - 3)
CURVES = np.stack([np.stack([SLOW, SLOW]), np.stack([FALLING, FALLING]), np.stack([LOST, SLOW])])


def test_speedup_is_the_baselines_steps_to_the_final_loss() -> None:
    baseline = BaselineCurve(steps=STEPS.astype(np.float64), losses=FALLING, form=SpeedupReference.BEST_SINGLE)
    found = speedup(7.0, 20, baseline)  # the baseline has 7.0 at step 60
    assert (found.value, found.censored, str(found)) == (pytest.approx(3.0), False, "3")
    beyond = speedup(4.9, 20, baseline)
    assert (beyond.value, beyond.censored, str(beyond)) == (5.0, True, ">= 5")
    assert speedup(11.0, 20, baseline).value == 0.0
    assert str(speedup(math.nan, 20, baseline)) == "diverged"


def test_the_envelope_is_smoothed_per_rate_and_lowest_over_rates() -> None:
    found = envelope(CURVES[:2], STEPS.tolist())
    smooth = FALLING[0]
    for value in FALLING[1:]:
        smooth = 0.95 * smooth + 0.05 * value
    assert len(found.steps) == len(found.losses) == 512
    assert found.losses[-1] == pytest.approx(smooth) and found.form is SpeedupReference.ENVELOPE
    assert (np.diff(found.losses) <= 0).all()


def test_a_rate_that_diverges_counts_until_then() -> None:
    early = np.where(STEPS > 20, np.nan, 1.0)
    found = envelope(np.stack([[FALLING], [early]]), STEPS.tolist())
    assert found.losses[-1] == pytest.approx(1.0)


def test_before_any_rate_has_a_finite_loss_the_envelope_is_infinite() -> None:
    late = np.where(STEPS < 20, np.inf, 1.0)
    late[2:] = 1.0
    found = envelope([[late], [np.full(11, np.nan)]], STEPS.tolist())
    assert math.isinf(found.losses[0])
    lost = envelope([[np.full(11, np.nan)]], STEPS.tolist())
    assert str(speedup(0.5, 100, lost)) == ">= 1", "a baseline that never has a loss is never as low"
