"""What a table shows in bold: the best, and what is not told apart from it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lobench.analysis.comparison import Effect, paired_t
from lobench.analysis.findings import Findings
from lobench.core.metric import Direction

__all__ = ["Column", "bold_columns", "bold_means"]

_ALPHA = 0.05

# Final values of one column by seed; NaN where it diverged.
Column = dict[int, float]


def bold_columns(columns: Sequence[Column], direction: Direction | None, *, alone: bool = False) -> set[int]:
    """Returns the columns that are best, or not told apart from the best by a paired t test over their common seeds.

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
        result = paired_t([column[seed] - columns[best][seed] for seed in seeds])
        if not result.p_value <= _ALPHA:  # NaN below two common seeds: nothing tells the two apart
            found.add(index)
    return found


def bold_means(findings: Findings, subjects: Sequence[int], metric: str) -> set[int]:
    """Returns the places in `subjects` of the best mean score, and of those that a comparison leaves undecided."""
    means = [findings.mean_score(subject, metric).interval.mean for subject in subjects]
    if all(map(math.isnan, means)):
        return set()
    best = int(np.nanargmax(means))
    others = ((i, findings.comparison(subjects[best], subject, metric)) for i, subject in enumerate(subjects))
    return {best, *(i for i, found in others if found is not None and i != best and found.verdict is Effect.UNDECIDED)}
