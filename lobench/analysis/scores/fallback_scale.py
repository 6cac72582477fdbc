"""Fallback scale of a case: a search's own scale where no baseline defines the score 1."""

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
    """Returns a scale that hangs on nothing but where the seeds begin.

    On a log scale 1 is a tenth of the start. On a linear one it is the start's own size away from it, or 1 where the
    start is 0; of an accuracy, which ends at 1, it is all that is left. Nothing is clipped above: the better of two
    trials is told from the other however good both are.

    Args:
      starts: U_s of each seed.
      declared, minimum: As the case has them.
    """
    begun = {seed: value for seed, value in enumerate(starts) if math.isfinite(value)}
    # Nobody's results are among those who are compared: where the seeds begin alone says which kind of scale it is.
    found = ScoreScale.among(metric, direction, finals=[], starts=begun, declared=declared, minimum=minimum)
    zero = found.untrained
    way = 1 - zero if metric.rsplit("/", 1)[-1] == "accuracy" else abs(zero)
    size = way if way > 0 else 1.0
    is_log = found.kind is ScaleKind.LOG
    return dataclasses.replace(
        found,
        log_unit=math.log(10) if is_log and zero > 0 else math.nan,
        linear_unit=math.nan if math.isnan(zero) else size if direction is Direction.MIN else -size,
        best=math.inf,
    )
