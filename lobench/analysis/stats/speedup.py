"""Speed-up over a tuned baseline: the baseline's step count at the optimizer's final loss, relative to the budget.

There are two forms, which must not be mixed: relative to the *best single learning rate*, and relative to VeLO's
*envelope* of all learning rates, a per-step oracle that is harder to beat than any single rate.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "SMOOTHING_WINDOW",
    "BaselineCurve",
    "Speedup",
    "SpeedupReference",
    "envelope",
    "speedup",
]

_ENVELOPE_POINTS = 512
_SMOOTHING = 0.95
SMOOTHING_WINDOW = 20  # evaluations that the envelope's smoothing averages over, 1 / (1 - _SMOOTHING)

FloatArray = NDArray[np.float64]


class SpeedupReference(enum.StrEnum):
    """Reference of a speed-up."""

    BEST_SINGLE = "best single learning rate"
    ENVELOPE = "envelope"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineCurve:
    """Loss of a tuned baseline over its inner steps, as a running minimum.

    Attributes:
      steps: float64[num_points], increasing. The last is the horizon, the case's budget times the horizon factor.
      losses: float64[num_points], non-increasing.
      form: Kind of reference.
    """

    steps: FloatArray
    losses: FloatArray
    form: SpeedupReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Ratio of steps; the optimizer is faster if it is above 1.

    Attributes:
      value: The ratio; NaN if the optimizer diverged. If `censored`, the true ratio is at least this.
      censored: Whether the value is a lower bound.
      form: Kind of reference.
    """

    value: float
    censored: bool
    form: SpeedupReference

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "diverged"
        if self.censored:
            return f">= {self.value:.3g}"
        return f"{self.value:.3g}"


def envelope(curves: ArrayLike, steps: Sequence[float]) -> BaselineCurve:
    """Returns VeLO's envelope: the lowest smoothed seed-mean loss that any learning rate has reached up to each step.

    Args:
      curves: float[num_rates, num_seeds, num_evals], training loss.
      steps: Inner steps of the evaluations.
    Returns:
      A curve of 512 points; infinite up to the first step at which a learning rate has a finite loss.
    Source: Metz et al. 2022 (VeLO), the normalisation of its evaluation.
    """
    means = np.asarray(curves, np.float64).mean(axis=1)
    smooth = np.empty_like(means)
    smooth[:, 0] = means[:, 0]
    for column in range(1, means.shape[1]):
        smooth[:, column] = _SMOOTHING * smooth[:, column - 1] + (1 - _SMOOTHING) * means[:, column]
    lowest = np.where(np.isfinite(smooth), smooth, np.inf).min(axis=0)
    curve_steps = np.asarray(steps, np.float64)
    is_known = np.isfinite(lowest)
    grid = np.linspace(curve_steps[0], curve_steps[-1], _ENVELOPE_POINTS)
    losses = np.full(_ENVELOPE_POINTS, np.inf)
    if is_known.any():
        has_losses = grid >= curve_steps[is_known][0]
        losses[has_losses] = np.interp(grid[has_losses], curve_steps[is_known], lowest[is_known])
    return BaselineCurve(steps=grid, losses=_running_minimum(losses), form=SpeedupReference.ENVELOPE)


def speedup(final_loss: float, num_inner_steps: float, baseline: BaselineCurve) -> Speedup:
    """Returns E^-1(L) / t_max: the baseline's steps to the optimizer's final loss, divided by the optimizer's steps.

    If the baseline never reaches this loss, the ratio is censored at its horizon, as a lower bound.

    Args:
      final_loss: Seed mean of the optimizer's final loss. Non-finite if it diverged.
      num_inner_steps: t_max, the optimizer's steps.
      baseline: Curve of the baseline.
    """
    if not math.isfinite(final_loss):
        return Speedup(value=math.nan, censored=False, form=baseline.form)
    if final_loss < baseline.losses[-1]:
        return Speedup(value=float(baseline.steps[-1]) / num_inner_steps, censored=True, form=baseline.form)
    return Speedup(
        value=_first_at_or_below(baseline.steps, baseline.losses, final_loss) / num_inner_steps,
        censored=False,
        form=baseline.form,
    )


def _running_minimum(losses: FloatArray) -> FloatArray:
    return np.minimum.accumulate(np.where(np.isfinite(losses), losses, np.inf))


def _first_at_or_below(steps: FloatArray, losses: FloatArray, target: float) -> float:
    """Returns the step at which a falling curve first meets the target, interpolated linearly between points."""
    index = int((losses <= target).argmax())
    if index == 0:
        return float(steps[0])
    loss_before, loss_after = losses[index - 1], losses[index]
    if not math.isfinite(loss_before):
        return float(steps[index])
    share = (loss_before - target) / (loss_before - loss_after)
    return float(steps[index - 1] + share * (steps[index] - steps[index - 1]))
