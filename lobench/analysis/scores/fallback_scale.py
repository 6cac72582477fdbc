"""Fallback scale of a case: a search's own scale, used if no baseline defines the score 1."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from lobench.analysis.scores.score_scale import ScaleKind, ScoreScale
from lobench.core.metric import Direction

__all__ = ["own_scale"]


def own_scale(
    metric: str, direction: Direction, starts: Iterable[float], *, declared: str = "", minimum: float | None = None
) -> ScoreScale:
    """Returns a scale that depends only on the values at step 0.

    The value that scores 1 is a tenth of the start on a log scale. On a linear scale it is better than the start by the
    start's absolute value, or by 1 if the start is 0. For an accuracy it is 1. Scores have no upper bound, so that good
    trials remain distinguishable.

    Args:
      metric: Name of the metric.
      direction: Direction in which the metric is better.
      starts: U_s, the value of each seed at step 0.
      declared, minimum: Scale and minimum of the case.
    """
    begun = {seed: value for seed, value in enumerate(starts) if math.isfinite(value)}
    # Without final values, the kind of scale depends only on the starts.
    scale = ScoreScale.among(metric, direction, finals=[], starts=begun, declared=declared, minimum=minimum)
    zero = scale.untrained
    way = 1 - zero if metric.rsplit("/", 1)[-1] == "accuracy" else abs(zero)
    size = way if way > 0 else 1.0
    is_log = scale.kind is ScaleKind.LOG
    linear_unit = math.nan if math.isnan(zero) else size if direction is Direction.MIN else -size
    return dataclasses.replace(
        scale,
        log_unit=math.log(10) if is_log and zero > 0 else math.nan,
        linear_unit=linear_unit,
        best=math.inf,
    )
