"""Settings of `lobench falsify`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lobench.api.settings import EvaluationKeywords
from lobench.core.settings_field import option

__all__ = ["MOST_SEEDS", "FalsifyKeywords", "FalsifySettings", "SearchRules"]

MOST_SEEDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRules:
    """Settings of the search, with the names of the command-line options.

    The level of each test is alpha divided by `most_tests`.
    """

    margin: float = option(
        0.1,
        "Difference of the score above which the checkpoint loses.",
        least=0,
        most=3,
    )
    alpha: float = option(
        0.05, "Chance of confirming any case that does not lose, over the whole search.", least=0.0001, most=0.5
    )
    most_cells: int = option(60, "Largest number of cells to evaluate.", least=1)
    most_tests: int = option(40, "Largest number of tests.", least=1)
    wave: int = option(4, "Number of cells evaluated together.", least=1)

    @property
    def level(self) -> float:
        return self.alpha / self.most_tests


@dataclass(frozen=True, slots=True, kw_only=True)
class FalsifySettings(SearchRules):
    """Options of `lobench falsify`, under the same names."""

    against: str = option("adam", "Optimizer to tune and compare with; it needs a learning rate.")
    case: str | None = option(None, "Case to start from; optional if the suite has one case.")
    axes: tuple[str, ...] = option(
        (),
        "Binding to vary, and its values; repeatable. The binding of a wrapper that the case lacks starts without it "
        "(default: the case's steps and whole numbers, from a sixteenth to four times).",
        metavar="PATH = [..]",
    )
    grid: str = option("velo", "Grid for tuning on tested cells, as in `lobench baseline`; others have five rates.")
    seeds: int = option(12, "Number of fresh seeds per test.", least=4, most=MOST_SEEDS)


class FalsifyKeywords(EvaluationKeywords, total=False):
    """Keywords of `lobench.falsify`, described at `FalsifySettings` and `WatchSettings`."""

    margin: float
    alpha: float
    most_cells: int
    most_tests: int
    wave: int
    against: str
    case: str | None
    axes: Sequence[str]
    grid: str
    seeds: int
