"""`lobench run`: methods x cases x sessions, as far as the store does not hold them yet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lobench.core.experiment import Experiment

__all__ = ["Ran", "RunSettings", "run", "run_experiment", "store_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The options of `lobench run`, by the names that they have there.

    Attributes:
      experiment: Path of the file.
      methods: Names of those that are run now; none: all.
    """

    experiment: str
    store: str = ""
    methods: tuple[str, ...] = ()
    gin_params: tuple[str, ...] = ()
    workers: str | int = "auto"
    executor: str = "local"
    ray_address: str = "auto"
    insecure: bool = False
    sinks: tuple[str, ...] = ()
    max_core_hours: float | None = None
    retry_errors: bool = False
    allow_pickle: bool = False


def store_of(settings: RunSettings, experiment: Experiment) -> Path:
    return Path(settings.store) if settings.store else Path(".lobench") / experiment.name
