"""`config.gin` of google/learned_optimization's trainer: its learned optimizer, and the module that defines it.

The trainer writes its bindings with the shortest names that are unique in its process, and without imports:
`run_train.lopt = @AdafacMLPLOpt()`.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lobench.engine.config.binding import is_registered, matching_names
from lobench.engine.config.data_imports import check_not_data, import_unless_data
from lobench.engine.config.syntax import (
    Binding,
    Import,
    Macro,
    Reference,
    Statement,
    last_name,
    may_name_same,
    only_bindings,
    references_in,
)

__all__ = [
    "import_optimizer",
    "is_of_learned_optimization",
    "names_in_comments",
    "trained_optimizer",
    "with_original_names",
]

_PACKAGE = "learned_optimization"
# Parameters that may hold the learned optimizer. The first one that is bound counts.
_OPTIMIZER_PARAMETERS = (
    ("eval_chief_config", "learned_opt"),
    ("run_train", "lopt"),
    ("build_gradient_estimators", "learned_opt"),
    ("build_gradient_estimators_fixed", "learned_opt"),
    ("GradientLearner", "meta_init"),
)
_COMMENT = re.compile(r"^# Parameters for (?:[^:]*/)?([\w.]+):$", re.MULTILINE)


def trained_optimizer(statements: Iterable[Statement]) -> Binding | None:
    """Returns the binding that names the learned optimizer, or None."""
    binding_by_target = {_target(binding): binding for binding in only_bindings(statements)}
    return next((binding_by_target[target] for target in _OPTIMIZER_PARAMETERS if target in binding_by_target), None)


def is_of_learned_optimization(statements: Iterable[Statement]) -> bool:
    """Returns whether a configuration was written by google/learned_optimization's trainer."""
    return any(_target(binding) in _OPTIMIZER_PARAMETERS for binding in only_bindings(statements))


def _target(binding: Binding) -> tuple[str, str]:
    return binding.name, binding.parameter


def names_in_comments(text: str) -> tuple[str, ...]:
    """Returns the names in gin's comments `# Parameters for NAME:`, which also list names without bindings."""
    return tuple(_COMMENT.findall(text))


def import_optimizer(statements: Sequence[Statement], optimizer: Binding, comments: Sequence[str]) -> None:
    """Imports the modules that define a learned optimizer and its parts, unless they are imported already.

    A name with a module (`my_lopts.MyLOpt`), in a reference, a binding or a comment, gives the module. Other names are
    looked up in google/learned_optimization, if it is installed.

    Raises:
      ConfigError: A module cannot be imported.
    """
    for name in _reached_names(statements, optimizer):
        short_name = last_name(name)
        selectors = [binding.selector for binding in only_bindings(statements)]
        longer_names = [
            candidate_name
            for candidate_name in (*selectors, *comments)
            if candidate_name.endswith(f".{name}") or candidate_name == name
        ]
        for candidate in sorted({name, *longer_names}, key=len, reverse=True):
            module = candidate.rpartition(".")[0]
            if is_registered(name) or not module:
                continue
            check_not_data(Import(module=module, where=optimizer.where))  # first, since a look-up imports packages
            if _module_exists(module):
                import_unless_data(Import(module=module, where=optimizer.where))
        for module in [] if is_registered(name) else _modules_that_define(short_name):
            if f"{module}.{short_name}".endswith(f".{name}"):
                import_unless_data(Import(module=module, where=optimizer.where))


def _reached_names(statements: Sequence[Statement], optimizer: Binding) -> list[str]:
    """Returns the names that an optimizer refers to, directly and through bindings."""
    names: dict[Reference | Macro, str] = {}
    pending_values = [optimizer.value]
    while pending_values:
        for reference in references_in(pending_values.pop()):
            if reference not in names:
                name = names[reference] = reference.name if isinstance(reference, Macro) else reference.selector
                pending_values += [
                    binding.value for binding in only_bindings(statements) if may_name_same(binding.selector, name)
                ]
    return [name for reference, name in names.items() if isinstance(reference, Reference)]


def _module_exists(module: str) -> bool:
    """Returns whether a module exists. True also if the lookup fails, because its import then reports the reason."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError as error:
        return not f"{module}.".startswith(f"{error.name}.")
    except Exception:  # noqa: BLE001  (the package around it runs its own code)
        return True


def _modules_that_define(name: str) -> list[str]:
    """Returns the modules of the installed package whose text registers a name with gin. Imports none of them."""
    spec = importlib.util.find_spec(_PACKAGE)
    definition = re.compile(rf"^@gin\.(?:configurable|register)\b.*\n(?:@.*\n)*(?:class|def) {re.escape(name)}\b", re.M)
    modules = []
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(root).rglob("*.py")):
            if not path.name.endswith("_test.py") and definition.search(
                path.read_text(encoding="utf-8", errors="replace")
            ):
                modules.append(".".join((_PACKAGE, *path.relative_to(root).with_suffix("").parts)))
    return modules if len(modules) == 1 else []


def with_original_names(statement: Binding) -> Binding:
    """Returns a binding with names of google/learned_optimization, for names that other packages also register."""
    return replace(
        statement, selector=_original_selector(statement.selector), value=_with_original_selectors(statement.value)
    )


def _with_original_selectors(value: Any) -> Any:
    if isinstance(value, Reference):
        scope, slash, selector = value.scoped_selector.rpartition("/")
        return replace(value, scoped_selector=f"{scope}{slash}{_original_selector(selector)}")
    if isinstance(value, dict):
        return {_with_original_selectors(key): _with_original_selectors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_original_selectors(item) for item in value)
    return value


def _original_selector(selector: str) -> str:
    full_names = matching_names(selector)
    package_names = [name for name in full_names if name.startswith(f"{_PACKAGE}.")]
    return package_names[0] if len(full_names) > 1 and len(package_names) == 1 else selector
