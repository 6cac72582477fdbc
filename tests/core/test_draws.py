"""Chance as a pure function."""

from __future__ import annotations

import statistics

import pytest
from shown import texts_of

from lobench.core.search.seeded_draws import Draws, fold

SHOWN = texts_of("core")


def test_known_answers_hold_on_every_machine() -> None:
    assert fold(0) == 0x5FECEB66FFC86F38 >> 1  # the first bytes of the sha256 of "0"
    assert fold(0, "a", 1) != fold(0, "a", "1") != fold(0, 1, "a")


def test_moments() -> None:
    draws = Draws(3, "moments")
    uniform = [draws.uniform() for _ in range(20_000)]
    normal = [draws.normal() for _ in range(20_000)]
    assert abs(statistics.fmean(uniform) - 0.5) < 0.01 and min(uniform) >= 0.0 and max(uniform) < 1.0
    assert abs(statistics.fmean(normal)) < 0.03 and abs(statistics.stdev(normal) - 1.0) < 0.03
    assert {draws.below(3) for _ in range(100)} == {0, 1, 2}
    assert min(draws.uniform(2.0, 3.0) for _ in range(100)) >= 2.0


def test_the_same_seed_gives_the_same_draws() -> None:
    assert [Draws(1, "a").uniform() for _ in range(2)] == [Draws(1, "a").uniform()] * 2
    assert Draws(1, "a").uniform() != Draws(1, "b").uniform()


def test_draws_from_something_else_than_a_seed_are_refused() -> None:
    with pytest.raises(TypeError, match=SHOWN["cannot-be-interpreted-as-an"]):
        Draws(Draws(1))  # type: ignore[arg-type]
