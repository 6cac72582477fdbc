"""Built-in declarations: gin modules, admission policies and selection strategies."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = [
    "lobench_admission_policies",
    "lobench_gin_modules",
    "lobench_search_strategies",
    "lobench_selection_strategies",
]

_STRATEGIES = {
    "tournament": "each member meets an opponent; the better one is the parent (initiator-based, one objective)",
    "pareto": "tournament of several objectives: an opponent wins if no worse in any and better in one",
    "truncation": "truncation[:COUNT|SHARE]: the parent is drawn among the best (default: 0.2 of all)",
    "exploit_explore": "exploit_explore[:SHARE]: the worst share copies the best and explores, others continue (0.2)",
    "winner_takes_all": "the best member is the parent of all",
    "single_worker": "each member keeps the better of its last two parameter sets",
    "fixed_schedule": "no selection; parameters follow a given schedule",
    "random_search": "no selection; members keep their first parameters",
}

_SEARCHES = {
    "random": ("search:Random", "random settings, drawn from the prior of each parameter"),
    "grid": ("search:Grid", "all combinations of the parameters' values"),
    "ic_grid": (
        "iterated_grid:IteratedGrid",
        "coordinate descent: varies one parameter after another, and sets each to its best value",
    ),
    "auto_ic_grid": (
        "iterated_grid:AutoIteratedGrid",
        "ic_grid once, then further sweeps of the most important parameters around their best values",
    ),
}


@hookimpl
def lobench_gin_modules() -> Iterable[Declaration]:
    modules = ("optimizers", "schedules", "tasks")
    return [Declaration(name=f"lobench.inner.{name}", factory=f"lobench.inner.{name}:") for name in modules]


@hookimpl
def lobench_admission_policies() -> Iterable[Declaration]:
    module = "lobench.core.admission"
    return [
        Declaration(
            name="latest",
            factory=f"{module}:latest",
            summary="each run's newest when a worker is free; skips others",
        ),
        Declaration(name="all", factory=f"{module}:every_checkpoint", summary="every checkpoint, in order"),
        Declaration(name="every", factory=f"{module}:every_nth", summary="every:N: each Nth, and the last one"),
    ]


@hookimpl
def lobench_selection_strategies() -> Iterable[Declaration]:
    module = "lobench.core.population.selection"
    return [
        Declaration(name=name, factory=f"{module}:{name}", summary=summary) for name, summary in _STRATEGIES.items()
    ]


@hookimpl
def lobench_search_strategies() -> Iterable[Declaration]:
    return [
        Declaration(name=name, factory=f"lobench.core.search.{factory}", summary=summary)
        for name, (factory, summary) in _SEARCHES.items()
    ]
