"""Four numbers of a training curve (SLM Lab's): strength, efficiency, stability, and consistency over sessions.

For experiments; not for the headline. With s_i the improvement of evaluation i over the untrained value, and t_i its
step. Where the sum of s is not positive only strength is defined, and the others are NaN with a reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["SingleRun", "consistency", "single_run"]

_NO_PROGRESS = "the improvements over the untrained value do not sum to anything positive"


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRun:
    """Numbers of one curve; `reason` says why some are NaN, empty where none is."""

    strength: float
    efficiency: float
    stability: float
    reason: str = ""


def single_run(improvements: ArrayLike, steps: ArrayLike) -> SingleRun:
    """Returns strength, efficiency and stability.

    strength = mean s; efficiency = sum(s_i/t_i) / sum(s_i);
    stability = 1 - |sum min(s_{i+1} - s_i, 0) / sum_{i<N} s_i|.

    Args:
      improvements: float[num_evals], better than untrained above 0.
      steps: float[num_evals], all > 0.
    Source: Graesser and Keng, Foundations of Deep Reinforcement Learning, and SLM Lab.
    """
    s, t = np.asarray(improvements, np.float64), np.asarray(steps, np.float64)
    if s.shape != t.shape or s.ndim != 1 or len(s) == 0:
        raise ValueError(f"improvements {s.shape} and steps {t.shape}: expected two equal lengths, at least 1")
    if (t <= 0).any():
        raise ValueError("every step must be above 0; leave the untrained evaluation out")
    strength, nan = float(s.mean()), math.nan
    if not np.isfinite(s).all():
        return SingleRun(strength=nan, efficiency=nan, stability=nan, reason="the curve has values that are not finite")
    if s.sum() <= 0:
        return SingleRun(strength=strength, efficiency=nan, stability=nan, reason=_NO_PROGRESS)
    efficiency, before = float((s / t).sum() / s.sum()), float(s[:-1].sum())
    if before <= 0:
        return SingleRun(strength=strength, efficiency=efficiency, stability=nan, reason=_NO_PROGRESS)
    losses = float(np.minimum(np.diff(s), 0).sum())
    return SingleRun(strength=strength, efficiency=efficiency, stability=1 - abs(losses / before))


def consistency(sessions: ArrayLike) -> tuple[float, str]:
    """Returns 1 - 2 sum_i sd_j(s_ij) / sum_i mean_j(s_ij) over sessions j (sd with ddof 1), and why it is NaN, or "".

    Args:
      sessions: float[num_sessions, num_evals] of improvements.
    """
    s = np.asarray(sessions, np.float64)
    if s.ndim != 2 or s.shape[0] < 2:
        return math.nan, "consistency needs two sessions or more"
    if not np.isfinite(s).all():
        return math.nan, "a curve has values that are not finite"
    total = float(s.mean(axis=0).sum())
    if total <= 0:
        return math.nan, _NO_PROGRESS
    return 1 - 2 * float(s.std(axis=0, ddof=1).sum()) / total, ""
