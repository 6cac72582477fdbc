"""Cost of a checkpoint and of a watch, in core-seconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lobench.core.case import CaseInfo

__all__ = ["CaseCost", "Usage", "checkpoint_cost"]

_GUESS_SECONDS = 1e-3  # guess for an inner step of one seed, if no duration is recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """Cost of one case for one checkpoint.

    Attributes:
      num_evaluations: Number of seed blocks.
      seconds: Seconds per evaluation, including compilation if it was recorded.
      num_cpus, num_gpus: Cores and devices that an evaluation occupies.
      recorded: Whether `seconds` was measured; otherwise it is an estimate.
    """

    case: CaseInfo
    num_evaluations: int
    seconds: float
    num_cpus: int
    num_gpus: float
    recorded: bool

    @property
    def core_seconds(self) -> float:
        return self.num_evaluations * self.seconds * self.num_cpus

    @property
    def device_seconds(self) -> float:
        return self.num_evaluations * self.seconds * self.num_gpus


def checkpoint_cost(cases: Sequence[CaseInfo], durations: Mapping[str, float], *, widest: float) -> list[CaseCost]:
    """Returns the cost of each case. Cases that never ran are estimated from the others, by inner steps and seeds.

    Args:
      cases: Cases of the checkpoint.
      durations: Seconds of an evaluation, by `CaseInfo.key`.
      widest: Largest number of cores that a case can have.
    """
    rates = [durations[case.key] / _num_seed_steps(case) for case in cases if durations.get(case.key, 0.0) > 0]
    rate = statistics.median(rates) if rates else _GUESS_SECONDS
    costs = []
    for case in cases:
        measured_seconds = durations.get(case.key, 0.0)
        costs.append(
            CaseCost(
                case=case,
                num_evaluations=len(case.blocks()),
                seconds=measured_seconds if measured_seconds > 0 else rate * _num_seed_steps(case),
                num_cpus=int(min(case.num_cpus, widest)),
                num_gpus=case.num_gpus,
                recorded=measured_seconds > 0,
            )
        )
    return costs


def _num_seed_steps(case: CaseInfo) -> float:
    """Returns the inner steps of all seeds of the largest block."""
    return float(case.num_inner_steps * max(block.size for block in case.blocks()))


class Usage:
    """Core-seconds used by leases, including running ones.

    Args:
      limit: Number of core-seconds from which on `is_over` is true.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self._limit = limit
        self._ended_core_seconds = 0.0
        self._running: dict[int, tuple[float, int]] = {}  # (start, cores) by worker

    def begin(self, worker: int, num_cpus: int, now: float) -> None:
        self._running[worker] = (now, num_cpus)

    def end(self, worker: int, now: float) -> None:
        """Ends a worker's lease. Does nothing if the worker has none."""
        started_at, num_cpus = self._running.pop(worker, (now, 0))
        self._ended_core_seconds += (now - started_at) * num_cpus

    def core_seconds(self, now: float) -> float:
        return self._ended_core_seconds + math.fsum(
            (now - started_at) * cores for started_at, cores in self._running.values()
        )

    def is_over(self, now: float) -> bool:
        return self.core_seconds(now) >= self._limit
