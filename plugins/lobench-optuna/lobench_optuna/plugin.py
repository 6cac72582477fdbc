"""Hooks of lobench-optuna."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_search_strategies"]


@hookimpl
def lobench_search_strategies() -> Iterable[Declaration]:
    summary = "a sampler of optuna's, optuna.sampler = 'tpe', 'cmaes', 'gp', 'nsgaii', 'qmc' or 'brute_force'"
    return [Declaration(name="optuna", factory="lobench_optuna.optuna_search:optuna_search", summary=summary)]
