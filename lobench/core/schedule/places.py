"""Placement: whether a worker of a size fits on some machine beside the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from lobench.core.schedule.events import Size

__all__ = ["has_place"]

_TINY = 1e-9


def has_place(machines: Counter[Size], workers: Counter[Size], size: Size) -> bool:
    """Says whether the last one of a size finds a machine, however all the others were given theirs.

    Two bounds, of which one is enough. May say no where there is one: what is where is not known.

    Args:
      machines: How many there are of each kind; none: a single one of which nothing is known.
      workers: All that there are to be, the one in question included.
      size: Of the one in question.
    """
    others = workers.copy()
    others[size] -= 1
    roomy = {machine: count for machine, count in machines.items() if _num_places(machine, size)}
    if not machines:
        return True
    taken = sum(count * _places_of(other, size) for other, count in others.items())
    places = sum(count * _num_places(machine, size) for machine, count in roomy.items())
    if places > taken:
        return True
    cores = sum(count * other.num_cpus for other, count in others.items())
    num_full = _num_full(((machine.num_cpus - size.num_cpus + 1, count) for machine, count in roomy.items()), cores)
    if size.num_gpus:
        is_share = size.num_gpus < 1
        devices = math.fsum(
            count * (other.num_gpus if is_share else math.ceil(other.num_gpus)) for other, count in others.items()
        )
        costs = (
            (
                machine.num_gpus * (1 - size.num_gpus) + _TINY if is_share else machine.num_gpus - size.num_gpus + 1,
                count,
            )
            for machine, count in roomy.items()
        )
        num_full += _num_full(costs, devices)
    return num_full < sum(roomy.values())


def _num_places(machine: Size, size: Size) -> int:
    """Returns how many of a size an empty machine holds; shares of a device do not reach over two."""
    by_cores = machine.num_cpus // size.num_cpus
    if not size.num_gpus:
        return by_cores
    if size.num_gpus < 1:
        return min(by_cores, int(machine.num_gpus) * int(1 / size.num_gpus + _TINY))
    return min(by_cores, int(machine.num_gpus / size.num_gpus + _TINY))


def _places_of(other: Size, size: Size) -> int:
    """Returns how many places for workers of a size another one takes at most."""
    by_cores = math.ceil(other.num_cpus / size.num_cpus)
    if not size.num_gpus:
        return by_cores
    return max(by_cores, math.ceil(other.num_gpus / size.num_gpus - _TINY))


def _num_full(costs: Iterable[tuple[float, int]], budget: float) -> int:
    """Returns how many machines can be filled up at most, the cheapest first.

    Args:
      costs: What it takes to leave no room on a machine, and how many such machines there are.
    """
    num_full = 0
    for cost, count in sorted(costs):
        number = min(int(budget / cost), count)
        budget -= number * cost
        num_full += number
        if number < count:
            break
    return num_full
