"""Rank test of a claimed result against the effect of rounding on the same training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NUM_PERTURBED", "RoundingTest", "excess", "rounding_test"]

NUM_PERTURBED = 19  # perturbed trainings per claim: the level of the test is 1 / 20

_FLOOR = 8.0  # difference that another order of summation may make, in last places of float32
_BEYOND = math.log(10.0)  # an excess is refused if it exceeds all others by this factor
_INFINITE_DISTANCE = math.log(1e30)  # if only one side is finite

FloatArray = NDArray[np.float64]


class RoundingTest(NamedTuple):
    """Comparison of claimed results with trainings whose parameters were perturbed in the last place.

    Attributes:
      p_value: p-value of "the claims are such trainings, too": share of the trainings, including the claims, whose
        largest excess is at least that of the claims.
      excess: Excess of each claim: natural logarithm of the ratio of its largest difference to the median of the
        perturbed trainings' differences.
      limit: Excess above which a claim is refused: ln 10 above the excess of the most extreme perturbed training.
    """

    p_value: float
    excess: tuple[float, ...]
    limit: float


def excess(differences: FloatArray, sizes: FloatArray) -> FloatArray:
    """Returns the largest excess of each training of one evaluation.

    Args:
      differences: Difference of each training from the unperturbed one, float64[trainings, values]. NaN if neither is
        finite, infinite if only one is. The first training is the claim.
      sizes: Magnitudes of the values, float64[values]; the last place is relative to them.

    Returns:
      float64[trainings]: the largest logarithm of a difference over the median of that value's differences.
    """
    eps = float(np.finfo(np.float32).eps)
    floor = _FLOOR * eps * np.maximum(sizes, np.finfo(np.float32).tiny)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.abs(differences) + floor)
    logs = np.where(np.isinf(differences), _INFINITE_DISTANCE, np.where(np.isnan(differences), np.log(floor), logs))
    centred = logs - np.median(logs[1:], axis=0)
    return np.asarray(centred.max(axis=1, initial=-math.inf))


def rounding_test(excesses: Sequence[FloatArray]) -> RoundingTest:
    """Tests all claims of an audit together.

    If the claims differ by rounding alone, each training is exchangeable with them over all evaluations, and each has
    the largest excess equally often, whatever its distribution. So honest claims are refused with a probability of one
    over the number of trainings, if the other machine's rounding were a perturbation of the last place at each step.
    The true probability is smaller for two reasons. A claim is refused only if its excess is ten times any other, and
    another order of a sum changes it by less than the last place.

    Args:
      excesses: Result of `excess` for each evaluation, all of one length.

    Source: Barnard 1963, Monte Carlo tests; Westfall and Young 1993 for the maximum over evaluations.
    """
    excess_rows = np.asarray(excesses)
    largest = excess_rows.max(axis=0)
    return RoundingTest(
        p_value=float((largest >= largest[0]).mean()),
        excess=tuple(excess_rows[:, 0].tolist()),
        limit=float(largest[1:].max()) + _BEYOND,
    )


def differences(
    claimed_metrics: Mapping[str, FloatArray],
    base: Mapping[str, FloatArray],
    perturbed_metrics: Sequence[Mapping[str, FloatArray]],
) -> tuple[FloatArray, FloatArray]:
    """Returns the arguments of `excess`, from metrics with equal names and shapes."""
    names = sorted(base)

    def flat(metrics: Mapping[str, FloatArray]) -> FloatArray:
        return np.concatenate([np.asarray(metrics[name], np.float64).ravel() for name in names])

    base_values = flat(base)
    rows = []
    for metrics in (claimed_metrics, *perturbed_metrics):
        other_values = flat(metrics)
        with np.errstate(invalid="ignore"):
            row = np.where(other_values == base_values, 0.0, other_values - base_values)
        has_other_finiteness = np.isfinite(other_values) != np.isfinite(base_values)
        rows.append(np.where(has_other_finiteness, math.inf, np.where(np.isfinite(base_values), row, math.nan)))
    return np.asarray(rows), np.where(np.isfinite(base_values), np.abs(base_values), 0.0)
