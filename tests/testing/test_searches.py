"""The contract of searches, on those that ship and on a wrong one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from lobench.core.search.search import Trial
from lobench.core.search.space import Space, Value
from lobench.plugins import load_plugins
from lobench.testing.searches import SearchContract, sample_spaces


class TestRandom(SearchContract):
    factory = "lobench.core.search.search:Random"


class TestGrid(SearchContract):
    factory = "lobench.core.search.search:Grid"
    may_repeat = False


class TestIteratedGrid(SearchContract):
    factory = "lobench.core.search.iterated_grid:IteratedGrid"
    may_repeat = False


class TestAutoIteratedGrid(SearchContract):
    factory = "lobench.core.search.iterated_grid:AutoIteratedGrid"
    may_repeat = False
    may_end_early = True


def test_each_that_ships_has_a_contract() -> None:
    contracts = (TestRandom, TestGrid, TestIteratedGrid, TestAutoIteratedGrid)
    found = load_plugins().declarations("lobench_search_strategies").values()
    shipped = {each.declaration.factory for each in found if each.plugin.startswith("lobench.")}
    assert shipped == {contract.factory for contract in contracts}


_COUNTER = itertools.count()


class Counting:
    """Proposes another value each time that it is asked: what a generator that lives outside of the seed would do."""

    def size(self, space: Space) -> int | None:
        return None

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        left = (num_trials or 0) - len(history)
        return [space.active(space.sample(next(_COUNTER))) for _ in range(min(left, width))]


class Endless(Counting):
    """Proposes for ever, and what is outside of the domain."""

    def next_wave(
        self, space: Space, history: Sequence[Trial], *, seed: int, width: int, num_trials: int | None
    ) -> Sequence[Mapping[str, Value]]:
        return [MappingProxyType({"elsewhere.x": len(history)})] * width


@pytest.mark.parametrize("name", sorted(sample_spaces()))
def test_a_wrong_search_fails_it(name: str) -> None:
    space = sample_spaces()[name]

    class Contract(SearchContract):
        factory = f"{__name__}:Counting"

        def make(self, **keywords: object) -> Counting:
            return wrong()

    wrong: type[Counting] = Counting
    for broken in (
        Contract().test_the_same_again,
        Contract().test_killed_after_each_trial_it_proposes_the_same,
        Contract().test_the_order_in_which_trials_are_shown_does_not_matter,
    ):
        with pytest.raises(AssertionError):
            broken(space)
    wrong = Endless
    for broken in (Contract().test_values_are_in_the_domain_and_of_the_active_parameters, Contract().test_it_ends):
        with pytest.raises((AssertionError, KeyError)):
            broken(space)
