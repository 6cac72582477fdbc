"""Cost of a checkpoint and of a watch, in core-seconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lobench.core.case import CaseInfo

__all__ = ["CaseCost", "Usage", "checkpoint_cost"]

_GUESS_SECONDS = 1e-3  # an inner step of one seed, where nothing at all was ever recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """What one case costs for one checkpoint.

    Attributes:
      num_evaluations: Its seed blocks.
      seconds: Of one evaluation, compilation included where it was recorded.
      num_cpus, num_gpus: Held for as long.
      recorded: Whether `seconds` is a measured one.
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
    """Returns what each case costs. One that never ran is estimated from those that did, by inner steps and seeds.

    Args:
      durations: Seconds that an evaluation took, by `CaseInfo.key`.
      widest: Cores that a case can have at most.
    """
    rates = [durations[case.key] / _work(case) for case in cases if durations.get(case.key, 0.0) > 0]
    rate = statistics.median(rates) if rates else _GUESS_SECONDS
    costs = []
    for case in cases:
        measured = durations.get(case.key, 0.0)
        costs.append(
            CaseCost(
                case=case,
                num_evaluations=len(case.blocks()),
                seconds=measured if measured > 0 else rate * _work(case),
                num_cpus=int(min(case.num_cpus, widest)),
                num_gpus=case.num_gpus,
                recorded=measured > 0,
            )
        )
    return costs


def _work(case: CaseInfo) -> float:
    """Inner steps of all seeds of its largest block."""
    return float(case.num_inner_steps * max(block.size for block in case.blocks()))


class Usage:
    """Core-seconds that leases have held, those that run now included.

    Args:
      limit: Core-seconds; `is_over` from there on.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self._limit = limit
        self._ended = 0.0
        self._running: dict[int, tuple[float, int]] = {}  # since when, and cores, by worker

    def begin(self, worker: int, num_cpus: int, now: float) -> None:
        self._running[worker] = (now, num_cpus)

    def end(self, worker: int, now: float) -> None:
        """A worker's lease has ended, however; one that held none changes nothing."""
        since, num_cpus = self._running.pop(worker, (now, 0))
        self._ended += (now - since) * num_cpus

    def core_seconds(self, now: float) -> float:
        return self._ended + math.fsum((now - since) * cores for since, cores in self._running.values())

    def is_over(self, now: float) -> bool:
        return self.core_seconds(now) >= self._limit
