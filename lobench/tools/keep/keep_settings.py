"""Settings of `lobench keep`, shared by the command line and the Python function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.api.settings import WorkerKeywords
from lobench.core.settings_field import option

__all__ = ["LEAST_SCREEN", "KeepKeywords", "KeepRules", "KeepSettings"]

LEAST_SCREEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRules:
    """Settings of a decision, with the names of the command-line options.

    Attributes:
      metric: Metric that decides, by its last value.
      maximize: Whether higher is better. None: known for losses and accuracies.
    """

    metric: str
    maximize: bool | None = None
    curves: str = option(
        "{out}/metrics.jsonl", "File that the command writes: any format of `lobench import`, or JSON of final values."
    )
    margin: float = option(0.0, "Improvement that keep requires, in units of the metric.", least=0)
    max_seeds: int = option(32, "Largest number of pairs on fresh seeds.", least=LEAST_SCREEN)
    screen: int = option(3, "Number of seeds that all candidates share, and that can only discard.", least=LEAST_SCREEN)
    fdr: float = option(
        0.1,
        "Expected share of changes without an improvement among those kept, over all decisions of the store.",
        least=0.001,
        most=0.5,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepSettings(KeepRules):
    """Options of `lobench keep`, under the same names. Those of the decision are inherited.

    Attributes:
      command: Command that trains with one seed. Placeholders: `{seed}`, and `{out}`, an empty folder.
    """

    command: str
    against: str = option("", "Incumbent: git:REV, or a folder (default: the files of the candidate).")
    candidate: str = option(".", "Changed files: a folder, or git:REV.")
    against_command: str = option("", "Command of the incumbent (default: the candidate's).")
    max_core_hours: float | None = option(None, "Largest cost of the decision.", above=0)
    environment: tuple[str, ...] = option((), "Environment variable that changes results; repeatable.", metavar="NAME")
    links: tuple[str, ...] = option(
        (),
        "Path that git ignores and runs need; its content must stay the same. Repeatable.",
        flag="--link",
        metavar="PATH",
    )
    description: str = option("", "Description of the change, for the log.")
    timeout_seconds: float = option(86400.0, "Time limit of one run.", flag="--timeout", metavar="SECONDS", above=0)
    num_cpus: int = option(1, "Cores of one run.", flag="--cpus", least=1)
    num_gpus: float = option(0.0, "Devices of one run.", flag="--gpus", least=0)
    workers: str | int = option("1", "Runs at the same time; with 2, both sides of a pair.")


class KeepKeywords(WorkerKeywords, total=False):
    """Keywords of `lobench.keep`, described at `KeepSettings` and `WatchSettings`: a key for each keyword."""

    maximize: bool | None
    against: str | Path
    candidate: str | Path
    against_command: str
    curves: str
    margin: float
    max_seeds: int
    screen: int
    max_core_hours: float | None
    fdr: float
    environment: Sequence[str]
    links: Sequence[str]
    description: str
    timeout_seconds: float
    num_cpus: int
    num_gpus: float
