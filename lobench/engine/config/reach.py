"""Which bindings a configurable reaches, through references, scopes and macros, in gin's current configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import gin.config as gin_state

__all__ = ["bindings_in", "task_lines", "walk"]

_NOT_THE_TASK = ("lobench.Case.", "expect.")


def bindings_in(scope: str, selector: str) -> dict[str, Any]:
    """Returns what gin would supply to a configurable in a scope: outer scopes first, inner ones win."""
    parts = scope.split("/") if scope else []
    found: dict[str, Any] = {}
    for depth in range(len(parts) + 1):
        found.update(gin_state._CONFIG.get(("/".join(parts[:depth]), selector), {}))
    return found


def _references(value: Any) -> Iterator[Any]:
    if isinstance(value, gin_state.ConfigurableReference):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _references(key)
            yield from _references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _references(item)


def walk(scope: str, selector: str, bindings: dict[str, Any], lines: dict[str, None], seen: set[Any]) -> None:
    """Adds a line for every binding reached; a reference with a scope of its own replaces the scope."""
    for parameter, value in sorted(bindings.items()):
        lines.setdefault(f"{scope + '/' if scope else ''}{selector}.{parameter} = {value!r}")
        for reference in _references(value):
            inner_scope = "/".join(reference.scopes) or scope
            inner = reference.configurable.selector
            if (inner_scope, inner) not in seen:
                seen.add((inner_scope, inner))
                walk(inner_scope, inner, bindings_in(inner_scope, inner), lines, seen)


def task_lines(scope: str, lines: Iterable[str]) -> list[str]:
    """Returns what canonical lines of a case say of its task alone, without the scope that the case has."""
    bare = [line.removeprefix(f"{scope}/").replace(f"@{scope}/", "@") for line in lines]
    return [line for line in bare if line.startswith("lobench.Case.task ") or not line.startswith(_NOT_THE_TASK)]
