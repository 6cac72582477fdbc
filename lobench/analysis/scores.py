"""What a metric's values say: when a target is reached, and what is worst."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["time_to_target", "worst_last"]

FloatArray = NDArray[np.float64]


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
