"""What a table shows in bold: the best mean that it prints, and what no test says is worse than that."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lobench.analysis.comparison import Effect, compare_cases
from lobench.analysis.findings import Findings
from lobench.analysis.paired_values import finals_of, paired_values, values_of
from lobench.analysis.scales import Scales
from lobench.analysis.subjects import Cell
from lobench.core.metric import Direction
from lobench.core.result import mean_of

__all__ = ["bold_cells", "bold_means"]

_ALPHA = 0.05


def bold_cells(cells: Sequence[Cell | None], metric: str, scales: Scales, *, alone: bool = False) -> set[int]:
    """Returns the cells of the best mean, and those that a comparison does not find to be worse.

    The means are those that are printed; one that lost a seed to divergence has none. The comparison is that of
    `lobench compare` on the case, at level .05 for all of them together: what is truly best is left out in at most .05.

    Args:
      cells: None where a method was not evaluated.
      alone: The best, and what equals it, alone.
    """
    finals = [finals_of(cell, metric) if cell is not None else {} for cell in cells]
    case = next((cell.case for cell in cells if cell is not None), None)
    direction = scales.direction(case, metric) if case is not None else None
    if direction is None:  # nobody knows what is better
        return set()
    sign = -1.0 if direction is Direction.MAX else 1.0
    means = [sign * mean_of(list(values.values())) if values else math.nan for values in finals]
    if all(map(math.isnan, means)):
        return set()
    best = int(np.nanargmin(means))
    if alone:
        return {index for index, mean in enumerate(means) if mean == means[best]}
    others = [index for index, mean in enumerate(means) if index != best and not math.isnan(mean)]
    alpha = _ALPHA / max(1, len(others))
    return {best, *(one for one in others if not _is_worse(cells[one], cells[best], metric, scales, alpha))}


def _is_worse(cell: Cell | None, best: Cell | None, metric: str, scales: Scales, alpha: float) -> bool:
    found = paired_values(best, cell, metric, scales)
    samples = found.samples
    if best is not None and cell is not None and not found.scale.is_usable:  # it has values, if no scores
        samples = values_of(best, cell, metric, found.scale.direction)
    return compare_cases({"": samples}, alpha=alpha).verdict is Effect.WORSE


def bold_means(findings: Findings, subjects: Sequence[int], metric: str) -> set[int]:
    """Returns the places in `subjects` of the best mean score, and of those that a comparison does not find worse."""
    means = [findings.mean_score(subject, metric).interval.mean for subject in subjects]
    if all(map(math.isnan, means)):
        return set()
    best = int(np.nanargmax(means))
    others = [index for index, mean in enumerate(means) if index != best and not math.isnan(mean)]
    found, alpha = {best}, _ALPHA / max(1, len(others))
    for index in others:
        comparison = findings.comparison(subjects[best], subjects[index], metric, alpha=alpha)
        if comparison is not None and comparison.verdict is not Effect.WORSE:
            found.add(index)
    return found
