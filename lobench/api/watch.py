"""`lobench.watch`: evaluation of every new checkpoint of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from lobench.api.components import components_of, worker_config
from lobench.api.dry_run import Costs, costs_of
from lobench.api.engine_run import WatchOutcome, run_rounds
from lobench.api.settings import WatchKeywords, WatchSettings, as_texts, num_workers
from lobench.core.errors import UsageError
from lobench.core.settings_field import check_keywords, settings_from
from lobench.engine.checkpoints.files import exists
from lobench.engine.checkpoints.places import checkpoint_path
from lobench.engine.chief.interfaces import WatchProgress
from lobench.engine.paths import similar_path_advice
from lobench.engine.retries import retried
from lobench.report.live.notebook_progress import default_progress
from lobench.report.live.progress import SilentProgress

__all__ = ["expected_costs", "run_watch", "watch"]


def watch(
    location: str | Path,
    suites: str | Path | Sequence[str | Path],
    *,
    progress: WatchProgress | None = None,
    **options: Unpack[WatchKeywords],
) -> WatchOutcome:
    """Evaluates every new checkpoint of a run, or one checkpoint, on suites of inner tasks.

    It returns when the run ends (see `once`, `until_step` and `idle_timeout`), or after Ctrl-C, which loses nothing.

    Example:
        watched = lobench.watch("runs/today", "quick", once=True, checkpoints="all")
        watched.ending.num_checkpoints

    Args:
      location: A run's folder, or a checkpoint.
      suites: Suite folders, `.gin` files, or names of shipped suites.
      progress: Receives progress events. None: a live display in notebooks, nothing elsewhere.
      options: Options of `lobench watch`, named as the fields of `WatchSettings`, such as `once=True`,
        `checkpoints="all"`, `sinks=("tensorboard",)`.
    Raises:
      LobenchError: Wrong usage, a store that is busy or not writable, a suite that cannot be collected, or no
        checkpoint.

    >>> watched = lobench.watch("run", "quadratic.gin", once=True, checkpoints="all")
    >>> watched.ending.outcomes[lobench.Outcome.PASSED]
    3
    """
    check_keywords("watch", options, WatchKeywords)
    return run_watch(settings_from(WatchSettings, options, location=str(location), suites=as_texts(suites)), progress)


def run_watch(settings: WatchSettings, progress: WatchProgress | None = None) -> WatchOutcome:
    """Runs a watch with settings; see `watch`."""
    progress = progress or default_progress()
    return run_rounds(settings, progress, before_first=lambda: _wait_for_location(settings, progress))


def expected_costs(settings: WatchSettings, progress: WatchProgress | None = None) -> Costs:
    """Returns the expected cost of one checkpoint, from recorded durations. Writes nothing.

    Raises:
      LobenchError: There is nothing at the location, or the suites cannot be collected.
    """
    settings = settings.resolved()
    manager = components_of(settings, progress or SilentProgress()).manager
    max_cores = num_workers(settings.workers)
    _require_location(settings)
    store = settings.store_folder
    # Other machines may have more cores than this one.
    max_cores_of_worker = max_cores if settings.executor == "local" or settings.workers != "auto" else math.inf
    is_inline = settings.executor == "inline"
    config = worker_config(settings, manager, store, with_tests=True)
    return costs_of(config, store, max_cores=max_cores, widest=max_cores_of_worker, is_inline=is_inline)


def _require_location(settings: WatchSettings) -> None:
    if not _location_exists(settings):
        advice = similar_path_advice(settings.location) or "without --once, watch waits for it"
        raise UsageError("no such file or folder", where=settings.location, next_step=advice)


def _wait_for_location(settings: WatchSettings, progress: WatchProgress) -> None:
    """Waits until the location exists, with one line of progress. With `once`, it must exist already."""
    if settings.once:
        _require_location(settings)
    elif not _location_exists(settings):
        progress.log(f"{settings.location} does not exist yet; waiting for it")
        while not _location_exists(settings):
            time.sleep(0.5)


def _location_exists(settings: WatchSettings) -> bool:
    """Returns whether the location exists. True for a URL of a plugin, which only the plugin's source can check."""
    is_own = settings.source in ("directory", "population")
    return _exists(settings.location) if is_own or "://" not in settings.location else True


def _exists(location: str) -> bool:
    """Returns whether a location exists.

    Raises:
      OSError: It is inaccessible, or its disk has failed for half a minute.
    """
    return retried(lambda: exists(checkpoint_path(location)), retries_forbidden=False)
