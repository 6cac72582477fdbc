"""What a watch, or an evaluation of given subjects, is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.engine.chief.contract import WatchOptions

__all__ = ["WatchSettings", "texts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings(WatchOptions):
    """The options of `lobench watch`, by the names that they have there; the chief's own are inherited.

    Attributes:
      location: A run's folder, or one checkpoint; "" where the subjects are given and of no run.
      suites: Folders, or `.gin` files.
      workers: How many, or "auto".
      store: Folder of the result store; "": `default_store`.
      name: Of this watch; "": the first suite's.
      checkpoints: Admission policy: latest, all, every:N.
      sinks: Addresses, NAME or NAME:ARGUMENT.
      quiet: A line a finished checkpoint.
      gin_files, gin_params: Bound over the suites' own, in this order.
    """

    location: str
    suites: tuple[str, ...]
    workers: str | int = "auto"
    store: str = ""
    name: str = ""
    executor: str = "local"
    ray_address: str = "auto"
    insecure: bool = False
    checkpoints: str = "latest"
    sinks: tuple[str, ...] = ()
    quiet: bool = False
    source: str = "directory"
    gin_files: tuple[str, ...] = ()
    gin_params: tuple[str, ...] = ()
    allow_pickle: bool = False

    @property
    def called(self) -> str:
        """The name of this watch, and of its store."""
        return self.name or Path(self.suites[0]).resolve().stem


def texts(given: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Returns paths, or one of them, as texts."""
    return (str(given),) if isinstance(given, str | Path) else tuple(map(str, given))
