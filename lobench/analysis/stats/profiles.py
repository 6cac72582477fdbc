"""Performance profiles: of scores (Agarwal et al. 2021) and of steps to a target (Dolan and More 2002).

A *score profile* (rliable) is the share of runs with a score above tau. A *ratio profile* (Dolan and More; AlgoPerf) is
the share of cases on which a subject needs at most tau times the time of the fastest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["ratio_profile", "ratio_profile_score", "score_profile", "time_ratios"]

FloatArray = NDArray[np.float64]


def score_profile(cells: Sequence[Sequence[float]], taus: ArrayLike) -> FloatArray:
    """Returns the share of runs (seeds of all cases) with a score > tau, for each tau. A NaN score is above no tau."""
    values = np.concatenate([np.asarray(cell, np.float64) for cell in cells])
    thresholds = np.asarray(taus, np.float64)
    return np.asarray((values[None, :] > thresholds[:, None]).mean(axis=1))


def time_ratios(times: ArrayLike) -> FloatArray:
    """Returns r = t / (best t of the case); infinity if the subject, or every subject, never reached the target.

    Args:
      times: Times to target, float[num_subjects, num_cases]; infinite or NaN if it was never reached.
    """
    values = np.asarray(times, np.float64)
    values = np.where(np.isnan(values), np.inf, values)
    best = values.min(axis=0)
    return np.where(np.isfinite(values), values / np.where(np.isfinite(best), best, 1.0), np.inf)


def ratio_profile(ratios: ArrayLike, taus: ArrayLike) -> FloatArray:
    """Returns rho(tau), the share of cases with r <= tau: float64[num_subjects, num_taus].

    Args:
      ratios: float[num_subjects, num_cases], from `time_ratios`.
      taus: float[num_taus].
    """
    values = np.asarray(ratios, np.float64)
    thresholds = np.asarray(taus, np.float64)
    return np.asarray((values[:, None, :] <= thresholds[None, :, None]).mean(axis=2))


def ratio_profile_score(ratios: ArrayLike, *, max_ratio: float = 4.0, num_points: int = 100) -> FloatArray:
    """Returns the integral of rho over [1, max_ratio], by the trapezoid rule, divided by its length.

    The number of points is part of the definition of the published scores.

    Source: Dahl et al. 2023, section 4.3.
    """
    taus = np.linspace(1.0, max_ratio, num_points)
    return np.asarray(np.trapezoid(ratio_profile(ratios, taus), taus, axis=1)) / (max_ratio - 1.0)
