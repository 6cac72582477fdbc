"""Scores of one case: what a metric's final value means on the scale from untrained (0) to the tuned baseline (1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lobench.core.metric import Direction

__all__ = [
    "BEST_SCORE",
    "DIVERGED_SCORE",
    "ScoreScale",
    "normalised_scores",
    "time_to_target",
    "worst_last",
]

# A score is clipped to this range, and a diverged seed gets its lower end: no loss, however large, counts for more.
DIVERGED_SCORE, BEST_SCORE = -1.0, 2.0

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """What 0 and 1 mean for one case; frozen in the baseline's file.

    Attributes:
      untrained: L0, the mean of the primary metric before any inner step.
      tuned: L1, the tuned baseline's seed mean of the final primary metric at the case's own budget.
      log: Whether the case measures on a log scale; both ends must then be positive.
    """

    untrained: float
    tuned: float
    log: bool = False

    @classmethod
    def of(cls, direction: Direction | None, *, untrained: float, tuned: float) -> ScoreScale:
        """Returns the scale of a metric; not usable where tuned is no better than untrained, or what is better unknown.

        Such a scale would stand on its head: the worse, the higher the score. On a test loss that happens, where what
        was tuned on train overfits.
        """
        is_better = tuned > untrained if direction is Direction.MAX else tuned < untrained and direction is not None
        return cls(untrained=untrained, tuned=tuned if is_better else math.nan)

    @property
    def is_usable(self) -> bool:
        """Whether 0 and 1 are two different, finite places; otherwise every score is NaN, and the case is counted."""
        if not (math.isfinite(self.untrained) and math.isfinite(self.tuned)) or self.untrained == self.tuned:
            return False
        return not self.log or (self.untrained > 0 and self.tuned > 0)


def normalised_scores(final: ArrayLike, scale: ScoreScale, *, diverged: ArrayLike | None = None) -> FloatArray:
    """Returns (L0 - L)/(L0 - L1) of each seed, clipped to [-1, 2]; -1 for a seed that diverged.

    The direction needs no word: L1 lies on the better side of L0.

    Args:
      final: float[num_seeds], the final primary metric; a non-finite value counts as diverged.
      scale: L0 and L1. Where it is not usable every score is NaN, the diverged ones too: the case has no scale.
      diverged: bool[num_seeds]; the seeds that met a non-finite loss at any inner step.
    Returns:
      float64[num_seeds].
    """
    values = np.asarray(final, np.float64)
    if not scale.is_usable:
        return np.full(values.shape, np.nan)
    lost = ~np.isfinite(values) if diverged is None else ~np.isfinite(values) | np.asarray(diverged, bool)
    zero, one = scale.untrained, scale.tuned
    if scale.log:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(values > 0, np.log(values), -np.inf)  # a loss of 0 is better than any other: clipped
        zero, one = math.log(zero), math.log(one)
    with np.errstate(invalid="ignore"):
        scores = (zero - values) / (zero - one)
    return np.where(lost, DIVERGED_SCORE, np.clip(scores, DIVERGED_SCORE, BEST_SCORE))


def time_to_target(curves: ArrayLike, steps: Sequence[float], target: float, *, higher: bool = False) -> FloatArray:
    """Returns the first place at which each seed's curve reaches the target; infinity where it never does (censored).

    Args:
      curves: float[num_seeds, num_evals]; a NaN has not reached anything.
      steps: What the columns are worth: inner steps, seconds or FLOPs.
      target: Reached at or below it, or at or above it with `higher`.
      higher: Whether larger values are better.
    Returns:
      float64[num_seeds].
    """
    values = np.atleast_2d(np.asarray(curves, np.float64))
    places = np.asarray(steps, np.float64)
    if values.shape[1] != len(places):
        raise ValueError(f"curves have {values.shape[1]} evaluations, steps {len(places)}")
    reached = values >= target if higher else values <= target
    return np.where(reached.any(axis=1), places[reached.argmax(axis=1)], np.inf)


def worst_last(values: ArrayLike, *, higher: bool = False) -> FloatArray:
    """Returns the values with NaN as the worst there is, so that what diverged enters ranks instead of vanishing."""
    found = np.asarray(values, np.float64)
    return np.where(np.isnan(found), -np.inf if higher else np.inf, found)
