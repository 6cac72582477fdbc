"""The contract of searches, on those that ship and on a wrong one."""

from __future__ import annotations

from lobench.plugins import load_plugins
from lobench.testing.searches import SearchContract


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
