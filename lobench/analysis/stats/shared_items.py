"""Means over cases that share some or all items of a data set.

A hard item is hard in each case that has it, so such cases do not vary independently. The variance of their mean is a
sum over items: everything that an item adds to the mean, over all cases that have it, is one term.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lobench.analysis.stats.location import Location
from lobench.analysis.stats.paired_samples import DIVERGED, Estimate, Samples

__all__ = ["clustered_mean", "item_mean"]


def clustered_mean(
    cases: Sequence[Mapping[int, float]], weights: Sequence[float], units: Sequence[float] = ()
) -> Estimate:
    """Returns the weighted sum of the cases' means over items, with its variance.

    If all cases have the same items, this is the mean and the variance of the items' weighted sums. If no two cases
    have a common item, the variance is the sum of the cases' variances. The degrees of freedom are Satterthwaite's over
    sets of items that belong to the same cases.

    >>> clustered_mean([{1: 0.0, 2: 1.0}, {1: 2.0, 2: 5.0}], [0.5, 0.5])
    Estimate(mean=2.0, variance=1.0, degrees=1.0)

    Args:
      cases: Finite value of each item, by case.
      weights: Weights of the cases.
      units: For each case whose values are differences of binary outcomes, the value of a success less that of a
        failure; 0 for other cases. Half an item is added to each of the four cells of such a case's table. (): no case
        is binary.

    Returns:
      The estimate. Its variance is NaN if a case has fewer than two items.

    Source: Liang and Zeger 1986, for clusters; Agresti and Min 2005, for the added items.
    """
    means = [math.fsum(case.values()) / len(case) if case else math.nan for case in cases]
    mean = math.fsum(case_mean * weight for case_mean, weight in zip(means, weights, strict=True))
    if any(len(case) < 2 for case in cases):
        return Estimate(mean=mean, variance=math.nan, degrees=math.nan)
    items_of_cases = [np.fromiter(case, np.int64, len(case)) for case in cases]
    items = np.unique(np.concatenate(items_of_cases))
    rows_of_items = [np.searchsorted(items, row) for row in items_of_cases]
    terms = np.zeros(len(items))
    leverage = np.zeros(len(items))
    # Terms of the added items: a success of B alone, a success of A alone, and items without a difference.
    added_terms = np.zeros(3)
    has_item = np.zeros((len(items), len(cases)), bool)
    for case, (values_of_case, item_rows) in enumerate(zip(cases, rows_of_items, strict=True)):
        unit = units[case] if units else 0.0
        size = len(values_of_case)
        weight = weights[case]
        centre = means[case] * size / (size + 2) if unit else means[case]
        spread = math.sqrt(size * (size + 2 if unit else size - 1)) / weight
        terms[item_rows] += (np.fromiter(values_of_case.values(), np.float64, size) - centre) / spread
        added_terms += (np.asarray([unit, -unit, 0.0]) - centre) / spread if unit else 0.0
        leverage[item_rows] = np.maximum(leverage[item_rows], 1 / size)
        has_item[item_rows, case] = True
    _, pattern_index = np.unique(has_item, axis=0, return_inverse=True)
    pattern_index = pattern_index.reshape(-1)  # of one dimension in every version of numpy
    squares_by_pattern = np.bincount(pattern_index, terms**2)
    degrees = np.bincount(pattern_index, 1 - leverage)
    total_square = float(squares_by_pattern.sum())
    variance = total_square + float(added_terms**2 @ [0.5, 0.5, 1.0])
    share = squares_by_pattern / total_square if total_square > 0 else degrees / degrees.sum()
    return Estimate(mean=mean, variance=variance, degrees=1 / float((share**2 / degrees).sum()))


def item_mean(cases: Sequence[Samples]) -> Location:
    """Returns the mean over cases of b - a, for pairs of items. Several cases may have some or all items in common.

    An item that diverged on any case is left out of all cases.

    Args:
      cases: Pairs of each case. All cases have a scale.
    """
    values_of_sides = [(case.values_by_seed("a"), case.values_by_seed("b")) for case in cases]
    diverged_items = {item for a, b in values_of_sides for item in a if DIVERGED in (a[item], b[item])}
    weights = [1 / len(cases)] * len(cases)
    difference = clustered_mean(
        [
            {item: b[item] - value - case.added_shift for item, value in a.items() if item not in diverged_items}
            for case, (a, b) in zip(cases, values_of_sides, strict=True)
        ],
        weights,
        [case.binary_unit for case in cases],
    )
    converged_cases = [case.converged() for case in cases if not case.binary_unit]
    least_variance = (
        math.fsum(2 * case.least_variance / max(len(case), 1) for case in converged_cases) / len(cases) ** 2
    )
    variance = max(difference.variance, least_variance) if not math.isnan(difference.variance) else math.nan
    return Location(
        method="paired",
        estimate=Estimate(
            mean=difference.mean + math.fsum(case.added_shift for case in cases) / len(cases),
            variance=variance,
            degrees=difference.degrees,
        ),
    )
