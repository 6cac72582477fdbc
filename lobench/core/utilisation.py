"""Utilisation of cores and devices: measurements, and one line of advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CoreUse", "utilisation_line"]

_MIN_SECONDS = 0.5  # run time below which no advice is given
_IDLE_FRACTION = 0.6  # fraction of its cores below which a block could do with at least one core less
_THRASHING_FRACTION = 0.75  # fraction of a core per worker core, below which having more workers than cores costs time
_IDLE_GPU = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """Cores that the evaluations of one case used in total, without compilation.

    Attributes:
      case: Name of the case.
      num_cpus: `Case.num_cpus`.
      num_gpus: `Case.num_gpus`. Cases on a device are not reported on, because their cores wait for the device.
      wall_seconds, cpu_seconds: Run time and processor time, summed over the evaluations.
    """

    case: str
    num_cpus: int
    num_gpus: float
    wall_seconds: float
    cpu_seconds: float

    @property
    def cores(self) -> float:
        """Mean number of busy cores."""
        return self.cpu_seconds / self.wall_seconds


def utilisation_line(
    uses: Sequence[CoreUse], *, num_workers: int, num_cores: int, gpu_share: float | None = None
) -> str:
    """Returns advice if cores or devices were idle or overcommitted; "" otherwise.

    Args:
      uses: Use of cores by each case.
      num_workers: Number of cores of all workers.
      num_cores: Number of cores of this machine. If workers run on other machines: `num_workers`.
      gpu_share: Mean fraction of the time in which the devices were busy; None if unknown.
    """
    cpu_uses = [use for use in uses if use.num_gpus == 0 and use.wall_seconds >= _MIN_SECONDS and use.cpu_seconds > 0]
    advice = []
    core_seconds = sum(use.wall_seconds * use.num_cpus for use in cpu_uses)
    busy_share = sum(use.cpu_seconds for use in cpu_uses) / core_seconds if core_seconds else 1.0
    if num_workers > num_cores and busy_share < _THRASHING_FRACTION:
        advice.append(
            f"{num_workers} cores of workers on {num_cores}: each had {busy_share:.0%} of a core; "
            f"take --workers {num_cores}"
        )
    # On an overcommitted machine the number of usable cores is unknown.
    elif idle_uses := [use for use in cpu_uses if use.num_cpus > 1 and use.cores < _IDLE_FRACTION * use.num_cpus]:
        worst_use = min(idle_uses, key=lambda use: (use.cores - use.num_cpus) * use.wall_seconds)
        others_text = f" (and {len(idle_uses) - 1} more)" if len(idle_uses) > 1 else ""
        num_cpus_needed = max(1, math.ceil(round(worst_use.cores, 1)))
        advice.append(
            f"{worst_use.case}{others_text} used {worst_use.cores:.1f} of {worst_use.num_cpus} cores; "
            f"bind Case.num_cpus = {num_cpus_needed}, "
            "or give a block more seeds (Case.seed_block)"
        )
    if gpu_share is not None and gpu_share < _IDLE_GPU and any(use.num_gpus > 0 for use in uses):
        advice.append(
            f"the devices were busy {gpu_share:.0%} of the time; give a block more seeds (Case.seed_block), bind a "
            "share (Case.num_gpus = 0.5), or compute checkpoints --together"
        )
    return "; ".join(advice)
