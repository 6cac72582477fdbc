"""Selection strategies: the contract for each, and what parts one from another."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest
from shown import texts_of

from lobench.core.errors import UsageError
from lobench.core.metric import Direction
from lobench.core.population.population import Member, Objective, Selection, better, oriented, rank, weighted
from lobench.core.population.selection import (
    ExploitExplore,
    Tournament,
    Truncation,
    WinnerTakesAll,
    exploit_explore,
    tournament,
    truncation,
)
from lobench.plugins import load_plugins
from lobench.testing.strategies import StrategyContract

SHOWN = texts_of("core")

STRATEGIES = load_plugins().declarations("lobench_selection_strategies")


class TestTournament(StrategyContract):
    factory = "lobench.core.population.selection:tournament"


class TestPareto(StrategyContract):
    factory = "lobench.core.population.selection:pareto"
    num_objectives = 2


class TestTruncation(StrategyContract):
    factory = "lobench.core.population.selection:truncation"
    argument = "4"


class TestTruncationOfTwoObjectives(StrategyContract):
    factory = "lobench.core.population.selection:truncation"
    argument = "0.5"
    num_objectives = 2


class TestExploitExplore(StrategyContract):
    factory = "lobench.core.population.selection:exploit_explore"


class TestWinnerTakesAll(StrategyContract):
    factory = "lobench.core.population.selection:winner_takes_all"


class TestSingleWorker(StrategyContract):
    factory = "lobench.core.population.selection:single_worker"


class TestFixedSchedule(StrategyContract):
    factory = "lobench.core.population.selection:fixed_schedule"


class TestRandomSearch(StrategyContract):
    factory = "lobench.core.population.selection:random_search"


def members(*values: float | tuple[float, ...] | None) -> list[Member]:
    found = [value if value is None or isinstance(value, tuple) else (value,) for value in values]
    return [Member(id=id, fitness=fitness) for id, fitness in enumerate(found)]


def test_every_declared_strategy_has_its_contract() -> None:
    tested = {
        contract.factory
        for contract in globals().values()
        if isinstance(contract, type) and hasattr(contract, "factory")
    }
    assert {found.declaration.factory for found in STRATEGIES.values()} == tested
    for found in STRATEGIES.values():
        found.load()("")


def test_the_opponent_must_be_better_and_a_tie_keeps_the_initiator() -> None:
    assert Tournament().select(members(1.0, 2.0), 0, seed=0) == Selection(parent=1, other=0)
    assert Tournament().select(members(1.0, 1.0), 0, seed=0) == Selection(parent=0, other=1)
    assert Tournament().select(members(1.0, None), 1, seed=0) == Selection(parent=0, other=1)


def test_pareto_improvement() -> None:
    pareto = Tournament(pareto=True)
    assert pareto.select(members((0.0, 1.0), (1.0, 0.0)), 0, seed=0).parent == 0
    assert pareto.select(members((1.0, 0.0), (1.0, 1.0)), 0, seed=0).parent == 1
    with pytest.raises(UsageError, match=SHOWN["compares-one-value"]):
        Tournament().select(members((0.0, 1.0), (1.0, 0.0)), 0, seed=0)


@pytest.mark.parametrize("size", [2, 6])
def test_children_of_a_rank_in_a_complete_generation(size: int) -> None:
    """2 (N - r) / (N - 1), exactly, when each opponent is met once."""
    population = members(*map(float, range(size, 0, -1)))
    expected = Counter[int]()
    strategy = Tournament()
    for initiator in range(size):
        met: dict[int | None, int] = {}
        seed = 0
        while len(met) < size - 1:
            selection = strategy.select(population, initiator, seed)
            opponent = selection.other if selection.parent == initiator else selection.parent
            met.setdefault(opponent, selection.parent if selection.parent is not None else -1)
            seed += 1
        expected.update(met.values())
    children = {rank: Fraction(expected[rank], size - 1) for rank in range(size)}
    assert children == {rank: Fraction(2 * (size - rank - 1), size - 1) for rank in range(size)}


def test_opponents_are_drawn_uniformly() -> None:
    population = members(0.0, 1.0, 2.0, 3.0, 4.0)
    counts = Counter(Tournament().select(population, 0, seed).parent for seed in range(4000))
    assert set(counts) == {1, 2, 3, 4}
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 16.3  # chi-squared, 3 degrees, p = 0.001


def test_truncation_draws_among_the_best_only() -> None:
    population = members(0.0, 5.0, -math.inf, 4.0, None, 3.0)
    assert {Truncation(count=2).select(population, 0, seed).parent for seed in range(50)} == {1, 3}
    assert {Truncation(share=0.5).select(population, 0, seed).parent for seed in range(50)} == {1, 3, 5}
    # A count beyond those that are whole does not reach those that broke.
    assert {Truncation(count=6).select(population, 0, seed).parent for seed in range(99)} == {0, 1, 3, 5}


def test_exploit_and_explore() -> None:
    population = members(*map(float, range(10)))
    strategy = ExploitExplore()
    assert {strategy.select(population, 0, seed).parent for seed in range(50)} == {8, 9}
    assert strategy.select(population, 1, 0).explore
    assert strategy.select(population, 2, 0) == Selection(parent=2, explore=False)
    # The trap: equals go on for ever.
    assert strategy.select(members(0.3, 0.3), 0, 0) == Selection(parent=0, explore=False)
    assert strategy.select(members(0.3, 0.3), 1, 0) == Selection(parent=1, explore=False)


def test_the_winner_takes_all_and_stays_as_it_is() -> None:
    population = members(1.0, 3.0, 2.0)
    assert [WinnerTakesAll().select(population, id, 0) for id in range(3)] == [
        Selection(parent=1, other=0),
        Selection(parent=1, explore=False),
        Selection(parent=1, other=2),
    ]


def test_fitness_is_oriented_and_nan_is_the_worst() -> None:
    objectives = [Objective(metric="loss", direction=Direction.MIN), Objective(metric="acc", direction=Direction.MAX)]
    assert oriented({"loss": 2.0, "acc": 0.5, "other": 9.0}, objectives) == (-2.0, 0.5)
    assert oriented({"loss": math.nan, "acc": math.nan}, objectives) == (-math.inf, -math.inf)
    with pytest.raises(UsageError, match=SHOWN["metric-of-the-fitness-is"]):
        oriented({"loss": 1.0}, objectives)
    assert weighted((-2.0, 0.5), objectives) == (-1.5,)
    assert weighted((-math.inf, math.inf), objectives) == (-math.inf,)


def test_rank() -> None:
    assert [member.id for member in rank(members(0.0, None, 2.0, -math.inf, 2.0))] == [2, 4, 0, 3, 1]
    fronts = members((1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (2.0, 2.0), None)
    assert [member.id for member in rank(fronts)] == [3, 0, 1, 2, 4]
    assert not better(fronts[0], fronts[1]) and not better(fronts[1], fronts[0])


@pytest.mark.parametrize("argument", ["0", "1.5", "-1", "x", "nan"])
def test_a_bad_argument_is_refused(argument: str) -> None:
    with pytest.raises(UsageError, match=SHOWN["strategy-truncation-got"]):
        truncation(argument)
    with pytest.raises(UsageError, match=SHOWN["strategy-exploit-explore-got"]):
        exploit_explore(argument)
    with pytest.raises(UsageError, match=SHOWN["strategy-tournament-takes-no-argument"]):
        tournament(argument)
