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
    "pareto": "the same; the opponent wins only if no worse in every objective and better in one",
    "truncation": "truncation[:COUNT|SHARE]: the parent is drawn among the best (default: 0.2 of all)",
    "exploit_explore": "exploit_explore[:SHARE]: the worst share copies the best and explores, others go on (0.2)",
    "winner_takes_all": "the best is everybody's parent",
    "single_worker": "each line of descent keeps the better of its last two",
    "fixed_schedule": "everybody goes on; parameters follow a given schedule",
    "random_search": "everybody goes on with its first parameters",
}

_SEARCHES = {
    "random": ("search:Random", "each trial is drawn by its number alone, from the prior of each parameter"),
    "grid": ("search:Grid", "every combination of the parameters' values"),
    "ic_grid": (
        "iterated_grid:IteratedGrid",
        "one parameter after another varies over its values and stays at its best",
    ),
    "auto_ic_grid": (
        "iterated_grid:AutoIteratedGrid",
        "the same once; then the parameter that mattered most varies again, closer around the best",
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
            name="latest", factory=f"{module}:latest", summary="the newest when a worker is free; skips others"
        ),
        Declaration(name="all", factory=f"{module}:every_checkpoint", summary="every checkpoint, in order"),
        Declaration(name="every", factory=f"{module}:every_nth", summary="every:N: each Nth, and the last of all"),
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
