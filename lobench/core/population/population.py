"""Population: members with a fitness, dominance, and the answer of a selection strategy.

Fitness is oriented: larger is better in every element, and NaN was replaced by minus infinity. An infeasible member has
no fitness, which is not the same as a NaN.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lobench.core.errors import UsageError
from lobench.core.metric import Direction

__all__ = [
    "Fitness",
    "Member",
    "Objective",
    "Pool",
    "Selection",
    "better",
    "front",
    "oriented",
    "rank",
    "weighted",
]

Fitness = tuple[float, ...]

_SHOWN_METRICS = 12  # metrics that an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A metric to optimize, its direction, and its weight (> 0) in weighted sums.

    >>> Objective(metric="test/loss", direction=Direction.MIN).weight
    1.0
    """

    metric: str
    direction: Direction
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a population.

    Attributes:
      id: Unique in its population.
      fitness: One value per objective, without NaN; larger is better. None for an infeasible member.

    >>> better(Member(id=1, fitness=(2.0,)), Member(id=2, fitness=(1.0,)))
    True
    """

    id: int
    fitness: Fitness | None


class Pool(enum.StrEnum):
    """Members of the last two generations that an asynchronous controller passes to a strategy with the initiator.

    NONE: no members. ALL: all members that succeeded. NEWEST: the newest member of each line of descent. OWN: members
    of the initiator's line of descent.

    >>> [pool.name for pool in Pool]
    ['NONE', 'ALL', 'NEWEST', 'OWN']
    """

    NONE = "none"
    ALL = "all"
    NEWEST = "newest"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Choice of the parent for a new member.

    Attributes:
      parent: Id of the member whose weights and parameters the child inherits. None: no member is feasible, and the
        child starts from scratch.
      other: Id of the member that lost to the parent. Crossover may use its parameters. None if there is none.
      explore: Whether the child's parameters change. False for an elite that is copied.

    >>> Selection(parent=3).explore
    True
    """

    parent: int | None
    other: int | None = None
    explore: bool = True


def oriented(metrics: Mapping[str, float], objectives: Sequence[Objective]) -> Fitness:
    """Returns one value per objective; larger is better, NaN becomes minus infinity.

    Raises:
      UsageError: A metric is missing.

    >>> oriented({"test/loss": 2.0}, [Objective(metric="test/loss", direction=Direction.MIN)])
    (-2.0,)
    """
    missing_metrics = [objective.metric for objective in objectives if objective.metric not in metrics]
    if missing_metrics:
        # Shorter names come first: names of means over cases lack the case that other names begin with.
        names = sorted(metrics, key=lambda name: (len(name), name))
        names_text = ", ".join(names[:_SHOWN_METRICS]) + (
            f", ... ({len(names)} in all)" if len(names) > _SHOWN_METRICS else ""
        )
        raise UsageError("a metric of the fitness is missing", got=names_text, expected=", ".join(missing_metrics))
    signs = (1.0 if objective.direction is Direction.MAX else -1.0 for objective in objectives)
    values = (sign * metrics[objective.metric] for sign, objective in zip(signs, objectives, strict=True))
    return tuple(-math.inf if math.isnan(value) else value for value in values)


def weighted(fitness: Fitness, objectives: Sequence[Objective]) -> Fitness:
    """Returns the weighted sum as a fitness of one value. Infinities of both signs give minus infinity.

    >>> weights = {"a": 1.0, "b": 2.0}
    >>> objectives = [Objective(metric=name, direction=Direction.MAX, weight=weights[name]) for name in weights]
    >>> weighted((3.0, 4.0), objectives)
    (11.0,)
    """
    total = sum(objective.weight * value for objective, value in zip(objectives, fitness, strict=True))
    return (-math.inf if math.isnan(total) else total,)


def better(member: Member, other_member: Member) -> bool:
    """Returns whether `member` beats `other_member`: no worse in every value and better in at least one.

    With one value that is `>`; with several, Pareto improvement. A feasible member beats an infeasible one.

    >>> better(Member(id=1, fitness=(2.0, 0.0)), Member(id=2, fitness=(1.0, 0.0)))
    True
    """
    if member.fitness is None or other_member.fitness is None:
        return member.fitness is not None and other_member.fitness is None
    pairs = list(zip(member.fitness, other_member.fitness, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def front(population: Iterable[Member]) -> list[Member]:
    """Returns the feasible members that no other member beats, by id; with one value, the best and its ties.

    >>> members = [Member(id=1, fitness=(2.0, 0.0)), Member(id=2, fitness=(1.0, 1.0)), Member(id=3, fitness=(0.0, 0.0))]
    >>> [member.id for member in front(members)]
    [1, 2]
    """
    best_members: list[Member] = []
    for member in sorted(population, key=lambda member: member.id):
        if member.fitness is not None and not any(better(best_member, member) for best_member in best_members):
            best_members = [best_member for best_member in best_members if not better(member, best_member)] + [member]
    return best_members


def rank(population: Iterable[Member]) -> list[Member]:
    """Returns the members best first, infeasible ones last; ties by id.

    With several values: front by front. O(n log n) with one value, O(n^2) per front with several.

    >>> [member.id for member in rank([Member(id=1, fitness=(1.0,)), Member(id=2, fitness=(2.0,))])]
    [2, 1]
    """
    members = sorted(population, key=lambda member: member.id)
    if all(member.fitness is None or len(member.fitness) == 1 for member in members):
        return sorted(members, key=lambda member: (member.fitness is not None, member.fitness or ()), reverse=True)
    ranked_members: list[Member] = []
    while best := front(members):
        ranked_members += best
        chosen_ids = {member.id for member in best}
        members = [member for member in members if member.id not in chosen_ids]
    return ranked_members + members
