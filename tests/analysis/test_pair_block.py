"""Pairs as arrays say what each pair says alone, whoever is in the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import stores
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_1samp

from lobench.analysis.comparisons.best_group import bold_means
from lobench.analysis.comparisons.paired_values import paired_block, paired_values
from lobench.analysis.comparisons.summary import Summary, summary_of
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.comparison import Effect, compare_cases, mean_difference
from lobench.analysis.stats.location import locate
from lobench.analysis.stats.pair_block import PairBlock, rounding_steps
from lobench.analysis.stats.paired_samples import rounding_step
from lobench.analysis.store.subjects import LOBENCH_SEEDS, Cell
from lobench.core.metric import Direction
from lobench.core.result import Outcome
from lobench.core.trials import FIRST_REPORT_SEED

# Losses that repeat on a grid, that are a float32's rounding apart, and that are far apart.
NEAR = st.sampled_from([0.3, 0.3 * (1 + 2.0**-23), 0.3 * (1 + 2.0**-20), 0.3001])
LOSSES = st.one_of(st.sampled_from([0.1, 0.2, 0.3, 0.35, 1.0]), NEAR, st.floats(2.0**-20, 20.0, width=32))


def columns(num_pairs: int = 4) -> st.SearchStrategy[list[list[float]]]:
    sizes = st.integers(1, 6)
    return sizes.flatmap(lambda n: st.lists(st.lists(LOSSES, min_size=n, max_size=n), min_size=2, max_size=num_pairs))


def cell(values: Sequence[float], *, metric: str = "train/loss", start: float = 10.0, first_seed: int = 0) -> Cell:
    finals = {first_seed + seed: value for seed, value in enumerate(values)}
    return Cell(
        case=stores.case_info("case", primary_metric=metric),
        final_values={metric: finals},
        untrained_values={metric: dict.fromkeys(finals, start)},
        directions={"train/score": Direction.MAX},
    )


def of(cells: Sequence[Cell]) -> Scales:
    return Scales(all_cells={"s/case": list(cells)}, cases={"s/case": cells[0].case})


@given(rows=columns())
@example(rows=[[0.3, 0.3, 0.3], [0.3, 0.3, 0.4], [0.3, 0.3, 0.3]])
@example(rows=[[1.0, 2.0], [1.5, 2.5]])  # differences repeat, the values do not
def test_rounding_steps_are_those_of_each_pair(rows: list[list[float]]) -> None:
    first, *others = rows
    found = rounding_steps(np.asarray(first), np.asarray(others))
    assert found.tolist() == [rounding_step(first, other, is_paired=True) for other in others]


@settings(deadline=None)
@given(rows=columns(), metric=st.sampled_from(["train/loss", "train/score"]), alpha=st.sampled_from([0.05, 0.05 / 200]))
@example(rows=[[0.3, 0.31, 0.29], [0.9, 0.92, 0.88]], metric="train/loss", alpha=0.05)
@example(rows=[[0.3, 0.3], [0.4, 0.4]], metric="train/loss", alpha=0.05)  # two seeds without spread
def test_a_block_says_of_each_pair_what_its_comparison_says(rows: list[list[float]], metric: str, alpha: float) -> None:
    cells = [cell(row, metric=metric) for row in rows]
    scales, others = of(cells), dict(enumerate(cells[1:]))
    places, block = paired_block(cells[0], others, None, scales)
    if block is None:
        assert not scales.scale(cells[0].case, metric).is_usable
        return
    assert places == tuple(others) and block.num_seeds == len(rows[0])
    worse = block.are_worse(alpha)
    for place, mean, variance, can_tell in zip(places, block.mean, block.variance, block.can_tell, strict=True):
        samples = paired_values(cells[0], others[place], None, scales).samples
        alone, one = locate(samples).estimate, mean_difference(samples, 1 - alpha)
        assert mean == pytest.approx(alone.mean, rel=1e-9, abs=1e-12)
        assert variance == pytest.approx(alone.variance, rel=1e-6, nan_ok=True)
        if abs(mean) > 1e-12:  # a mean of 0 but for rounding can be told, whatever its spread
            assert can_tell == (not math.isnan(one.p_converged))
        if math.isnan(one.p_value) or abs(one.p_value - alpha) > 1e-9:
            verdict = compare_cases({"": samples}, alpha=alpha).verdict
            assert worse[place] == (verdict is Effect.WORSE)


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_level_is_that_of_students_two_sided_test(alpha: float) -> None:
    draw = np.random.default_rng(0)
    differences = draw.normal(draw.uniform(-2, 1, (400, 1)), 1.0, (400, 5))
    block = PairBlock.of(np.zeros(5), differences, step=np.zeros(400), precision=np.zeros(400))
    expected = ttest_1samp(differences, 0.0, axis=1)
    assert (block.are_worse(alpha) == ((expected.pvalue <= alpha) & (differences.mean(1) < 0))).all()
    assert 0 < block.are_worse(alpha).sum() < 300


def test_who_is_no_pair_of_the_same_seeds_is_left_to_its_own_comparison() -> None:
    first = cell([0.3, 0.31, 0.29])
    lost = cell([0.5, 0.6, math.nan])
    others = {
        1: cell([0.5, 0.6, 0.7]),
        2: cell([0.5, 0.6]),
        3: cell([0.5, 0.6, 0.7], first_seed=FIRST_REPORT_SEED),
        4: lost,
        5: Cell(
            case=first.case,
            final_values=first.final_values,
            untrained_values=first.untrained_values,
            diverged_at={2: 5},
        ),
        6: Cell(case=first.case, final_values=first.final_values, untrained_values=first.untrained_values, draws=""),
        7: Cell(case=first.case, final_values={}, untrained_values={}),
        8: cell([0.3, 0.31, 0.29]),
    }
    scales = of([first, *others.values()])
    assert paired_block(first, others, None, scales)[0] == (1, 8)
    assert paired_block(lost, others, None, scales) == ((), None)
    assert first.draws == LOBENCH_SEEDS


def test_bold_means_are_those_that_no_comparison_finds_worse(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    for method in range(9):
        cases: dict[str, dict[str, list[float]] | Outcome] = {}
        for number in range(4):
            ends = 0.3 * np.exp(0.05 * method + 0.1 * draw.normal(size=3))
            ends[2] = math.nan if draw.random() < 0.15 else ends[2]
            cases[f"c{number}"] = {"train/loss": ends.tolist()}
        if method == 5:
            cases["c3"] = Outcome.TIMEOUT
        stores.add(tmp_path / "store", method, cases, optimizer=f"adam(); adam.learning_rate = {method + 1}")
    whole = summary_of(tmp_path / "store")
    for places in (range(9), (0, 3, 5, 8), (1,)):
        summary = Summary(whole.snapshot, whole.scales, places)
        means = {place: summary.mean_score(place, "primary") for place in places}
        most = max(one.num_cases for one in means.values())
        subjects = whole.snapshot.subjects
        known = [place for place, one in means.items() if one.num_cases == most and not subjects[place].num_missing]
        if not known:
            assert not bold_means(summary, list(places), "primary").indices
            continue
        best = max(known, key=lambda place: means[place].interval.mean)
        alpha = 0.05 / max(1, len(known) - 1)
        expected = {best}
        for place in known:
            found = summary.comparison(best, place, "primary", alpha=alpha) if place != best else None
            expected |= {place} if found and found.verdict is not Effect.WORSE else set()
        assert {places[index] for index in bold_means(summary, list(places), "primary").indices} == expected
        assert len(expected) < len(known) or len(known) < 3
