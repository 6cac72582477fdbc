"""Directions, time to target, and what is worst."""

from __future__ import annotations

import math

import pytest

from lobench.analysis.scores import time_to_target, worst_last


def test_time_to_target_is_the_first_place_or_censored() -> None:
    curves = [[3.0, 1.0, 2.0, 0.5], [3.0, math.nan, 2.0, 1.5], [0.5, 3.0, 3.0, 3.0]]
    assert time_to_target(curves, [0, 10, 20, 30], 1.0).tolist() == [10.0, math.inf, 0.0]
    assert time_to_target([[0.1, 0.8]], [0, 1.5], 0.8, higher=True).tolist() == [1.5]
    with pytest.raises(ValueError, match="4 evaluations, steps 2"):
        time_to_target(curves, [0, 1], 1.0)


def test_nan_ranks_last() -> None:
    assert worst_last([1.0, math.nan]).tolist() == [1.0, math.inf]
    assert worst_last([1.0, math.nan], higher=True).tolist() == [1.0, -math.inf]
