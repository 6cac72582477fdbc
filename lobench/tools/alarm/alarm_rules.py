"""Rules for raising an alarm, as options of `lobench alarm`."""

from __future__ import annotations

from dataclasses import dataclass

from lobench.api.settings import EvaluationKeywords
from lobench.core.settings_field import option

__all__ = ["AlarmKeywords", "AlarmRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRules:
    """Settings that determine when an alarm is raised, with the names of the command-line options."""

    rate: float = option(0.05, "Chance of any false alarm of one kind over the whole run.", least=0.0001, most=0.5)
    margin: float = option(0.05, "Tolerated harm to the score.", least=0, most=3)
    seeds: int = option(8, "Number of fresh seeds for a confirmation, per case and side.", least=3, most=1000)
    window: int = option(8, "For stall: number of checkpoints in a window of the trend.", least=4)
    least_gain: float = option(0.01, "For stall: least gain of the score per 1,000 outer steps.", least=-10, most=10)


class AlarmKeywords(EvaluationKeywords, total=False):
    """Keywords of `lobench.alarm`, described at `AlarmRules` and `WatchSettings`."""

    rate: float
    margin: float
    seeds: int
    window: int
    least_gain: float
