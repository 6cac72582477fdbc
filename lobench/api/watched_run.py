"""Run of a watch whose checkpoints a tool evaluates again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lobench.api.evaluate import StoreEvaluator
from lobench.api.resolve import RunFolder, find_run, is_store
from lobench.api.settings import (
    EvaluateIntoKeywords,
    EvaluationKeywords,
    as_texts,
    default_store,
    unused_store,
    unused_store_line,
)
from lobench.core.errors import UsageError
from lobench.core.settings_field import keywords_in
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.shipped import find_suite

__all__ = ["WatchedRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """Training run that a watch evaluates.

    Attributes:
      run: The run.
      suites: Suites of the watch, as paths.
      store: Store of the watch.
      unused_store: Store beside the checkpoints that is not used, because it cannot be written; see `unused_store`.
    """

    run: RunFolder
    suites: tuple[str, ...]
    store: Path
    unused_store: Path | None = None

    @classmethod
    def find(
        cls, location: str | Path, suites: str | Path | Sequence[str | Path], *, store: str | Path | None, name: str
    ) -> WatchedRun:
        """Returns the run that a tool's arguments name.

        Args:
          location: The run's folder. With `store`, a session of an experiment's command, by scope or label.
          suites: Suites of the watch.
          store: Store of the watch. None: the default store of `lobench.watch`.
          name: Name of the watch. "": the name of the first suite.
        Raises:
          UsageError: A suite or the run does not exist.
        """
        suite_paths = tuple(str(find_suite(suite)) for suite in as_texts(suites))
        run = find_run(str(location), None if store is None else Path(store))
        if store:
            return cls(run=run, suites=suite_paths, store=Path(store))
        name = name or Path(suite_paths[0]).resolve().stem
        used_store = default_store(run.location, name)
        return cls(
            run=run,
            suites=suite_paths,
            store=used_store,
            unused_store=unused_store(run.location, name, used_store),
        )

    def log_unused_store(self, log: Callable[[str], None]) -> None:
        """Logs a line on a store of the run that is not used, if there is one."""
        if self.unused_store is not None:
            log(unused_store_line(self.unused_store, self.store))

    def require_store(self, log: Callable[[str], None]) -> None:
        """Raises if the run's only store cannot be written. Logs a line if another store is used in its place.

        Raises:
          UsageError: The only store is read-only or another user's.
        """
        if is_store(self.store):
            self.log_unused_store(log)
        elif self.unused_store is not None:
            raise UsageError(
                "the store of this run is read-only or another user's",
                where=str(self.unused_store),
                next_step="copy it, and name the copy with --store",
            )

    def evaluator(self, tool: str, progress: WatchProgress, options: EvaluationKeywords) -> StoreEvaluator:
        """Returns an evaluator of the run's checkpoints. Its store is below the watch's, which may be in use."""
        gin_params = (*self.run.bindings, *options.get("gin_params", ()))
        return StoreEvaluator(
            store=self.store / tool,
            suites=self.suites,
            progress=progress,
            location=self.run.location,
            options=keywords_in(EvaluateIntoKeywords, {**options, "name": tool, "gin_params": gin_params}),
        )
