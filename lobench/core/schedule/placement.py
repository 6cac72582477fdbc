"""Placement: whether a worker of a size fits on a machine with the other workers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from lobench.core.schedule.events import Size

__all__ = ["has_place"]

_TINY = 1e-9


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
    num_taken = sum(count * _places_of(worker_size, size) for worker_size, count in other_workers.items())
    num_places = sum(count * _num_places(machine, size) for machine, count in usable_machines.items())
    if num_places > num_taken:
        return True
    cores = sum(count * worker_size.num_cpus for worker_size, count in other_workers.items())
    num_full = _num_full(
        ((machine.num_cpus - size.num_cpus + 1, count) for machine, count in usable_machines.items()), cores
    )
    if size.num_gpus:
        is_share = size.num_gpus < 1
        devices = math.fsum(
            count * (worker_size.num_gpus if is_share else math.ceil(worker_size.num_gpus))
            for worker_size, count in other_workers.items()
        )
        costs = (
            (
                machine.num_gpus * (1 - size.num_gpus) + _TINY if is_share else machine.num_gpus - size.num_gpus + 1,
                count,
            )
            for machine, count in usable_machines.items()
        )
        num_full += _num_full(costs, devices)
    return num_full < sum(usable_machines.values())


def _num_places(machine: Size, size: Size) -> int:
    """Returns the number of workers of a size that fit on an empty machine. A share is never split over two devices."""
    limit_by_cores = machine.num_cpus // size.num_cpus
    if not size.num_gpus:
        return limit_by_cores
    if size.num_gpus < 1:
        return min(limit_by_cores, int(machine.num_gpus) * int(1 / size.num_gpus + _TINY))
    return min(limit_by_cores, int(machine.num_gpus / size.num_gpus + _TINY))


def _places_of(other_size: Size, size: Size) -> int:
    """Returns an upper bound on the places for workers of `size` that another worker occupies."""
    places_by_cores = math.ceil(other_size.num_cpus / size.num_cpus)
    if not size.num_gpus:
        return places_by_cores
    return max(places_by_cores, math.ceil(other_size.num_gpus / size.num_gpus - _TINY))


def _num_full(costs: Iterable[tuple[float, int]], budget: float) -> int:
    """Returns the largest number of machines that can be filled with a budget.

    Args:
      costs: Cost of filling a machine, and the number of machines with this cost.
      budget: Sum of all costs that can be paid.
    """
    num_full = 0
    for cost, count in sorted(costs):
        number = min(int(budget / cost), count)
        budget -= number * cost
        num_full += number
        if number < count:
            break
    return num_full
