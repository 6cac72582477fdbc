"""Selection strategies: pure functions of a population, an initiator and a seed.

`select(population, initiator, seed)` returns the successor of the initiator. The order of the population does not
matter, NaN never wins, and a tie keeps the initiator. The same strategies serve populations of training runs, genetic
algorithms and the choice of a best checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lobench.core.errors import UsageError
from lobench.core.population.population import Member, Pool, Selection, better, rank
from lobench.core.search.seeded_draws import Draws

__all__ = [
    "Continuation",
    "ExploitExplore",
    "Tournament",
    "Truncation",
    "WinnerTakesAll",
    "exploit_explore",
    "fixed_schedule",
    "pareto",
    "random_search",
    "single_worker",
    "tournament",
    "truncation",
    "winner_takes_all",
]

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """Binary tournament that each member initiates once (Li et al. 2019): the opponent must beat the initiator.

    Attributes:
      pareto: Whether several objectives are compared by Pareto improvement. False: there must be one objective.
      pool: Members from which opponents are drawn. With OWN, each line of descent is an independent search.
    """

    pareto: bool = False
    pool: Pool = Pool.ALL

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        initiating_member, other_members = _split(population, initiator)
        if not self.pareto:
            _require_one_value(initiating_member, *other_members)
        if not other_members:
            return _child(initiating_member)
        opponent = Draws(seed, "opponent").choice(other_members)
        if better(opponent, initiating_member):
            return _child(opponent, initiating_member)
        return _child(initiating_member, opponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """Uniform draw among the best (Such et al. 2017): `count` members, or a share of the population."""

    count: int | None = None
    share: float = 0.2
    pool: Pool = Pool.ALL

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        _split(population, initiator)
        feasible_members = [member for member in rank(population) if member.fitness is not None]
        # Members with minus infinity in their fitness are candidates only if there are no others.
        candidates = [
            member for member in feasible_members if -math.inf not in (member.fitness or ())
        ] or feasible_members
        num_best = self.count if self.count is not None else _num_in_share(self.share, len(population))
        if not candidates:
            return Selection(parent=None)
        return _child(Draws(seed, "parent").choice(candidates[:num_best]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploitExplore:
    """Truncation selection of PBT (Jaderberg et al. 2017): a bad member copies a good one and changes its settings.

    Bad and good members are the worst and the best `share` of the population. All other members continue unchanged. A
    member copies only a member that beats it, so ties continue unchanged.
    """

    share: float = 0.2
    pool: Pool = Pool.NEWEST

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        initiating_member, _ = _split(population, initiator)
        ranked_members = rank(population)
        num_in_share = min(_num_in_share(self.share, len(ranked_members)), max(len(ranked_members) // 2, 1))
        better_members = [member for member in ranked_members[:num_in_share] if better(member, initiating_member)]
        if better_members and initiating_member in ranked_members[-num_in_share:]:
            return _child(Draws(seed, "parent").choice(better_members), initiating_member)
        return _child(initiating_member, explore=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerTakesAll:
    """Winner-takes-all: the best member is the parent of all members that it beats, and continues unchanged.

    The member with the smallest id wins a tie.
    """

    pool: Pool = Pool.NEWEST

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        initiating_member, _ = _split(population, initiator)
        best = rank(population)[0]
        if best == initiating_member:
            return _child(initiating_member, explore=False)
        return _child(best, initiating_member) if better(best, initiating_member) else _child(initiating_member, best)


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """No selection: every member continues unchanged, as in random search or a fixed schedule."""

    pool: Pool = Pool.NONE

    def select(self, population: Sequence[Member], initiator: int, seed: int) -> Selection:
        initiating_member, _ = _split(population, initiator)
        return _child(initiating_member, explore=False)


def _split(population: Sequence[Member], initiator: int) -> tuple[Member, list[Member]]:
    """Returns the initiator, and the others sorted by id so that draws do not depend on the order of the population."""
    other_members = sorted((member for member in population if member.id != initiator), key=lambda member: member.id)
    initiators = [member for member in population if member.id == initiator]
    if len(initiators) != 1:
        raise ValueError(f"the initiator must be in the population once, got {len(initiators)} times: {initiator}")
    return initiators[0], other_members


def _child(parent: Member, partner: Member | None = None, *, explore: bool = True) -> Selection:
    if parent.fitness is None:
        return Selection(parent=None, explore=True)
    return Selection(parent=parent.id, other=partner.id if partner is not None else None, explore=explore)


def _num_in_share(share: float, count: int) -> int:
    return max(1, math.floor(share * count + 1e-9))


def _require_one_value(*members: Member) -> None:
    if any(member.fitness is not None and len(member.fitness) != 1 for member in members):
        raise UsageError(
            "a tournament compares one value", next_step="give the objectives weights, or use the strategy 'pareto'"
        )


# Factories of the hook: `factory(argument)`, with the text after `NAME:` as the argument.


def _factory_without_argument(name: str, strategy: S) -> Callable[[str], S]:
    def make(argument: str) -> S:
        if argument:
            raise UsageError(f"strategy {name!r} takes no argument", got=repr(argument))
        return strategy

    return make


tournament = _factory_without_argument("tournament", Tournament())
pareto = _factory_without_argument("pareto", Tournament(pareto=True))
single_worker = _factory_without_argument("single_worker", Tournament(pool=Pool.OWN))
winner_takes_all = _factory_without_argument("winner_takes_all", WinnerTakesAll())
random_search = _factory_without_argument("random_search", Continuation())
fixed_schedule = _factory_without_argument("fixed_schedule", Continuation())


def truncation(argument: str) -> Truncation:
    if argument.isdecimal() and int(argument) >= 1:
        return Truncation(count=int(argument))
    return Truncation(share=_checked_share("truncation", argument, expected="a count >= 1 or a share in (0, 1)"))


def exploit_explore(argument: str) -> ExploitExplore:
    return ExploitExplore(
        share=_checked_share("exploit_explore", argument, expected="a share in (0, 0.5]", highest=0.5)
    )


def _checked_share(name: str, argument: str, *, expected: str, highest: float = 1.0) -> float:
    if not argument:
        return 0.2
    try:
        share = float(argument)
    except ValueError:
        share = math.nan
    if not (0 < share < 1 and share <= highest):
        raise UsageError(f"strategy {name!r}", got=repr(argument), expected=expected)
    return share
