"""Settings of `lobench bisect`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass

from lobench.api.settings import EvaluationKeywords
from lobench.core.settings_field import option

__all__ = ["BisectKeywords", "BisectSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectSettings:
    """Options of `lobench bisect`, under the same names."""

    case: str = option(MISSING, "Name of the case: relu32, quick/relu32 or digits.relu32.", required=True)
    metric: str = option("", "Metric that got worse (default: the case's primary metric).")
    probability: float = option(
        0.95,
        "End when there is a fall, and the break is within one checkpoint, with this probability.",
        least=0.5,
        most=0.999,
    )
    confidence: float = option(
        0.9,
        "End when the named checkpoint is the first broken one with this probability, too. It and the one before it "
        "are evaluated.",
        least=0.5,
        most=0.999,
    )
    most: int | None = option(
        None,
        "Largest number of new evaluations of one seed block (default: a fifth of the checkpoints, at least 20).",
        least=0,
    )
    from_step: int | None = option(None, "Outer step at which the case was good (default: the first one).", least=0)
    to_step: int | None = option(None, "Outer step at which the case was broken (default: the last one).", least=0)


class BisectKeywords(EvaluationKeywords, total=False):
    """Keywords of `lobench.bisect` besides `case`, described at `BisectSettings` and `WatchSettings`."""

    metric: str
    probability: float
    confidence: float
    most: int | None
    from_step: int | None
    to_step: int | None
