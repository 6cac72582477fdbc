"""What a table shows in bold: the best, and what is not told apart from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lobench.analysis.comparison import Effect, mean_difference
from lobench.analysis.findings import Findings
from lobench.analysis.intervals import Interval
from lobench.analysis.samples import Apart, Differences, Estimate, pooled
from lobench.analysis.student import t_sf
from lobench.analysis.subjects import LOBENCH_SEEDS, are_common
from lobench.core.metric import Direction
from lobench.core.trials import FIRST_REPORT_SEED

__all__ = ["Column", "bold_columns", "bold_means"]

_ALPHA = 0.05

# Final values of one column by seed; NaN where it diverged.
Column = dict[int, float]


def bold_columns(
    columns: Sequence[Column],
    direction: Direction | None,
    *,
    alone: bool = False,
    draws: Sequence[str] = (),
) -> set[int]:
    """Returns the columns that are best, or not told apart from the best by a paired t test over their common seeds.

    Of two of which one was found by a search, and is shown on fresh seeds, Welch's t test tells; so it does where the
    seeds of one are not the other's draws.

    Args:
      direction: None: nobody knows what is better, and nothing is bold.
      alone: The best, and what equals it, alone.
      draws: `Cell.draws` of each column; (): all are lobench's own.
    """
    if direction is None:
        return set()
    sign = -1.0 if direction is Direction.MAX else 1.0
    means = [sign * float(np.mean(list(column.values()))) if column else math.nan for column in columns]
    if all(math.isnan(mean) for mean in means):
        return set()
    best = int(np.nanargmin(means))
    if alone:
        return {index for index, mean in enumerate(means) if mean == means[best]}
    found = {best}
    draws = draws or [LOBENCH_SEEDS] * len(columns)
    for index, column in enumerate(columns):
        if index == best or math.isnan(means[index]):
            continue
        sides = columns[best], column
        found_on: Differences = [column[seed] - columns[best][seed] for seed in sorted(column.keys() & sides[0].keys())]
        if _is_fresh(column) != _is_fresh(columns[best]) or not are_common(draws[index], draws[best]):
            found_on = Apart(a=tuple(sides[0].values()), b=tuple(sides[1].values()))
        if not mean_difference(found_on).p_value <= _ALPHA:  # NaN below two seeds: nothing tells the two apart
            found.add(index)
    return found


def _is_fresh(column: Column) -> bool:
    """Says whether a column is of seeds that a search is reported on, which nobody without a search has."""
    return min(column) >= FIRST_REPORT_SEED


def bold_means(findings: Findings, subjects: Sequence[int], metric: str) -> set[int]:
    """Returns the places in `subjects` of the best mean score, and of those that a comparison leaves undecided."""
    means = [findings.mean_score(subject, metric).interval.mean for subject in subjects]
    if all(map(math.isnan, means)):
        return set()
    best = int(np.nanargmax(means))
    found = {best}
    for index, subject in enumerate(subjects):
        if index == best or math.isnan(means[index]):
            continue
        if _is_searched(findings, subject) != _is_searched(findings, subjects[best]):  # they share no seed
            sides = [findings.mean_score(one, metric).interval for one in (subject, subjects[best])]
            is_open = not _independent_p(*sides) <= _ALPHA
        else:
            comparison = findings.comparison(subjects[best], subject, metric)
            is_open = comparison is not None and comparison.verdict is Effect.UNDECIDED
        found |= {index} if is_open else set()
    return found


def _is_searched(findings: Findings, subject: int) -> bool:
    search = findings.reading.search(subject)
    return search is not None and search.is_fresh


def _independent_p(one: Interval, other: Interval) -> float:
    """Returns the two-sided p-value of two means that share no seed, by Welch's t test; NaN where one has no spread."""
    sides = (one, other)
    if any(math.isnan(side.upper) for side in sides):
        return math.nan
    variance, degrees = pooled(
        [Estimate(mean=side.mean, variance=side.error() ** 2, degrees=side.degrees) for side in sides]
    )
    if not variance:
        return 1.0 if one.mean == other.mean else 0.0
    return 2 * t_sf(abs(one.mean - other.mean) / math.sqrt(variance), degrees)
