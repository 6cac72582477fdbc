"""Both kinds of performance profile, by their known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lobench.analysis.stats.profiles import ratio_profile, ratio_profile_score, score_profile, time_ratios


def test_a_score_profile_is_the_share_of_runs_above() -> None:
    assert score_profile([[0.0, 1.0], [0.5, math.nan]], [-1, 0, 0.5, 1]).tolist() == [0.75, 0.5, 0.25, 0.0]


def test_a_ratio_profile_is_the_share_of_cases_within_tau_of_the_fastest() -> None:
    ratios = time_ratios([[10.0, 30.0, math.inf], [20.0, 10.0, math.nan]])
    assert ratios.tolist() == [[1.0, 3.0, math.inf], [2.0, 1.0, math.inf]]
    assert ratio_profile(ratios, [1, 2, 3]) == pytest.approx(np.array([[1, 1, 2], [1, 2, 2]]) / 3)
    # 1/3 over [1, 4], and another third from the ratio on; the trapezoid over 100 points rounds the step.
    assert ratio_profile_score(ratios).tolist() == pytest.approx([4 / 9, 5 / 9], abs=0.01)
