"""Settings of `lobench ablate`."""

from __future__ import annotations

from dataclasses import dataclass

from lobench.api.settings import EvaluationKeywords
from lobench.core.settings_field import option

__all__ = ["AblateKeywords", "AblateSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AblateSettings:
    """Options of the tests of `lobench ablate`, under the same names."""

    margin: float = option(0.05, "Largest difference of scores between equivalent configurations.", above=0, most=3)
    alpha: float = option(
        0.05,
        "Chance of calling a tested configuration equivalent although it is not.",
        least=0.0001,
        most=0.5,
    )
    seeds: int | None = option(
        None,
        "Largest number of seeds per case; looks are at 4, 8, 16 and so on (default: the experiment's sessions, or "
        "32).",
        least=4,
        most=1000,
    )


class AblateKeywords(EvaluationKeywords, total=False):
    """Keywords of `lobench.ablate`, described at `AblateSettings` and `WatchSettings`."""

    margin: float
    alpha: float
    seeds: int | None
