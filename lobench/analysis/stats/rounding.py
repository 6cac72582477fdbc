"""Rank test of a claimed result against what rounding does to the same training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NUM_PERTURBED", "RoundingTest", "excess", "rounding_test"]

NUM_PERTURBED = 19  # trainings beside each claim: the level of the test is 1 / 20

_FLOOR = 8.0  # last places of float32; what a reduction of another order may differ by
_BEYOND = math.log(10.0)  # an excess is refused where it is larger than all others by this factor
_APART = math.log(1e30)  # where one side is no number and the other is one

FloatArray = NDArray[np.float64]


class RoundingTest(NamedTuple):
    """How claims compare with trainings that were perturbed by the last place.

    Attributes:
      p_value: Of "the claims are such trainings, too": the share of them, the claims among them, whose largest excess
        is as large.
      excess: Of each claim: by how many powers of e its largest difference is above the median of the perturbed ones.
      limit: An excess above it is refused: that of every perturbed training, and ten times as much.
    """

    p_value: float
    excess: tuple[float, ...]
    limit: float


def excess(differences: FloatArray, sizes: FloatArray) -> FloatArray:
    """Returns the largest excess of each training of one evaluation.

    Args:
      differences: float64[trainings, values], of each from the unperturbed one; NaN where both are no numbers,
        infinite where one of them is. The first is the claim.
      sizes: float64[values], of the values themselves, of which the last place is a share.
    Returns:
      float64[trainings]: the largest log of the difference over the median of its value's.
    """
    eps = float(np.finfo(np.float32).eps)
    floor = _FLOOR * eps * np.maximum(sizes, np.finfo(np.float32).tiny)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.abs(differences) + floor)
    logs = np.where(np.isinf(differences), _APART, np.where(np.isnan(differences), np.log(floor), logs))
    centred = logs - np.median(logs[1:], axis=0)
    return np.asarray(centred.max(axis=1, initial=-math.inf))


def rounding_test(excesses: Sequence[FloatArray]) -> RoundingTest:
    """Tests all claims of an audit together.

    Each training of one number, over all evaluations, is as good as the claims where these differ by rounding alone:
    then each of them has the largest excess equally often, whatever its law. The chance that honest claims are refused
    is one over the number of trainings, were the other machine's rounding a move by the last place at each step. It is
    less, since a claim is refused only where its excess is ten times that of any other, and since a last place is more
    than what sums in another order differ by.

    Args:
      excesses: Of each evaluation, as `excess` returns them; all of one length.
    Source: Barnard 1963, Monte Carlo tests; Westfall and Young 1993 for the maximum over evaluations.
    """
    table = np.asarray(excesses)
    largest = table.max(axis=0)
    return RoundingTest(
        p_value=float((largest >= largest[0]).mean()),
        excess=tuple(table[:, 0].tolist()),
        limit=float(largest[1:].max()) + _BEYOND,
    )


def differences(
    claim: Mapping[str, FloatArray], base: Mapping[str, FloatArray], moved: Sequence[Mapping[str, FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """Returns what `excess` takes, of metrics of equal names and shapes."""
    names = sorted(base)

    def flat(metrics: Mapping[str, FloatArray]) -> FloatArray:
        return np.concatenate([np.asarray(metrics[name], np.float64).ravel() for name in names])

    ours = flat(base)
    rows = []
    for metrics in (claim, *moved):
        theirs = flat(metrics)
        with np.errstate(invalid="ignore"):
            row = np.where(theirs == ours, 0.0, theirs - ours)
        apart = np.isfinite(theirs) != np.isfinite(ours)
        rows.append(np.where(apart, math.inf, np.where(np.isfinite(ours), row, math.nan)))
    return np.asarray(rows), np.where(np.isfinite(ours), np.abs(ours), 0.0)
