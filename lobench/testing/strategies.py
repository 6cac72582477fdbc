"""Contract of selection strategies: a plugin's test module subclasses `StrategyContract`.

class TestMyStrategy(StrategyContract):
    factory = "mypackage.strategies:my_strategy"
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest

from lobench.core.lazy import loaded
from lobench.core.population.population import Member, Pool
from lobench.core.search.seeded_draws import Draws
from lobench.hookspecs import SelectionStrategy

__all__ = ["StrategyContract", "sample_populations"]


def sample_populations(num_objectives: int = 1) -> Iterator[list[Member]]:
    """Yields populations of 1 to 14 members with ties, NaN (as minus infinity), infinities and infeasible members."""
    values = (-math.inf, -1.0, 0.0, 0.0, 0.5, 2.0, math.inf)
    for index in range(60):
        draws = Draws(index, "population")
        members = [
            Member(
                id=3 * index + 1,
                fitness=None if draws.chance(0.2) else tuple(draws.choice(values) for _ in range(num_objectives)),
            )
            for index in range(1 + draws.below(14))
        ]
        yield members
    yield [Member(id=id, fitness=None) for id in range(4)]
    yield [Member(id=id, fitness=(-math.inf,) * num_objectives) for id in range(4)]
    yield [Member(id=id, fitness=(1.0,) * num_objectives) for id in range(4)]


class StrategyContract:
    """Tests that every selection strategy must pass.

    Attributes:
      factory: "module:attribute", as in the strategy's declaration.
      argument: Text that a user would write after `NAME:`.
      num_objectives: Number of values in a fitness.
    """

    factory: ClassVar[str]
    argument: ClassVar[str] = ""
    num_objectives: ClassVar[int] = 1

    @pytest.fixture
    def strategy(self) -> SelectionStrategy:
        strategy: SelectionStrategy = loaded(self.factory)(self.argument)
        return strategy

    def situations(self) -> Iterator[tuple[list[Member], Member, int]]:
        """Yields (population, initiator, seed)."""
        for seed, population in enumerate(sample_populations(self.num_objectives)):
            for initiator in population:
                yield population, initiator, seed

    def test_it_names_its_pool(self, strategy: SelectionStrategy) -> None:
        assert isinstance(strategy.pool, Pool)

    def test_it_answers_with_members(self, strategy: SelectionStrategy) -> None:
        for population, initiator, seed in self.situations():
            selection = strategy.select(population, initiator.id, seed)
            ids = {member.id for member in population}
            assert selection.parent is None or selection.parent in ids
            assert selection.other is None or selection.other in ids - {selection.parent}

    def test_the_same_again_and_in_any_order(self, strategy: SelectionStrategy) -> None:
        for population, initiator, seed in self.situations():
            expected = strategy.select(population, initiator.id, seed)
            orders: Sequence[Sequence[Member]] = [population[::-1], *itertools.islice(_rotations(population), 3)]
            for order in orders:
                assert strategy.select(order, initiator.id, seed) == expected

    def test_it_looks_and_changes_nothing(self, strategy: SelectionStrategy) -> None:
        for population, initiator, seed in self.situations():
            population_copy = list(population)
            strategy.select(population_copy, initiator.id, seed)
            assert population_copy == population, "it changes the population that it is shown"

    def test_parents_are_no_worse_than_the_population(self, strategy: SelectionStrategy) -> None:
        """This holds on average over seeds and initiators. The worst of twelve members succeeds only itself."""
        parents: list[float] = []
        for seed in range(40):
            ranks = [float(rank) for rank in np.random.default_rng(seed).permutation(12)]
            population = [Member(id=5 * id + 2, fitness=(rank,) * self.num_objectives) for id, rank in enumerate(ranks)]
            for initiator in population:
                parent = strategy.select(population, initiator.id, seed).parent
                assert parent is not None
                fitness = _member(population, parent).fitness
                assert fitness is not None and initiator.fitness is not None
                assert fitness[0] > 0 or initiator.fitness[0] == 0, "the worst member becomes the parent"
                parents.append(fitness[0])
        assert sum(parents) / len(parents) >= 5.5, "worse members become parents more often than better ones"

    def test_an_infeasible_member_is_no_parent(self, strategy: SelectionStrategy) -> None:
        for population, initiator, seed in self.situations():
            selection = strategy.select(population, initiator.id, seed)
            assert selection.parent is None or _member(population, selection.parent).fitness is not None
            if initiator.fitness is not None:
                assert selection.parent is not None, "a feasible initiator leaves a child"

    def test_nan_never_wins(self, strategy: SelectionStrategy) -> None:
        for population, initiator, seed in self.situations():
            if initiator.fitness is None or -math.inf in initiator.fitness:
                continue
            parent = strategy.select(population, initiator.id, seed).parent
            assert parent is not None and -math.inf not in (_member(population, parent).fitness or ())

    def test_alone_it_succeeds_itself(self, strategy: SelectionStrategy) -> None:
        only_member = Member(id=7, fitness=(1.0,) * self.num_objectives)
        assert strategy.select([only_member], 7, 0).parent == 7


def _member(population: Sequence[Member], id: int) -> Member:
    return next(member for member in population if member.id == id)


def _rotations(population: list[Member]) -> Iterator[list[Member]]:
    for start in range(1, len(population)):
        yield population[start:] + population[:start]
