"""What a watch, or an evaluation of given subjects, is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Self

from lobench.core.option import option
from lobench.engine.chief.contract import WatchOptions
from lobench.engine.config.shipped import find_suite

__all__ = ["WatchSettings", "texts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings(WatchOptions):
    """The options of `lobench watch`, by the names that they have there; the chief's own are inherited.

    Attributes:
      location: A run's folder, or one checkpoint; "" where the subjects are given and of no run.
      workers: A number, or "auto".
      import_folders: Where modules that gin files name are searched besides the suites' folders.
    """

    location: str
    suites: tuple[str, ...] = option(
        MISSING, "Suite folder, .gin file, or a shipped one's name; may be given again.", flag="--suite", required=True
    )
    name: str = option("", "Name of this watch (default: the suite's). Two names, two stores.")
    workers: str | int = option("auto", "Worker processes, one core each; a number or auto.")
    executor: str = option("local", "local, inline, or a plugin's.")
    ray_address: str = option("auto", "For --executor ray: auto, HOST:PORT or local.")
    insecure: bool = option(False, "Use a cluster that lets anybody in who reaches it.")
    checkpoints: str = option("latest", "latest, all, or every:N.")
    sinks: tuple[str, ...] = option((), "Where results go; may be given again.", flag="--sink", metavar="NAME[:ARG]")
    quiet: bool = option(False, "No line but those of finished checkpoints and of what fails.", flag="--quiet -q")
    source: str = option("directory", "Checkpoint source.")
    store: str = option("", "Result store (default: CKPT_DIR/lobench_results/NAME if yours to write).")
    gin_files: tuple[str, ...] = option((), "gin file bound over the suite's own.", flag="--gin-file")
    gin_params: tuple[str, ...] = option((), "gin binding over everything else.", flag="--gin-param")
    allow_pickle: bool = option(False, "Load checkpoints that are pickles; they can run code.")

    import_folders: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """The name of this watch, and of its store."""
        return self.name or Path(self.suites[0]).resolve().stem

    def found(self) -> Self:
        """Returns the same with suites by their paths.

        Raises:
          UsageError: one of them is not there.
        """
        return replace(self, suites=tuple(str(find_suite(suite)) for suite in self.suites))


def texts(given: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Returns paths, or one of them, as texts."""
    return (str(given),) if isinstance(given, str | Path) else tuple(map(str, given))
