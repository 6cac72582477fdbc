"""Mean ranks: who is first, ties, cases that not all have, intervals that hold what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import rankdata

from lobench.analysis.stats.mean_ranks import mean_ranks


def of(*cases: float, spread: float = 0.0) -> dict[str, dict[int, float]]:
    return {f"c{i}": {0: mean - spread, 1: mean + spread} for i, mean in enumerate(cases)}


def test_ranks_are_means_over_cases_and_ties_share_theirs() -> None:
    found, num_cases = mean_ranks([of(0.9, 0.9, 0.2), of(0.5, 0.5, 0.5), of(0.1, 0.5, 0.9)])
    assert num_cases == 3
    assert [one.mean for one in found] == pytest.approx([(1 + 1 + 3) / 3, (2 + 2.5 + 2) / 3, (3 + 2.5 + 1) / 3])


def test_who_is_first_everywhere_and_by_far_has_no_doubt() -> None:
    found, _ = mean_ranks([of(*[0.1] * 5, spread=0.01), of(*[0.9] * 5, spread=0.01), of(*[0.5] * 5, spread=0.01)])
    assert [(one.mean, one.lower, one.upper) for one in found] == [(3, 3, 3), (1, 1, 1), (2, 2, 2)]


def test_cases_that_not_all_have_or_that_have_a_nan_do_not_count() -> None:
    lost = of(0.9, math.nan, 0.1)
    assert mean_ranks([lost, of(0.5, 0.5, 0.5), of(0.1, 0.9)])[1] == 1
    found, num_cases = mean_ranks([{}, of(0.5)])
    assert num_cases == 0 and all(math.isnan(one.mean) for one in found)


def test_the_interval_holds_the_true_mean_rank_about_as_often_as_it_says() -> None:
    # Three equal methods: each one's true mean rank is 2.
    draw = np.random.default_rng(0)
    held = []
    for _ in range(60):
        sides = [{f"c{i}": dict(enumerate(draw.normal(size=4))) for i in range(16)} for _ in range(3)]
        held += [one.lower <= 2 <= one.upper for one in mean_ranks(sides)[0]]
    assert 0.88 <= np.mean(held) <= 1.0


@pytest.mark.parametrize("num_seeds", [1, 4, 5, 6, 9])
def test_draws_that_are_the_same_are_ranked_once_and_count_as_often_as_they_fall(num_seeds: int) -> None:
    draw = np.random.default_rng(1)
    cases = [f"c{number}" for number in range(3)]
    values = draw.integers(0, 4, (6, len(cases), num_seeds)) / 4  # with ties
    sides = [{case: dict(enumerate(row.tolist())) for case, row in zip(cases, side, strict=True)} for side in values]
    found, _ = mean_ranks(sides)
    draw, ranks = np.random.default_rng(0), []
    for place in range(len(cases)):
        chosen = draw.integers(0, num_seeds, (2000, num_seeds))
        ranks.append(rankdata(-values[:, place][:, chosen].mean(-1), axis=0))
    drawn = draw.integers(0, len(cases), (2000, len(cases)))
    means = np.stack(ranks)[drawn, :, np.arange(2000)[:, None]].mean(1)
    assert [(one.lower, one.upper) for one in found] == list(
        zip(*np.percentile(means, [2.5, 97.5], axis=0), strict=True)
    )
