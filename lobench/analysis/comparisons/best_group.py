"""The best group of a table: the best printed mean and every mean that no test finds worse, shown in bold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.comparisons.paired_values import paired_values, values_of
from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.comparison import Effect, PairComparison, compare_cases
from lobench.analysis.stats.location import Method
from lobench.analysis.store.subjects import Cell
from lobench.core.metric import Direction
from lobench.core.result import mean_of

__all__ = ["Bold", "bold_cells", "bold_means"]

_ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Bold:
    """What is bold, by place, and by which tests the rest is worse or not."""

    places: frozenset[int] = frozenset()
    tests: frozenset[Method] = frozenset()


def bold_cells(cells: Sequence[Cell | None], metric: str, scales: Scales, *, alone: bool = False) -> Bold:
    """Returns the cells of the best mean, and those that a comparison does not find to be worse.

    The means are those that are printed; one that lost a seed to divergence has none. The comparison is that of
    `lobench compare` on the case, at level .05 for all of them together: what is truly best is left out in at most .05.

    Args:
      cells: None where a method was not evaluated.
      alone: The best, and what equals it, alone.
    """
    finals = [cell.finals(metric) if cell is not None else {} for cell in cells]
    case = next((cell.case for cell in cells if cell is not None), None)
    direction = scales.direction(case, metric) if case is not None else None
    if direction is None:  # nobody knows what is better
        return Bold()
    sign = -1.0 if direction is Direction.MAX else 1.0
    means = [sign * mean_of(list(values.values())) if values else math.nan for values in finals]
    if all(map(math.isnan, means)):
        return Bold()
    best = int(np.nanargmin(means))
    if alone:
        return Bold(places=frozenset(index for index, mean in enumerate(means) if mean == means[best]))
    others = [index for index, mean in enumerate(means) if index != best and not math.isnan(mean)]
    alpha = _ALPHA / max(1, len(others))
    return _with_best(best, {index: _compared(cells[index], cells[best], metric, scales, alpha) for index in others})


def _with_best(best: int, others: Mapping[int, PairComparison | None]) -> Bold:
    found = {index: one for index, one in others.items() if one is not None}
    return Bold(
        places=frozenset({best, *(index for index, one in found.items() if one.verdict is not Effect.WORSE)}),
        tests=frozenset(
            effect.paired.method for one in found.values() for effect in one.cases if effect.paired.num_seeds
        ),
    )


def _compared(cell: Cell | None, best: Cell | None, metric: str, scales: Scales, alpha: float) -> PairComparison:
    found = paired_values(best, cell, metric, scales)
    samples = found.samples
    if best is not None and cell is not None and not found.scale.is_usable:  # it has values, if no scores
        samples = values_of(best, cell, metric, found.scale.direction)
    return compare_cases({"": samples}, alpha=alpha)


def bold_means(summary: Summary, subjects: Sequence[int], metric: str, suite: str = "") -> Bold:
    """Returns the places in `subjects` of the best mean score, and of those that a comparison does not find worse.

    Args:
      suite: Of means over this suite's cases; "": over all.
    """
    found_means = [summary.mean_score(subject, metric, suite) for subject in subjects]
    most = max((one.num_cases for one in found_means), default=0)  # one over fewer is no better for the easy ones
    means = [one.interval.mean if one.num_cases == most else math.nan for one in found_means]
    if all(map(math.isnan, means)):
        return Bold()
    best = int(np.nanargmax(means))
    others = [index for index, mean in enumerate(means) if index != best and not math.isnan(mean)]
    alpha = _ALPHA / max(1, len(others))
    compared = {
        one: summary.comparison(subjects[best], subjects[one], metric, alpha=alpha, suite=suite) for one in others
    }
    return _with_best(best, compared)
