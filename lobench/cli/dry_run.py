"""`lobench watch --dry-run`: what one checkpoint would cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lobench.core.case import CaseInfo
from lobench.core.cost import CaseCost, checkpoint_cost
from lobench.core.errors import LobenchError, SuiteError
from lobench.engine.store.ledger import Ledger
from lobench.engine.workers.pool import LocalPool, WorkerConfig
from lobench.engine.workers.protocol import FROM_WORKER, Describe, Described, Failed, Ready
from lobench.hookspecs import Died, Said

__all__ = ["dry_run"]

_COLLECT_SECONDS = 600.0


def dry_run(config: WorkerConfig, store: Path, *, max_cores: int, widest: float, say: Callable[[str], None]) -> None:
    """Collects the suites in a worker of this machine and says what a checkpoint costs. Nothing is written.

    Args:
      max_cores: Cores that workers may take together.
      widest: Cores that a case can have at most.
    Raises:
      SuiteError: the suites cannot be collected.
    """
    cases = _collect(config)
    durations = {}
    if (store / "ledger.sqlite").is_file():
        ledger = Ledger.open(store, read_only=True)
        try:
            durations = dict(ledger.history(()).durations)
        finally:
            ledger.close()
    costs = checkpoint_cost(cases, durations, widest=widest)
    for cost in sorted(costs, key=lambda cost: -cost.core_seconds):
        say(_line(cost))
    evaluations, total = sum(cost.num_evaluations for cost in costs), sum(cost.core_seconds for cost in costs)
    longest = max(cost.seconds for cost in costs)
    say(f"a checkpoint: {evaluations} evaluations, {total:.3g} core-seconds ({total / 3600:.2g} core-hours)")
    if devices := sum(cost.device_seconds for cost in costs):
        say(f"  and {devices:.3g} device-seconds")
    say(f"on {max_cores} cores: {max(total / max_cores, longest):.3g} s at best, once programs are compiled")


def _line(cost: CaseCost) -> str:
    source = "recorded" if cost.recorded else "estimated"
    blocks = f"{cost.num_evaluations} x {cost.seconds:.3g} s" + (
        f" x {cost.num_cpus} cores" if cost.num_cpus > 1 else ""
    )
    return f"{cost.case.suite}/{cost.case.name}: {blocks}, {source}"


def _collect(config: WorkerConfig) -> list[CaseInfo]:
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
