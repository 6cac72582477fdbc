"""Settings of `lobench debug`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from lobench.core.settings_field import option

__all__ = ["DebugKeywords", "DebugSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugSettings:
    """Options of `lobench debug` about the replayed training, under the same names."""

    checkpoint: str = option("", "Checkpoint to train with, or its name in a store.")
    optimizer: str = option(
        "", "Optimizer to train with instead: adam(); adam.learning_rate = 1e-3, or its name in a store."
    )
    seed: int = option(0, "Seed of the training to replay.", least=0)
    task_index: int = option(0, "Which of the tasks that the seed draws from a family.")
    home: str = option("quick", 'Suite that gives the usual ranges of inputs; "": none.')


class DebugKeywords(TypedDict, total=False):
    """Keywords of `debug`, described at `DebugSettings`."""

    checkpoint: str | Path
    optimizer: str
    seed: int
    task_index: int
    home: str
