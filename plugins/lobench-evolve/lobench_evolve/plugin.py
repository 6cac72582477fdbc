"""Declares the command `lobench evolve` and the names of its gin files."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_cli_commands", "lobench_gin_modules"]


@hookimpl
def lobench_cli_commands() -> Iterable[Declaration]:
    summary = "Meta-train theta by a genetic algorithm or evolution strategies."
    return [Declaration(name="evolve", factory="lobench_evolve.cli:evolve", summary=summary)]


@hookimpl
def lobench_gin_modules() -> Iterable[Declaration]:
    modules = ("optimizers", "tasks", "settings")
    return [Declaration(name=f"lobench_evolve.{name}", factory=f"lobench_evolve.{name}:") for name in modules]
