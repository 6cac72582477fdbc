"""The test against rounding: its level where claims are perturbed trainings, and what it finds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lobench.analysis.stats.rounding import NUM_PERTURBED, differences, excess, rounding_test


def _world(rng: np.random.Generator, num_evaluations: int = 5, num_values: int = 40) -> list[np.ndarray]:
    """Differences that grow along a training, by another power in each of them, as chaos makes them."""
    grows = np.geomspace(1e-7, 1e-2, num_values)
    return [
        grows
        * np.exp(rng.standard_normal((NUM_PERTURBED + 1, 1)))
        * rng.standard_normal((NUM_PERTURBED + 1, num_values))
        for _ in range(num_evaluations)
    ]


def test_honest_claims_are_refused_at_the_level() -> None:
    rng, sizes = np.random.default_rng(0), np.ones(40)
    p_values = [rounding_test([excess(one, sizes) for one in _world(rng)]).p_value for _ in range(2000)]
    rate = np.mean(np.asarray(p_values) <= 0.05 + 1e-9)
    assert rate == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 2000))


def test_one_value_of_many_that_was_changed_is_found() -> None:
    rng, sizes, missed = np.random.default_rng(1), np.ones(40), 0
    for _ in range(200):
        world = _world(rng)
        world[3][0, 20] += 3.0
        found = rounding_test([excess(one, sizes) for one in world])
        missed += not found.excess[3] > found.limit
    assert missed == 0


def test_equal_bits_are_never_refused() -> None:
    nothing = np.zeros((NUM_PERTURBED + 1, 40))
    assert rounding_test([excess(nothing, np.ones(40))]).p_value == 1


def test_a_seed_that_diverged_on_one_side_alone_is_far_off() -> None:
    base = {"train/loss": np.asarray([[1.0, 2.0], [1.0, np.nan]])}
    claim = {"train/loss": np.asarray([[1.0, 2.0], [1.0, 0.5]])}
    found, sizes = differences(claim, base, [base] * NUM_PERTURBED)
    assert np.isinf(found[0, 3])
    assert not np.any(np.isfinite(found[1:, 3]))
    test = rounding_test([excess(found, sizes)])
    assert test.excess[0] > test.limit
    same, _ = differences(base, base, [base] * NUM_PERTURBED)
    assert rounding_test([excess(same, sizes)]).p_value == 1
