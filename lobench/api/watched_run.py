"""Run of a watch whose checkpoints a tool evaluates again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lobench.analysis.store.snapshot import read_store
from lobench.api.evaluate import StoreEvaluator
from lobench.api.resolve import RunFolder, find_run, is_store
from lobench.api.settings import default_store, texts
from lobench.core.code import changed_code_line
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.config.shipped import find_suite
from lobench.engine.store.current import place_of
from lobench.engine.store.ledger import Ledger

__all__ = ["WatchedRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedRun:
    """Run of a watch.

    Attributes:
      run: The run.
      suites: Suites of the watch, as paths.
      store: Store of the watch.
    """

    run: RunFolder
    suites: tuple[str, ...]
    store: Path

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
        places = tuple(str(find_suite(suite)) for suite in texts(suites))
        run = find_run(str(location), None if store is None else Path(store))
        folder = Path(store) if store else default_store(run.location, name or Path(places[0]).resolve().stem)
        return cls(run=run, suites=places, store=folder)

    def note_on_code(self, tool: str) -> str:
        """Returns a line on results of the watch that were made by other code than a tool's latest ones.

        The two cannot be compared. "" if there are none, or if either store is empty.

        Args:
          tool: Name of the tool, as of `evaluator`.
        """
        if not (is_store(self.store) and is_store(self.store / tool)):
            return ""
        watched, own = read_store(self.store), read_store(self.store / tool)
        todays = {(place_of(row.case), row.key.optimizer_hash): row.code for row in own.rows}  # of the last ones
        with Ledger.open(self.store, read_only=True) as before, Ledger.open(own.store, read_only=True) as after:
            changes = [
                (row.code, code)
                for row in watched.rows
                if watched.current.is_current(row)
                and (code := todays.get((place_of(row.case), row.key.optimizer_hash), ""))
                and not before.counts(row.code, code)
            ]
            line = changed_code_line(changes, lambda code: before.code_parts(code) or after.code_parts(code))
        return f"{line}, and are compared with new ones here; `lobench watch` evaluates them again" if changes else ""

    def evaluator(
        self, tool: str, progress: WatchProgress, *, gin_params: Sequence[str] = (), **options: Any
    ) -> StoreEvaluator:
        """Returns an evaluator of the run's checkpoints. Its store is below the watch's, which may be in use."""
        return StoreEvaluator(
            store=self.store / tool,
            suites=self.suites,
            name=tool,
            progress=progress,
            location=self.run.location,
            gin_params=(*self.run.bindings, *gin_params),
            options=options,
        )
