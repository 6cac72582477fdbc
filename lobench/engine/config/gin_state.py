"""gin's global state: isolated for one case at a time, and the bindings that a configurable reaches.

A configurable reaches another one by a reference or a macro, in a scope that may change on the way.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import gin.config as gin_config

from lobench.core.configurables import USER_CONFIGURABLES
from lobench.engine.config.syntax import last_name, leaf_values

__all__ = [
    "BINDINGS",
    "CONFIGURABLES",
    "IMPORTS",
    "ReachedBinding",
    "binding_scope_of",
    "bindings_in",
    "bindings_reached_from",
    "enclosing_scopes",
    "forget_configurables",
    "isolated_gin",
    "may_bind",
    "might_have_parameter",
    "names_in_keys",
    "task_lines",
]

# gin's private tables: values by (scope, selector) and parameter, and registered configurables. gin modifies both in
# place.
BINDINGS: dict[tuple[str, str], dict[str, Any]] = gin_config._CONFIG
CONFIGURABLES = gin_config._REGISTRY
might_have_parameter = gin_config._might_have_parameter
# Modules that the gin text of the current configuration imports.
IMPORTS: set[str] = set()

# Held while gin's state is replaced, because a notebook may have several threads.
_LOCK = threading.RLock()
_GIN_TABLES = ("_CONFIG", "_OPERATIVE_CONFIG", "_IMPORTS", "_SINGLETONS")
_NON_TASK_PREFIXES = ("lobench.Case.", "expect.")


@contextlib.contextmanager
def isolated_gin(*paths: str) -> Iterator[None]:
    """Runs the body with an empty gin configuration and `paths` importable. Restores both afterwards."""
    with _LOCK:
        saved_values = {name: copy.copy(getattr(gin_config, name)) for name in _GIN_TABLES}
        saved_path = list(sys.path)
        saved_imports = set(IMPORTS)
        for name in _GIN_TABLES:
            getattr(gin_config, name).clear()
        IMPORTS.clear()
        was_locked = gin_config._CONFIG_IS_LOCKED
        gin_config._CONFIG_IS_LOCKED = False
        # Folders that are on the path already are added too. The working directory, which is last, may be among them.
        sys.path[:0] = paths
        try:
            yield
        finally:
            for name, value in saved_values.items():
                current_value = getattr(gin_config, name)
                current_value.clear()
                current_value.update(value)
            IMPORTS.clear()
            IMPORTS.update(saved_imports)
            gin_config._CONFIG_IS_LOCKED = was_locked
            sys.path[:] = saved_path


def forget_configurables(modules: Collection[str]) -> None:
    """Removes the configurables of modules that this process has dropped. Other modules may define them again."""
    for selector, configurable in list(CONFIGURABLES.items()):
        if configurable.wrapped.__module__ in modules:
            CONFIGURABLES.pop(selector)


def names_in_keys(selectors: Iterable[str]) -> dict[str, str]:
    """Returns the names of configurables in keys (in their canonical lines) by their names in gin.

    A user's configurable is `lobench.Name` in keys, as it was when gin knew it by that name. If lobench itself has a
    configurable of this name, or two of the selectors would get the same name, the whole name is used.

    >>> names_in_keys(["lobench.adam"])
    {'lobench.adam': 'lobench.adam'}
    """
    names = {
        selector: f"lobench.{last_name(selector)}" if selector in USER_CONFIGURABLES else selector
        for selector in selectors
    }
    counts = Counter(names.values())
    return {
        selector: selector if counts[name] > 1 or (name != selector and name in CONFIGURABLES) else name
        for selector, name in names.items()
    }


class ReachedBinding(NamedTuple):
    """Binding as a configurable reads it, in the scope in which the configurable is called.

    Attributes:
      scope: Scope of the call, not necessarily that of the binding.
      key_name: Name of the configurable in canonical lines; see `names_in_keys`.
    """

    scope: str
    selector: str
    key_name: str
    parameter: str
    value: Any

    @property
    def name(self) -> str:
        return f"{self.scope + '/' if self.scope else ''}{self.key_name}.{self.parameter}"

    @property
    def line(self) -> str:
        return f"{self.name} = {self.value!r}"


def bindings_in(scope: str, selector: str) -> dict[str, Any]:
    """Returns the values that gin would supply to a configurable in a scope. Inner scopes take precedence."""
    values: dict[str, Any] = {}
    for outer_scope in enclosing_scopes(scope):
        values.update(_bindings_at(outer_scope, selector))
    return values


def may_bind(selector: str, parameter: str) -> bool:
    """Returns whether gin allows a binding of a configurable's parameter."""
    configurable = CONFIGURABLES[selector]
    return parameter not in (configurable.denylist or ()) and (
        not configurable.allowlist or parameter in configurable.allowlist
    )


def binding_scope_of(reached_binding: ReachedBinding) -> str:
    """Returns the scope in which a reached binding is made: the scope of the call, or one around it."""
    scopes = [
        outer_scope
        for outer_scope in enclosing_scopes(reached_binding.scope)
        if reached_binding.parameter in _bindings_at(outer_scope, reached_binding.selector)
    ]
    return scopes[-1]


def _bindings_at(scope: str, selector: str) -> dict[str, Any]:
    return BINDINGS.get((scope, selector), {})


def enclosing_scopes(scope: str) -> list[str]:
    """Returns a scope and the scopes around it, the outermost first. Their bindings apply in it."""
    scope_parts = scope.split("/") if scope else []
    return ["/".join(scope_parts[:depth]) for depth in range(len(scope_parts) + 1)]


def bindings_reached_from(
    scope: str, selector: str, parameters: Collection[str]
) -> tuple[dict[str, ReachedBinding], set[tuple[str, str]]]:
    """Returns the bindings that parameters of a configurable reach, by line, and their scopes with selectors."""
    bindings = {name: value for name, value in bindings_in(scope, selector).items() if name in parameters}
    collected_bindings: list[tuple[str, str, str, Any]] = []
    selectors: set[tuple[str, str]] = set()
    _collect_reached(scope, selector, bindings, collected_bindings, selectors)
    names = names_in_keys({reached_selector for _, reached_selector, _, _ in collected_bindings})
    reached_bindings = [
        ReachedBinding(inner_scope, reached_selector, names[reached_selector], parameter, value)
        for inner_scope, reached_selector, parameter, value in collected_bindings
    ]
    return {binding.line: binding for binding in reached_bindings}, selectors


def _collect_reached(
    scope: str,
    selector: str,
    bindings: Mapping[str, Any],
    collected_bindings: list[tuple[str, str, str, Any]],
    visited_selectors: set[tuple[str, str]],
) -> None:
    """Appends every binding reached to `collected_bindings`, as (scope, selector, parameter, value).

    A reference with a scope is followed in that scope, any other reference in the scope of its binding.
    """
    for parameter, value in sorted(bindings.items()):
        collected_bindings.append((scope, selector, parameter, value))
        for reference in (item for item in leaf_values(value) if isinstance(item, gin_config.ConfigurableReference)):
            inner_scope = "/".join(reference.scopes) or scope
            inner_selector = reference.configurable.selector
            if (inner_scope, inner_selector) not in visited_selectors:
                visited_selectors.add((inner_scope, inner_selector))
                _collect_reached(
                    inner_scope,
                    inner_selector,
                    bindings_in(inner_scope, inner_selector),
                    collected_bindings,
                    visited_selectors,
                )


def task_lines(scope: str, lines: Iterable[str]) -> list[str]:
    """Returns the lines of a case that concern its task only, without the scope of the case."""
    unscoped_lines = [line.removeprefix(f"{scope}/").replace(f"@{scope}/", "@") for line in lines]
    return [
        line
        for line in unscoped_lines
        if line.startswith("lobench.Case.task ") or not line.startswith(_NON_TASK_PREFIXES)
    ]
