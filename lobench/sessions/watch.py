"""`lobench.watch`: every new checkpoint of a run, evaluated as it comes."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etils import epath

from lobench.core.case import CaseInfo
from lobench.core.cost import CaseCost, checkpoint_cost
from lobench.core.errors import LobenchError, SuiteError, UsageError
from lobench.engine.chief.contract import Progress
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.pool import LocalPool, WorkerConfig
from lobench.engine.workers.protocol import FROM_WORKER, Describe, Described, Failed, Ready
from lobench.hookspecs import Died, Said
from lobench.report.notebook_progress import default_progress
from lobench.report.progress import SilentProgress
from lobench.sessions.named import named_in, worker_config
from lobench.sessions.rounds import Watched, run_rounds
from lobench.sessions.settings import WatchSettings, num_workers, texts

__all__ = ["Costs", "expected_costs", "run_watch", "watch"]

_COLLECT_SECONDS = 600.0


def watch(
    location: str | Path,
    suites: str | Path | Sequence[str | Path],
    *,
    progress: Progress | None = None,
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


def run_watch(settings: WatchSettings, progress: Progress | None = None) -> Watched:
    """Does what `watch` does."""
    progress = progress or default_progress()
    return run_rounds(settings, progress, before_first=lambda: _wait_for(settings, progress))


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one checkpoint costs on each case.

    Attributes:
      max_cores: Cores that workers may take together.
    """

    cases: tuple[CaseCost, ...]
    max_cores: int

    @property
    def num_evaluations(self) -> int:
        return sum(cost.num_evaluations for cost in self.cases)

    @property
    def core_seconds(self) -> float:
        return sum(cost.core_seconds for cost in self.cases)

    @property
    def device_seconds(self) -> float:
        return sum(cost.device_seconds for cost in self.cases)

    @property
    def wall_seconds(self) -> float:
        """At best, once programs are compiled."""
        return max(self.core_seconds / self.max_cores, max(cost.seconds for cost in self.cases))


def expected_costs(settings: WatchSettings, progress: Progress | None = None) -> Costs:
    """Returns what one checkpoint would cost, from recorded durations; writes nothing into a store.

    Raises:
      LobenchError: there is nothing at the location, or the suites cannot be collected.
    """
    settings = settings.found()
    manager = named_in(settings, progress or SilentProgress()).manager
    max_cores = num_workers(settings.workers)
    _require_location(settings)
    store = settings.store_folder
    # Machines elsewhere may be wider than this one.
    widest = max_cores if settings.executor == "local" or settings.workers != "auto" else math.inf
    cases, durations = _collect(worker_config(settings, manager, store)), {}
    if (store / "ledger.sqlite").is_file():
        with Ledger.open(store, read_only=True) as ledger:
            durations = dict(ledger.history(()).durations)
    return Costs(cases=tuple(checkpoint_cost(cases, durations, widest=widest)), max_cores=max_cores)


def _collect(config: WorkerConfig) -> list[CaseInfo]:
    """Collects the suites in a worker of this machine."""
    deadline = time.monotonic() + _COLLECT_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        pool = LocalPool(replace(config, log_folder=Path(folder), compilation_cache=Path(folder)))
        try:
            pool.start(0, 1)
            while time.monotonic() < deadline:
                for heard in pool.wait(1.0):
                    if isinstance(heard, Died):
                        raise LobenchError(f"the worker that collects the suites {heard.message}")
                    match FROM_WORKER.from_bytes(heard.message) if isinstance(heard, Said) else None:
                        case Ready():
                            pool.send(0, Describe().to_bytes())
                        case Described(cases=cases):
                            return list(cases)
                        case Failed(messages=messages):
                            raise SuiteError("; ".join(messages))
        finally:
            pool.close()
    raise SuiteError("the suites were not collected", got=f"nothing after {_COLLECT_SECONDS:g} s")


def _require_location(settings: WatchSettings) -> None:
    if not epath.Path(settings.location).exists():
        raise UsageError(
            "there is nothing here", where=settings.location, next_step="without --once, watch waits for it"
        )


def _wait_for(settings: WatchSettings, progress: Progress) -> None:
    """Waits until the location exists; says so, once. With `once` it must exist already."""
    path = epath.Path(settings.location)
    if settings.once:
        _require_location(settings)
    elif not path.exists():
        progress.say(f"{settings.location} does not exist yet; waiting for it")
        while not path.exists():
            time.sleep(0.5)
