"""Bands over seeds: the same intervals as everywhere, and quantiles that know what diverging means."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lobench.analysis.stats.bands import BAND, bands
from lobench.analysis.stats.intervals import metric_mean
from lobench.core.metric import Direction

RNG = np.random.default_rng(0)


def band(
    rows: list[list[float]], metric: str = "train/loss", direction: Direction = Direction.MIN
) -> dict[str, list[float]]:
    found = bands(np.asarray(rows, np.float64), metric, direction)
    return dict(zip(BAND, found.tolist(), strict=True))


def test_the_interval_is_that_of_the_tables() -> None:
    rows = RNG.lognormal(size=(5, 4, 3))
    found = bands(rows, "train/loss", Direction.MIN)
    for cell, values in zip(rows, found, strict=True):
        for point in range(3):
            expected = metric_mean("train/loss", cell[:, point].tolist())
            assert values[:3, point] == pytest.approx([expected.mean, expected.lower, expected.upper])


@pytest.mark.parametrize("seeds", [[0.9, 0.95, 0.99, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0]])
@pytest.mark.parametrize("name", ["test/accuracy", "test/success"])
def test_shares_stay_within_0_and_1(seeds: list[float], name: str) -> None:
    found, expected = band([[value] for value in seeds], name, Direction.MAX), metric_mean(name, seeds)
    assert [found[name][0] for name in ("mean", "lower", "upper")] == pytest.approx(
        [expected.mean, expected.lower, expected.upper], nan_ok=True
    )


def test_a_seed_that_diverged_is_worse_than_any_other() -> None:
    rows = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, math.nan], [5.0, math.nan]]
    found = band(rows)
    assert math.isnan(found["mean"][1]) and math.isnan(found["lower"][1])
    assert found["median"] == [3.0, 3.0] and found["tenth"] == pytest.approx([1.4, 1.4])
    assert found["ninetieth"][1] == math.inf
    upwards = band(rows, "test/return", Direction.MAX)
    assert upwards["median"] == [3.0, 1.0] and upwards["tenth"][1] == -math.inf


def test_one_seed_has_no_interval_and_is_its_own_median() -> None:
    found = band([[2.0, 1.0]])
    assert found["mean"] == found["median"] == [2.0, 1.0] and all(map(math.isnan, found["lower"]))
