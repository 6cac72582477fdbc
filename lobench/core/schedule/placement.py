"""Placement: whether a worker of a size fits on a machine with the other workers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from lobench.core.schedule.events import Size

__all__ = ["has_place"]

_TOLERANCE = 1e-9


def has_place(machines: Counter[Size], workers: Counter[Size], size: Size) -> bool:
    """Returns whether a worker of a size fits on a machine for every placement of all other workers.

    True if either of two sufficient bounds holds, so it may be False although there is room.

    Args:
      machines: Number of machines per size. Empty: a single machine of unknown size.
      workers: Number of workers per size, including the one in question.
      size: Size of the worker in question.
    """
    other_workers = workers.copy()
    other_workers[size] -= 1
    usable_machines = {machine: count for machine, count in machines.items() if _num_places(machine, size)}
    if not machines:
        return True
    num_used = sum(count * _num_places_used(worker_size, size) for worker_size, count in other_workers.items())
    num_places = sum(count * _num_places(machine, size) for machine, count in usable_machines.items())
    if num_places > num_used:
        return True
    num_cores = sum(count * worker_size.num_cpus for worker_size, count in other_workers.items())
    num_full = _num_full(
        ((machine.num_cpus - size.num_cpus + 1, count) for machine, count in usable_machines.items()), num_cores
    )
    if size.num_gpus:
        is_share = size.num_gpus < 1
        num_devices = math.fsum(
            count * (worker_size.num_gpus if is_share else math.ceil(worker_size.num_gpus))
            for worker_size, count in other_workers.items()
        )
        costs = (
            (
                machine.num_gpus * (1 - size.num_gpus) + _TOLERANCE
                if is_share
                else machine.num_gpus - size.num_gpus + 1,
                count,
            )
            for machine, count in usable_machines.items()
        )
        num_full += _num_full(costs, num_devices)
    return num_full < sum(usable_machines.values())


def _num_places(machine: Size, size: Size) -> int:
    """Returns the number of workers of a size that fit on an empty machine. A share is never split over two devices."""
    limit_by_cores = machine.num_cpus // size.num_cpus
    if not size.num_gpus:
        return limit_by_cores
    if size.num_gpus < 1:
        return min(limit_by_cores, int(machine.num_gpus) * int(1 / size.num_gpus + _TOLERANCE))
    return min(limit_by_cores, int(machine.num_gpus / size.num_gpus + _TOLERANCE))


def _num_places_used(other_size: Size, size: Size) -> int:
    """Returns an upper bound on the places for workers of `size` that another worker occupies."""
    places_by_cores = math.ceil(other_size.num_cpus / size.num_cpus)
    if not size.num_gpus:
        return places_by_cores
    return max(places_by_cores, math.ceil(other_size.num_gpus / size.num_gpus - _TOLERANCE))


def _num_full(costs: Iterable[tuple[float, int]], budget: float) -> int:
    """Returns the largest number of machines that can be filled with a budget.

    Args:
      costs: Cost of filling a machine, and the number of machines with this cost.
      budget: Sum of all costs that can be paid.
    """
    num_full = 0
    for cost, count in sorted(costs):
        num_filled = min(int(budget / cost), count)
        budget -= num_filled * cost
        num_full += num_filled
        if num_filled < count:
            break
    return num_full
