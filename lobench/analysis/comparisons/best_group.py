"""The best group of a table: the best printed mean and every mean that no test finds worse, shown in bold."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lobench.analysis.comparisons.paired_values import paired_block, paired_values, signed_samples
from lobench.analysis.comparisons.summary import Summary
from lobench.analysis.scores.scales import Scales
from lobench.analysis.stats.comparison import Effect, MeanParts, compare_cases, mean_difference
from lobench.analysis.stats.location import Location, LocationTest
from lobench.analysis.stats.paired_samples import Samples
from lobench.analysis.stats.proportions import Counts
from lobench.analysis.store.case_groups import case_groups
from lobench.analysis.store.subjects import Cell
from lobench.core.metric import Direction
from lobench.core.result import mean_of

__all__ = ["BoldEntries", "bold_cells", "bold_means"]

_ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class BoldEntries:
    """Bold entries of a table.

    Attributes:
      indices: Indices of the bold entries.
      tests: Tests that the other entries were compared with.
    """

    indices: frozenset[int] = frozenset()
    tests: frozenset[LocationTest] = frozenset()


def bold_cells(cells: Sequence[Cell | None], metric: str, scales: Scales, *, only_best: bool = False) -> BoldEntries:
    """Returns the cells to print in bold: the best mean, and all cells that are not significantly worse.

    Means are as in the table. A cell with a diverged or exploded seed, or without a planned seed, cannot be the best.
    Cells are compared as in `lobench compare` on the case, at level .05 for all cells together: the probability of
    leaving out the cell that is truly best is at most .05.

    Args:
      cells: Results of each method on one case. None if a method was not evaluated.
      metric: Name of the metric.
      scales: Scales of the cases.
      only_best: Whether to return only the best, and cells with an equal mean.
    """
    finals = [cell.converged_finals(metric) if cell is not None else {} for cell in cells]
    case = next((cell.case for cell in cells if cell is not None), None)
    direction = scales.direction(case, metric) if case is not None else None
    if direction is None:  # the metric has no declared direction
        return BoldEntries()
    sign = -1.0 if direction is Direction.MAX else 1.0
    evaluated_cells = [cell for cell in cells if cell is not None]
    are_complete = [
        cell is not None and not cell.missing_seeds and not cell.lacking_seeds(evaluated_cells) for cell in cells
    ]
    means = [
        sign * mean_of(list(values.values())) if values and is_complete else math.nan
        for values, is_complete in zip(finals, are_complete, strict=True)
    ]
    if all(map(math.isnan, means)):
        return BoldEntries()
    best_index = int(np.nanargmin(means))
    if only_best:
        return BoldEntries(indices=frozenset(index for index, mean in enumerate(means) if mean == means[best_index]))
    other_indices = [index for index, mean in enumerate(means) if index != best_index and not math.isnan(mean)]
    alpha = _ALPHA / max(1, len(other_indices))
    best_cell = cells[best_index]
    other_cells = {index: cell for index in other_indices if (cell := cells[index]) is not None}
    if best_cell is None:
        return BoldEntries(indices=frozenset({best_index}))
    indices, block = paired_block(best_cell, other_cells, metric, scales)
    is_worse_by_index = dict(zip(indices, block.are_worse(alpha).tolist(), strict=True)) if block is not None else {}
    tests: set[LocationTest] = {"paired"} if is_worse_by_index else set()
    for index in other_cells.keys() - is_worse_by_index.keys():
        values = _values_to_compare(best_cell, other_cells[index], metric, scales)
        effect = compare_cases({"": values}, alpha=alpha).cases[0]
        is_worse_by_index[index] = effect.verdict is Effect.WORSE
        tests |= {effect.paired.method} if effect.paired.num_seeds else set()
    return _make_bold(best_index, is_worse_by_index, tests)


def _make_bold(best_index: int, is_worse_by_index: Mapping[int, bool], tests: Collection[LocationTest]) -> BoldEntries:
    indices = frozenset({best_index, *(index for index, is_worse in is_worse_by_index.items() if not is_worse)})
    return BoldEntries(indices=indices, tests=frozenset(tests))


def _values_to_compare(best_cell: Cell, cell: Cell, metric: str, scales: Scales) -> Samples:
    paired = paired_values(best_cell, cell, metric, scales)
    # Without a scale there are no scores, but final values.
    return paired.samples if paired.scale.is_usable else signed_samples(best_cell, cell, metric, paired.scale.direction)


def bold_means(
    summary: Summary, subject_indices: Sequence[int], metric: str, suite: str = "", *, only_best: bool = False
) -> BoldEntries:
    """Returns the indices in `subject_indices` of the best mean score, and of all that are not significantly worse.

    Subjects that lack a planned seed are excluded, because a crash must not make a subject the best. So are subjects
    whose seeds all diverged or exploded: their mean score is -1 by definition, and with few seeds a test may not
    distinguish it from the best one. If all seeds of a subject diverged or exploded on a case on which the best subject
    kept a seed, the subject is not printed in bold either, because a comparison of the two leaves that case out.

    Args:
      summary: Summary of the store.
      subject_indices: Indices of the subjects.
      metric: Name of the metric, or "primary".
      suite: Suite whose cases the means are taken over. "": all suites.
      only_best: Whether to return only the best, and subjects with an equal mean.
    """
    mean_scores = [summary.mean_score(subject, metric, suite) for subject in subject_indices]
    # A mean over fewer, easier cases is not comparable.
    max_cases = max((mean_score.num_cases for mean_score in mean_scores), default=0)
    stored_subjects = [summary.snapshot.subjects[subject] for subject in subject_indices]
    means = [
        mean_score.interval.mean
        if mean_score.num_cases == max_cases
        and mean_score.has_surviving_seed
        and not subject.lacks_seeds(stored_subjects)
        else math.nan
        for mean_score, subject in zip(mean_scores, stored_subjects, strict=True)
    ]
    if all(map(math.isnan, means)):
        return BoldEntries()
    best_index = int(np.nanargmax(means))
    if only_best:
        return BoldEntries(indices=frozenset(index for index, mean in enumerate(means) if mean == means[best_index]))
    survived_cases = mean_scores[best_index].survived_cases
    subjects_by_index = {
        index: subject_indices[index]
        for index, mean in enumerate(means)
        if index != best_index and not math.isnan(mean) and survived_cases <= mean_scores[index].survived_cases
    }
    verdicts = _mean_verdicts(
        summary, subject_indices[best_index], subjects_by_index, metric, suite, _ALPHA / max(1, len(subjects_by_index))
    )
    tests = {test for _, test_names in verdicts.values() for test in test_names}
    return _make_bold(best_index, {index: verdict is Effect.WORSE for index, (verdict, _) in verdicts.items()}, tests)


def _mean_verdicts(
    summary: Summary, best_subject: int, other_subjects: Mapping[int, int], metric: str, suite: str, alpha: float
) -> dict[int, tuple[Effect, Collection[LocationTest]]]:
    """Returns the verdict of a comparison with the best subject, and its tests, by index in `other_subjects`.

    Subjects without a common case are left out. `alpha` is the level of each verdict.
    """
    subjects = summary.snapshot.subjects
    metric_name = None if metric == "primary" else metric
    mean_parts_by_index = {index: MeanParts() for index in other_subjects}
    tests = {index: set[LocationTest]() for index in other_subjects}
    cases = summary.cases_of(suite) if suite else subjects[best_subject].cells.keys()
    compared_cases = [case for case in subjects[best_subject].cells if case in cases]
    groups = case_groups(
        [subjects[subject_index].cells for subject_index in (best_subject, *other_subjects.values())], compared_cases
    )
    grouped_cases = {case for group in groups if len(group) > 1 for case in group}
    for identity in compared_cases:
        cell_of_best = subjects[best_subject].cells[identity]
        cells = {
            index: cell
            for index, subject_index in other_subjects.items()
            if (cell := subjects[subject_index].cells.get(identity)) is not None
        }
        # Arrays contain means over seeds, which cannot be grouped.
        cells_for_arrays = {} if identity in grouped_cases else cells
        indices, block = paired_block(cell_of_best, cells_for_arrays, metric_name, summary.scales)
        if block is not None:
            none_diverged = Counts(0, block.num_seeds, 0, block.num_seeds)
            for index, estimate in zip(indices, block.estimates(), strict=True):
                mean_parts_by_index[index].locations.extend(
                    [Location(method="paired", estimate=estimate)] if estimate else []
                )
                mean_parts_by_index[index].counts.extend([none_diverged] if block.num_seeds > 1 else [])
                tests[index].add("paired")
        for index in sorted(cells.keys() - indices):
            samples = paired_values(cell_of_best, cells[index], metric_name, summary.scales).samples
            difference = mean_difference(samples, 1 - alpha)
            mean_parts_by_index[index].add(samples, difference)
            tests[index].update([difference.method] if difference.num_seeds else [])
    verdicts: dict[int, tuple[Effect, Collection[LocationTest]]] = {}
    for index, mean_parts in mean_parts_by_index.items():
        if tests[index]:
            verdicts[index] = mean_parts.effect(alpha).verdict, tests[index]
        elif comparison := summary.comparison(best_subject, other_subjects[index], metric, alpha=alpha, suite=suite):
            verdicts[index] = comparison.verdict, ()
    return verdicts
