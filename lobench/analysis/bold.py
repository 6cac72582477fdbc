"""What a table shows in bold: the best, and what is not told apart from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lobench.analysis.comparison import Effect, paired_t
from lobench.analysis.findings import Findings
from lobench.analysis.intervals import Interval
from lobench.analysis.student import t_isf, t_sf
from lobench.core.metric import Direction
from lobench.core.trials import FIRST_REPORT_SEED

__all__ = ["Column", "bold_columns", "bold_means"]

_ALPHA = 0.05

# Final values of one column by seed; NaN where it diverged.
Column = dict[int, float]


def bold_columns(columns: Sequence[Column], direction: Direction | None, *, alone: bool = False) -> set[int]:
    """Returns the columns that are best, or not told apart from the best by a paired t test over their common seeds.

    Of two of which one was found by a search, and is shown on fresh seeds, Welch's t test tells.

    Args:
      direction: None: nobody knows what is better, and nothing is bold.
      alone: The best, and what equals it, alone.
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
    for index, column in enumerate(columns):
        seeds = sorted(column.keys() & columns[best].keys())
        if index == best or math.isnan(means[index]):
            continue
        if _is_fresh(column) != _is_fresh(columns[best]):
            p_value = _welch_p(list(column.values()), list(columns[best].values()))
        else:
            p_value = paired_t([column[seed] - columns[best][seed] for seed in seeds]).p_value
        if not p_value <= _ALPHA:  # NaN below two common seeds: nothing tells the two apart
            found.add(index)
    return found


def _is_fresh(column: Column) -> bool:
    """Says whether a column is of seeds that a search is reported on, which nobody without a search has."""
    return min(column) >= FIRST_REPORT_SEED


def _welch_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Returns the two-sided p-value of Welch's t test, of means that share no seed; NaN below two seeds of one.

    Example: (1, 1.1) and (2, 2.1) differ by 1 with a standard error of 0.071, on 2 degrees of freedom: p = 0.005.
    """
    if min(len(ours), len(theirs)) < 2:
        return math.nan
    errors = [float(np.var(side, ddof=1)) / len(side) for side in (ours, theirs)]
    difference = abs(float(np.mean(ours)) - float(np.mean(theirs)))
    return _welch(difference, errors, [len(ours) - 1, len(theirs) - 1])


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
    found = [(side.upper - side.mean) / t_isf(_ALPHA / 2, side.degrees) for side in (one, other)]
    if any(map(math.isnan, found)):
        return math.nan
    return _welch(abs(one.mean - other.mean), [error**2 for error in found], [one.degrees, other.degrees])


def _welch(difference: float, errors: Sequence[float], degrees: Sequence[float]) -> float:
    """Returns the p-value of a difference, from the squared standard errors of both sides."""
    total = math.fsum(errors)
    if not total:
        return 1.0 if difference == 0 else 0.0
    # Shares, and not the errors themselves: their squares would underflow for small losses.
    inverse = math.fsum((error / total) ** 2 / degree for error, degree in zip(errors, degrees, strict=True))
    return 2 * t_sf(difference / math.sqrt(total), 1 / inverse if inverse else math.inf)
