"""Mean ranks over cases with intervals: an order of several methods that does not depend on any case's scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lobench.analysis.stats.intervals import Interval

__all__ = ["mean_ranks", "ranks_of"]

_NUM_RESAMPLES = 2000
_MAX_SIDES = 256  # resampled together; 2,000 sides would take 100 MB
_PERCENTS = (50 * (1 - 0.95), 100 - 50 * (1 - 0.95))
_MAX_CODED_SEEDS = 6  # up to this number, many draws are equal

Scores = Mapping[str, Mapping[int, float]]


def mean_ranks(subject_scores: Sequence[Scores], groups: Sequence[Sequence[str]] = ()) -> tuple[list[Interval], int]:
    """Returns the mean rank of each side over the cases that all sides have, and the number of these cases.

    In a case the side with the highest seed mean has rank 1, and equal means share the mean of their ranks. The
    interval is a percentile bootstrap over cases and, within a case, over seeds. A seed that all sides have is drawn
    for all of them together, because its batches and initial parameters are common. Within a group of cases that share
    the randomness of their seeds, a seed is drawn for all cases together. Example: ranks 1, 1 and 2 on three cases have
    the mean 1.33.

    Args:
      subject_scores: Scores of each side, by case identity and seed. Higher is better. A case with a NaN does not
        count.
      groups: Identities of the cases in each group. A case in no group is independent.
    """
    cases = [case for case in subject_scores[0] if all(_is_known(scores.get(case)) for scores in subject_scores)]
    if not cases:
        return [Interval() for _ in subject_scores], 0
    rng = np.random.default_rng(0)  # equal scores give equal intervals
    means = np.asarray([_row_means([list(scores[case].values()) for scores in subject_scores]) for case in cases])
    group_by_case = {case: group for group, members in enumerate(groups) for case in members if len(members) > 1}
    draws_by_group: dict[int, tuple[tuple[int, ...], NDArray[np.intp]]] = {}
    resampled_ranks = []
    for case in cases:
        values = [scores[case] for scores in subject_scores]
        group = group_by_case.get(case)
        if group is None or not all(scores.keys() == values[0].keys() for scores in values):
            resampled_ranks.append(_resampled_ranks(values, rng))
            continue
        seeds = tuple(sorted(values[0]))
        if draws_by_group.get(group, ((), None))[0] != seeds:
            draws_by_group[group] = seeds, rng.integers(0, len(seeds), (_NUM_RESAMPLES, len(seeds)))
        resampled_ranks.append(_resampled_ranks(values, rng, draws_by_group[group][1].copy()))
    drawn_cases = rng.integers(0, len(cases), (_NUM_RESAMPLES, len(cases)))
    # Sums of halves are exact in any order, and below 2^23 also in float32, which takes half the memory.
    dtype = np.float32 if len(cases) * len(subject_scores) < 1 << 23 else np.float64
    draw_counts = []  # how often a resample has each draw of a case
    ranks_by_draw = []
    # (count of the case in each resample, ranks), where each resample has a draw of its own
    ranks_by_resample = []
    for index, (ranks, rows) in enumerate(resampled_ranks):
        case_counts = np.count_nonzero(drawn_cases == index, axis=1).astype(dtype)
        if len(ranks) == _NUM_RESAMPLES:
            ranks_by_resample.append((case_counts[:, None], ranks[rows].astype(dtype)))
            continue
        counts_of_case = np.zeros((_NUM_RESAMPLES, len(ranks)), dtype)
        counts_of_case[np.arange(_NUM_RESAMPLES), rows] = case_counts
        draw_counts.append(counts_of_case)
        ranks_by_draw.append(ranks.astype(dtype))
    all_counts = np.concatenate(draw_counts, axis=1) if draw_counts else np.zeros((_NUM_RESAMPLES, 0), dtype)
    all_ranks = np.concatenate(ranks_by_draw) if ranks_by_draw else np.zeros((0, len(subject_scores)), dtype)
    bounds = list[tuple[float, float]]()
    for start in range(0, len(subject_scores), _MAX_SIDES):
        sides = slice(start, start + _MAX_SIDES)
        rank_sums = all_counts @ all_ranks[:, sides]
        for counts_of_resample, ranks_of_resample in ranks_by_resample:
            rank_sums += counts_of_resample * ranks_of_resample[:, sides]
        lower, upper = np.percentile(rank_sums.astype(np.float64) / len(cases), _PERCENTS, axis=0)
        bounds += zip(lower.tolist(), upper.tolist(), strict=True)
    means_and_bounds = zip(ranks_of(means).mean(0).tolist(), bounds, strict=True)
    return [
        Interval(mean=mean, lower=low, upper=high, method="bootstrap") for mean, (low, high) in means_and_bounds
    ], len(cases)


def ranks_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ranks along the last axis, 1 for the highest; equal values share the mean of their ranks.

    `scipy.stats` has this function, but takes longer to import than a run's table takes to compute.
    """
    order = np.argsort(-values, axis=-1)
    sorted_values = np.take_along_axis(values, order, axis=-1)
    positions = np.arange(values.shape[-1])
    differs = sorted_values[..., 1:] != sorted_values[..., :-1]
    edge = np.ones((*values.shape[:-1], 1), bool)
    first_of_ties = np.maximum.accumulate(np.where(np.concatenate([edge, differs], axis=-1), positions, 0), axis=-1)
    tie_ends = np.where(np.concatenate([differs, edge], axis=-1), positions, values.shape[-1])
    last_of_ties = np.minimum.accumulate(tie_ends[..., ::-1], axis=-1)[..., ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first_of_ties + last_of_ties) / 2 + 1, axis=-1)
    return ranks


def _row_means(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    if len({len(row) for row in rows}) == 1:
        return np.asarray(np.asarray(rows, np.float64).mean(axis=1))
    return np.asarray([np.mean(row) for row in rows])


def _is_known(scores: Mapping[int, float] | None) -> bool:
    return bool(scores) and all(map(math.isfinite, (scores or {}).values()))


def _resampled_ranks(
    scores: Sequence[Mapping[int, float]], rng: np.random.Generator, draws: NDArray[np.intp] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Returns the ranks by the means of one case's resampled seeds, computed once for each distinct draw.

    Args:
      scores: Scores of each side, by seed.
      rng: Random generator.
      draws: Draws of the common seeds, int[num_resamples, num_seeds]. None: draws them here.

    Returns:
      ranks: float64[num_draws, num_sides].
      rows: int[num_resamples], the draw of each resample. Four common seeds have 35 distinct draws, ignoring their
        order.
    """
    columns = [np.asarray([case_scores[seed] for seed in sorted(case_scores)], np.float64) for case_scores in scores]
    if all(case_scores.keys() == scores[0].keys() for case_scores in scores):
        num_seeds = len(columns[0])
        if draws is None:
            draws = rng.integers(0, num_seeds, (_NUM_RESAMPLES, num_seeds))
        rows = np.arange(_NUM_RESAMPLES)
        if num_seeds <= _MAX_CODED_SEEDS:
            draws.sort(axis=1)
            draw_codes = draws @ num_seeds ** np.arange(num_seeds)
            _, first_indices, rows = np.unique(draw_codes, return_index=True, return_inverse=True)
            draws = draws[first_indices]
        means = np.take(np.stack(columns), draws, axis=1).mean(-1)
        return ranks_of(np.ascontiguousarray(means.T)), rows
    draws_by_subject = [rng.integers(0, len(values), (_NUM_RESAMPLES, len(values))) for values in columns]
    means = [values[draws].mean(1) for values, draws in zip(columns, draws_by_subject, strict=True)]
    return ranks_of(np.stack(means, axis=1)), np.arange(_NUM_RESAMPLES)
