"""Levels of a sequence of tests."""

from __future__ import annotations

import pytest
from scipy.special import zeta

from lobench.analysis.stats.alpha_spending import e_lond_level


def test_levels_without_discoveries_sum_to_the_rate() -> None:
    count = 100_000
    rest = zeta(1.3, count + 1) / zeta(1.3)
    total = sum(e_lond_level(0.1, position, 0) for position in range(1, count + 1))
    assert total + 0.1 * rest == pytest.approx(0.1, rel=1e-9)


def test_level_of_a_test_grows_with_the_discoveries_before_it() -> None:
    assert e_lond_level(0.1, 1, 0) == pytest.approx(0.1 / 3.931949)
    assert e_lond_level(0.1, 8, 3) == pytest.approx(4 * e_lond_level(0.1, 8, 0))
    assert e_lond_level(0.2, 8, 0) == pytest.approx(2 * e_lond_level(0.1, 8, 0))
