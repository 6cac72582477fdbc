"""Code of a bound case: the user's modules that define its task, its tests and its optimizer."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from lobench.core.code_origin import Origin, file_of, origin_of_file
from lobench.engine.config.binding import REGISTERED_ON_USE
from lobench.engine.config.gin_state import CONFIGURABLES, ReachedBinding, bindings_reached_from
from lobench.engine.config.syntax import Import, Statement, binding_text, leaf_values

__all__ = ["modules_imported_for_effects", "reachable_modules", "reachable_texts"]

# "my_package.muon:Muon" or "my_package.Muon", as `torch_optimizer.optimizer` has it.
_CLASS_PATH = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?::[A-Za-z_][\w.]*|\.[A-Za-z_]\w*)")
_OWN_DEPENDENCIES = ("optax", "numpy", "scipy", "sklearn")  # packages of which lobench registers names


def reachable_modules(scope: str, selector: str, parameters: Collection[str]) -> set[str]:
    """Returns the modules of all configurables that the given parameters depend on in gin's current configuration."""
    bindings, selectors = bindings_reached_from(scope, selector, parameters)
    modules = {module for _, name in selectors for module in _defining_modules(name)}
    if any(binding.parameter == "python" and binding.value for binding in bindings.values()):
        return modules  # the class is in another environment, whose content is recorded in `Method.python`
    return modules | {module for binding in bindings.values() for module in _modules_named_in(binding)}


def reachable_texts(scope: str, selector: str, parameters: Collection[str]) -> set[str]:
    """Returns the strings in the bindings that the given parameters depend on, for example paths of files."""
    bindings, _ = bindings_reached_from(scope, selector, parameters)
    return {value for binding in bindings.values() for value in leaf_values(binding.value) if isinstance(value, str)}


def modules_imported_for_effects(statements: Iterable[Statement]) -> set[str]:
    """Returns modules that gin files import but from which they use no name.

    They are imported for side effects, such as replacing a function, so every case and optimizer depends on them.
    """
    all_statements = list(statements)
    imported_modules = {statement.module for statement in all_statements if isinstance(statement, Import)}
    if not imported_modules:
        return set()
    # Names that were registered when another case used them do not count: the result would depend on the order in
    # which a process binds cases.
    texts = [binding_text(statement) for statement in all_statements if not isinstance(statement, Import)]
    names = {
        name: configurable
        for name, configurable in CONFIGURABLES.items()
        if name not in REGISTERED_ON_USE or any(name in text for text in texts)
    }
    # A configurable that `exec` defined may have no module.
    modules_of_names = {configurable.wrapped.__module__ or "" for configurable in names.values()}
    modules_of_names |= {name.rpartition(".")[0] for name in names}
    return {
        name
        for name in imported_modules
        if _is_user_module(name)
        and not any(module_name == name or module_name.startswith(f"{name}.") for module_name in modules_of_names)
    }


def _is_user_module(name: str) -> bool:
    module = sys.modules.get(name)
    file = file_of(module) if module is not None else ""
    return bool(file) and origin_of_file(file) is Origin.USER


def _defining_modules(selector: str) -> Iterator[str]:
    """Yields the modules that define a registered name, including those of wrapped functions."""
    value: Any = CONFIGURABLES.get_match(selector)
    module_name = selector.rpartition(".")[0]
    names = [module_name] if module_name in sys.modules else []
    value = value.wrapped if value is not None else None
    while value is not None:
        names.append(getattr(value, "__module__", None) or "")
        value = getattr(value, "__wrapped__", None) or getattr(value, "func", None)
    yield from (name for name in names if name.partition(".")[0] not in _OWN_DEPENDENCIES)


def _modules_named_in(reached_binding: ReachedBinding) -> Iterator[str]:
    """Yields the modules of classes whose Python paths occur in a value."""
    for value in leaf_values(reached_binding.value):
        if isinstance(value, str) and (match := _CLASS_PATH.fullmatch(value)) is not None:
            yield match[1]
