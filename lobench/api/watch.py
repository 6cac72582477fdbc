"""`lobench.watch`: evaluation of every new checkpoint of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lobench.api.components import components_of, worker_config
from lobench.api.dry_run import Costs, costs_of
from lobench.api.engine_run import Watched, run_rounds
from lobench.api.settings import WatchSettings, num_workers, texts
from lobench.core.errors import UsageError
from lobench.engine.checkpoints.places import path_of
from lobench.engine.chief.interfaces import WatchProgress
from lobench.report.live.notebook_progress import default_progress
from lobench.report.live.progress import SilentProgress

__all__ = ["expected_costs", "run_watch", "watch"]


def watch(
    location: str | Path,
    suites: str | Path | Sequence[str | Path],
    *,
    progress: WatchProgress | None = None,
    **options: Any,
) -> Watched:
    """Evaluates every new checkpoint of a run, or one checkpoint, on suites of inner tasks.

    It ends when its run does: see `once`, `until_step` and `idle_timeout`; or with Ctrl-C, which loses nothing.

    Args:
      location: A run's folder, or a checkpoint.
      suites: Folders, `.gin` files, or names of shipped ones.
      progress: What is told while it runs; None: in a notebook a display, elsewhere nothing is shown.
      options: Those of `lobench watch`, by the names of the fields of `WatchSettings`: `once=True`,
        `checkpoints="all"`, `sinks=("tensorboard",)`.
    Raises:
      LobenchError: usage, an unwritable or busy store, a suite that cannot be collected, no checkpoint at all.
    """
    return run_watch(WatchSettings(location=str(location), suites=texts(suites), **options), progress)


def run_watch(settings: WatchSettings, progress: WatchProgress | None = None) -> Watched:
    """Does what `watch` does."""
    progress = progress or default_progress()
    return run_rounds(settings, progress, before_first=lambda: _wait_for(settings, progress))


def expected_costs(settings: WatchSettings, progress: WatchProgress | None = None) -> Costs:
    """Returns what one checkpoint would cost, from recorded durations; writes nothing.

    Raises:
      LobenchError: there is nothing at the location, or the suites cannot be collected.
    """
    settings = settings.found()
    manager = components_of(settings, progress or SilentProgress()).manager
    max_cores = num_workers(settings.workers)
    _require_location(settings)
    store = settings.store_folder
    # Machines elsewhere may be wider than this one.
    widest = max_cores if settings.executor == "local" or settings.workers != "auto" else math.inf
    return costs_of(worker_config(settings, manager, store), store, max_cores=max_cores, widest=widest)


def _require_location(settings: WatchSettings) -> None:
    if not _is_there(settings):
        raise UsageError(
            "there is nothing here", where=settings.location, next_step="without --once, watch waits for it"
        )


def _wait_for(settings: WatchSettings, progress: WatchProgress) -> None:
    """Waits until the location exists; says so, once. With `once` it must exist already."""
    if settings.once:
        _require_location(settings)
    elif not _is_there(settings):
        progress.log(f"{settings.location} does not exist yet; waiting for it")
        while not _is_there(settings):
            time.sleep(0.5)


def _is_there(settings: WatchSettings) -> bool:
    """Whether there is something at a location; a plugin's source alone knows a place with a scheme of its own."""
    is_own = settings.source in ("directory", "population")
    return bool(path_of(settings.location).exists()) if is_own or "://" not in settings.location else True
