"""Utilisation of cores and devices: measurements, and one line of advice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CoreUse", "utilisation_line"]

_LEAST_SECONDS = 0.5  # of running, below which nothing is said
_IDLE = 0.6  # of its cores that a block has to use; rounding up what it uses then saves a core at least
_THRASHING = 0.75  # of a core that each core's work gets, below which more workers than cores cost time
_IDLE_GPU = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreUse:
    """What the evaluations of one case used together, compilation excepted.

    Attributes:
      num_cpus: `Case.num_cpus`.
      num_gpus: `Case.num_gpus`; the cores of a case on a device wait for it, and nothing is said of them.
      wall_seconds, cpu_seconds: Of running, summed over the evaluations.
    """

    case: str
    num_cpus: int
    num_gpus: float
    wall_seconds: float
    cpu_seconds: float

    @property
    def cores(self) -> float:
        """Cores that were busy, on average."""
        return self.cpu_seconds / self.wall_seconds


def utilisation_line(uses: Sequence[CoreUse], *, num_workers: int, num_cores: int, gpu: float | None = None) -> str:
    """Returns where cores or devices stood idle, or were fought for, and what to bind instead; "" where they did not.

    Args:
      uses: By case.
      num_workers: Cores that workers were given together.
      num_cores: Those of the machine; workers elsewhere have their own: as many as workers then.
      gpu: Mean share of the time in which the devices were busy; None where it is not known.
    """
    of_cores = [use for use in uses if use.num_gpus == 0 and use.wall_seconds >= _LEAST_SECONDS and use.cpu_seconds > 0]
    parts = []
    given = sum(use.wall_seconds * use.num_cpus for use in of_cores)
    had = sum(use.cpu_seconds for use in of_cores) / given if given else 1.0
    if num_workers > num_cores and had < _THRASHING:
        parts.append(
            f"{num_workers} cores of workers on {num_cores}: each had {had:.0%} of a core; take --workers {num_cores}"
        )
    # On a busy machine nobody has a core of its own: what could be used there is not known.
    elif idle := [use for use in of_cores if use.num_cpus > 1 and use.cores < _IDLE * use.num_cpus]:
        worst = min(idle, key=lambda use: (use.cores - use.num_cpus) * use.wall_seconds)
        more = f" (and {len(idle) - 1} more)" if len(idle) > 1 else ""
        fits = max(1, math.ceil(round(worst.cores, 1)))
        parts.append(
            f"{worst.case}{more} used {worst.cores:.1f} of {worst.num_cpus} cores; bind Case.num_cpus = {fits}, "
            "or give a block more seeds (Case.seed_block)"
        )
    if gpu is not None and gpu < _IDLE_GPU and any(use.num_gpus > 0 for use in uses):
        parts.append(
            f"the devices were busy {gpu:.0%} of the time; give a block more seeds (Case.seed_block), bind a share "
            "(Case.num_gpus = 0.5), or compute checkpoints --together"
        )
    return "; ".join(parts)
