"""Binding of parsed gin statements in gin's registry, with one-line errors."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import gin
import gin.config

from lobench.core.code_origin import Origin, file_of, origin_of_file
from lobench.core.configurables import USER_CONFIGURABLES
from lobench.core.containment import contain_plugins
from lobench.core.errors import ConfigError, LobenchError, suggestion
from lobench.core.wording import headline
from lobench.engine.config.gin_state import BINDINGS, CONFIGURABLES, IMPORTS, might_have_parameter
from lobench.engine.config.syntax import (
    LOBENCH_NAMES,
    Binding,
    Import,
    Macro,
    Reference,
    Statement,
    last_name,
    only_bindings,
)
from lobench.engine.paths import path_exists
from lobench.engine.retries import retried_briefly

__all__ = [
    "REGISTERED_ON_USE",
    "MisspelledName",
    "UnknownName",
    "bind",
    "bind_all",
    "bind_overrides",
    "complete_selector",
    "default_of_parameter",
    "execute_import",
    "import_modules",
    "import_plugin_modules",
    "is_registered",
    "matching_names",
]


class _NamesOnUse(Protocol):
    """Type of a module's `lobench_on_use`: names registered with gin when a gin file first uses one."""

    summary: str  # a line for `lobench list`

    def names(self) -> list[str]:
        """Returns all names, for suggestions."""

    def find(self, selector: str) -> str | None:
        """Registers the name that ends with `selector`, and returns the full name; None if it is unknown."""


_NAMES_ON_USE: dict[str, _NamesOnUse] = {}  # by module
_SHIPPED_PLUGINS = {"optuna": "lobench-optuna", "torch": "lobench-torch", "torch_optimizer": "lobench-torch"}
REGISTERED_ON_USE: set[str] = set()  # full names registered on use
_NON_USER_PACKAGES = ("lobench", "optax")  # packages that users do not edit to register a name
_FAILED_MODULES: set[str] = set()  # gin modules of plugins that could not be imported
_IMPORTED_MODULES: dict[str, None] = {}  # modules that gin files have imported, in order
_MAX_PARAMETERS = 8  # a longer list of parameters is left out if a similar name is suggested
_GIN_NAMES = ("gin.constant", "gin.macro", "gin.singleton")
_GIN_REGISTERED: set[str] = set()  # full names registered during the import of a gin file


class UnknownName(ConfigError):
    """Error for a name in gin text that does not exist."""


class MisspelledName(UnknownName):
    """Error for a name that is clearly a misspelling of an existing one, so that no import is missing."""


def execute_import(statement: Import) -> None:
    """Executes an import statement, which registers the module's configurables.

    Raises:
      ConfigError: The module cannot be imported.
    """
    is_loaded = statement.module in sys.modules
    old_names = {*dict(CONFIGURABLES.items())}
    try:
        module = retried_briefly(partial(importlib.import_module, statement.module))
    except LobenchError:
        raise
    except (Exception, SystemExit) as error:  # `sys.exit` in a module, too
        raise ConfigError(
            f"cannot import {statement.module!r}",
            where=statement.where,
            got=headline(error),
            next_step="the suite's folder, its parent, an experiment's folder and the installed packages are searched",
        ) from error
    _refuse_namesake(statement)
    _IMPORTED_MODULES[statement.module] = None
    IMPORTS.add(statement.module)
    if not is_loaded:
        _GIN_REGISTERED.update(dict(CONFIGURABLES.items()).keys() - old_names)
    if hasattr(module, "lobench_on_use"):
        _NAMES_ON_USE[statement.module] = module.lobench_on_use


def _refuse_namesake(statement: Import) -> None:
    """Raises ConfigError if an import found another module than the file next to the gin file.

    A process has one module per name: `import random` imports Python's module, and if two suites have a `tasks.py`, the
    second one would be trained on the tasks of the first. A copy of the file is accepted.

    Raises:
      ConfigError: The imported module is a file with other content.
    """
    gin_file = Path(statement.where.rpartition(":")[0])
    module_parts = statement.module.split(".")
    if module_parts[0] == "lobench" or not path_exists(gin_file, kind="file"):
        return
    module_path = gin_file.parent.joinpath(*module_parts)
    neighbours = module_path.with_suffix(".py"), module_path / "__init__.py"
    neighbour = next((file for file in neighbours if path_exists(file, kind="file")), None)
    module_file = getattr(sys.modules[statement.module], "__file__", None) or "a module of Python's own"
    if neighbour is not None and not retried_briefly(
        lambda: Path(module_file).is_file() and _have_same_content(neighbour, Path(module_file))
    ):
        raise ConfigError(
            f"`import {statement.module}` is not {neighbour.relative_to(gin_file.parent)} next to the gin file",
            where=statement.where,
            got=module_file,
            expected="one module of this name in a process",
            next_step=f"rename {neighbour.name}, or evaluate two suites with such a module apart",
        )


def _have_same_content(path: Path, other_path: Path) -> bool:
    return path.samefile(other_path) or path.read_bytes() == other_path.read_bytes()


def is_registered(selector: str) -> bool:
    """Returns whether imported modules have registered this name, or names that end with it."""
    matches = CONFIGURABLES.matching_selectors(selector)
    if any(match not in REGISTERED_ON_USE for match in matches):
        return True
    return "." in selector and bool(_register_on_use(selector) or _configurable_names_of_object(selector))


def matching_names(selector: str) -> list[str]:
    """Returns the full names that a partial name can stand for in the current configuration.

    Names that only other gin files of this process import do not count. Names registered on use have lower precedence.
    `lobench.Name` may be a user's configurable if lobench has no such name.
    """
    names: list[str] = sorted(CONFIGURABLES.matching_selectors(selector))
    module, _, name = selector.rpartition(".")
    if not names and module == "lobench":
        names = sorted(USER_CONFIGURABLES.intersection(CONFIGURABLES.matching_selectors(name)))
    if len(names) > 1:
        names = _reachable_names(names)
    return [name for name in names if name not in REGISTERED_ON_USE and name not in _GIN_NAMES] or names


def _reachable_names(names: Sequence[str]) -> list[str]:
    """Removes names from user modules that the current gin files do not import, directly or indirectly."""
    gin_names = [name for name in names if name in USER_CONFIGURABLES and name in _GIN_REGISTERED]
    if not gin_names:
        return list(names)
    modules_by_name = {name: str(CONFIGURABLES[name].wrapped.__module__) for name in gin_names}
    reached_modules = _reachable_modules(
        IMPORTS, {module_name.partition(".")[0] for module_name in modules_by_name.values()}
    )
    return [name for name in names if name not in modules_by_name or modules_by_name[name] in reached_modules]


def _reachable_modules(modules: Collection[str], packages: Collection[str]) -> set[str]:
    """Returns modules and all modules that they import, following imports in the user's code and the given packages."""
    reached_modules = set[str]()
    pending_modules = list(modules)
    while pending_modules:
        name = pending_modules.pop()
        module = sys.modules.get(name)
        if name in reached_modules or not isinstance(module, ModuleType):
            continue
        if name.partition(".")[0] not in packages and origin_of_file(file_of(module)) is not Origin.USER:
            continue
        reached_modules.add(name)
        for value in list(vars(module).values()):
            module_name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(module_name, str):
                pending_modules.append(module_name)
    return reached_modules


def _known_names() -> list[str]:
    names_on_use = [name for names in _NAMES_ON_USE.values() for name in names.names()]
    registered_names = [selector for selector, _ in CONFIGURABLES.items()]
    return sorted({last_name(selector) for selector in (*registered_names, *names_on_use)})


def complete_selector(selector: str, where: str) -> str:
    """Returns the full name for a partial name, or for a name in Python (`my_package.MyRule`).

    Raises:
      UnknownName: No configurable has this name.
      ConfigError: The name is ambiguous.
    """
    names = matching_names(selector) or _register_on_use(selector) or _configurable_names_of_object(selector)
    if len(names) > 1:
        raise ConfigError(
            f"{selector!r} is ambiguous",
            where=where,
            got=", ".join(names),
            next_step=f"write which one is meant: {' or '.join(map(repr, names))}",
        )
    if not names:
        raise _unknown_name_error(selector, where)
    return names[0]


def _target_selector(binding: Binding) -> str:
    """Returns the full name of the configurable that a binding sets.

    `Case` and similar names always mean lobench's classes, because lobench itself writes such lines. A user's class
    with such a name needs its qualified name.

    Raises:
      ConfigError: As in `complete_selector`.
    """
    full_name = f"lobench.{binding.selector}"
    if binding.selector in LOBENCH_NAMES and full_name in matching_names(binding.selector):
        return full_name
    return complete_selector(binding.selector, binding.where)


def default_of_parameter(binding: Binding) -> Any:
    """Returns the default of a parameter; `inspect.Parameter.empty` if it has none.

    Raises:
      ConfigError: As in `complete_selector`. Only modules that are imported already are searched.
    """
    parameter = _parameters(_target_selector(binding)).get(binding.parameter)
    return inspect.Parameter.empty if parameter is None else parameter.default


def _parameters(selector: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(CONFIGURABLES.get_match(selector).wrapped).parameters


def _unknown_name_error(selector: str, where: str) -> UnknownName:
    problem = f"unknown name {selector!r}"
    if (path := _registrable_path(selector)) is not None:
        advice = f"`{path}` exists and is not configurable: put `@lobench.configurable` on it"
        return UnknownName(problem, where=where, next_step=advice)
    if (package := _SHIPPED_PLUGINS.get(selector.partition(".")[0])) is not None:
        return UnknownName(problem, where=where, next_step=f"{package} has it: `pip install {package}`")
    if (module := _missing_import(selector)) is not None:
        return UnknownName(problem, where=where, next_step=f"`import {module}` is missing in the gin file")
    # The same name may be known because another module registers it. It would be no suggestion.
    other_names = [name for name in _known_names() if name != selector]
    suggestion_text = suggestion(last_name(selector), other_names)
    listing = "`lobench list` with tasks, optimizers or schedules shows all"
    if suggestion_text and _is_close(last_name(selector), suggestion_text.split("'")[1]):
        return MisspelledName(problem, where=where, next_step=f"{suggestion_text} {listing}")
    question = f"{suggestion_text} Or is" if suggestion_text else "is"
    advice = f"{question} an `import` missing in the gin file? {listing}"
    return UnknownName(problem, where=where, next_step=advice)


def _is_close(name: str, other_name: str) -> bool:
    """Returns whether one name is a misspelling of the other, and not only similar, as `Valley` and `Ackley` are."""
    import difflib  # here, as in `suggestion`

    return difflib.SequenceMatcher(None, name.casefold(), other_name.casefold()).ratio() >= 0.75


def _python_object(path: str) -> Any:
    """Returns the Python object with a dotted path; None if not found.

    Only modules that gin files import are searched, with their packages and submodules.
    """
    path_parts = path.split(".")
    for num_parts in range(len(path_parts) - 1, 0, -1):
        module = ".".join(path_parts[:num_parts])
        is_near = any(
            f"{imported}.".startswith(f"{module}.") or module.startswith(f"{imported}.")
            for imported in _IMPORTED_MODULES
        )
        if is_near and module in sys.modules:
            value: Any = sys.modules[module]
            for attribute in path_parts[num_parts:]:
                value = getattr(value, attribute, None)
            return value
    return None


def _configurable_names_of_object(selector: str) -> list[str]:
    """Returns the full name in gin of the configurable with a name in Python, as a list of at most one."""
    if "." not in selector or (target := _python_object(selector)) is None:
        return []
    configurables = CONFIGURABLES.items()
    return [
        name for name, configurable in configurables if target is configurable.wrapped or target is configurable.wrapper
    ][:1]


def _registrable_path(selector: str) -> str | None:
    """Returns the Python path of a class or function that is not registered with gin but could be, or None."""
    for path in [selector] if "." in selector else [f"{module}.{selector}" for module in _IMPORTED_MODULES]:
        value = _python_object(path)
        top_package = path.partition(".")[0]
        is_of_package = (getattr(value, "__module__", None) or "").partition(".")[0] == top_package
        if (
            (inspect.isclass(value) or inspect.isroutine(value))
            and is_of_package
            and top_package not in _NON_USER_PACKAGES
        ):
            return path
    return None


def _missing_import(selector: str) -> str | None:
    """Returns the installed module of a dotted name if nothing imports it."""
    module, dot, _ = selector.rpartition(".")
    top_package = module.partition(".")[0]
    if not dot or module in _IMPORTED_MODULES or top_package in _NON_USER_PACKAGES:
        return None
    try:
        is_installed = importlib.util.find_spec(module if top_package in sys.modules else top_package) is not None
    except (ImportError, ValueError):  # a part of the path is not a module, or is partly imported
        return None
    return module if is_installed else None


def _register_on_use(selector: str) -> list[str]:
    full_names = [name for names in _NAMES_ON_USE.values() if (name := names.find(selector)) is not None][:1]
    REGISTERED_ON_USE.update(full_names)
    return full_names


def _accepts_parameter(selector: str, parameter: str) -> bool:
    return bool(might_have_parameter(CONFIGURABLES.get_match(selector).wrapper, parameter))


def _to_gin(value: Any, where: str) -> Any:
    """Replaces parsed references by gin's reference objects."""
    if isinstance(value, Reference):
        *scopes, _ = value.scoped_selector.split("/")
        scoped_name = "/".join((*scopes, complete_selector(value.selector, where)))
        reference = gin.config.ConfigurableReference(scoped_name, value.evaluate)
        # Hashes and reports use the spelling of the file, which does not depend on other registered names.
        reference._scoped_selector = value.scoped_selector
        reference._selector = value.selector
        return reference
    if isinstance(value, Macro):
        return gin.config.ParserDelegate().macro(value.name)
    if isinstance(value, dict):
        return {_to_gin(key, where): _to_gin(item, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_gin(item, where) for item in value)
    return value


def bind(binding: Binding) -> None:
    """Binds a parameter, or defines a macro.

    Raises:
      ConfigError: The name or the parameter is unknown. The message has a suggestion.
    """
    if not binding.parameter:
        name = f"{binding.scope}/{binding.selector}" if binding.scope else binding.selector
        gin.bind_parameter((name, "gin.macro", "value"), _to_gin(binding.value, binding.where))
        return
    selector = _target_selector(binding)
    if not _accepts_parameter(selector, binding.parameter):
        names = list(_parameters(selector))
        advice = suggestion(binding.parameter, names)
        is_suggestion_enough = advice and len(names) > _MAX_PARAMETERS
        expected = "" if is_suggestion_enough else ", ".join(names)
        raise ConfigError(
            f"{binding.selector!r} has no parameter {binding.parameter!r}",
            where=binding.where,
            expected=expected,
            next_step=advice,
        )
    gin.bind_parameter((binding.scope, selector, binding.parameter), _to_gin(binding.value, binding.where))


def import_modules(statements: Sequence[Statement]) -> None:
    """Executes the import statements.

    Raises:
      ConfigError: A module cannot be imported.
    """
    for statement in statements:
        if isinstance(statement, Import):
            execute_import(statement)


def import_plugin_modules(statements: Sequence[Statement]) -> list[str]:
    """Imports the gin modules of plugins. Those that fail are named on standard error, once.

    Returns:
      A line for each module that failed. Their names are unknown, and nothing else is affected.
    """
    failures = []
    for statement in statements:
        if not isinstance(statement, Import):
            continue
        try:
            with contain_plugins():
                execute_import(statement)
        except LobenchError as error:
            problem = error
            if not isinstance(error, ConfigError):  # raised by the module itself
                problem = ConfigError(f"cannot import {statement.module!r}", where=statement.where, got=headline(error))
            failures.append(str(problem))
            if statement.module not in _FAILED_MODULES:
                _FAILED_MODULES.add(statement.module)
                print(f"lobench: hook lobench_gin_modules: {problem}; going on", file=sys.stderr)
    return failures


def bind_all(statements: Sequence[Statement]) -> None:
    """Binds every binding. Modules must have been imported.

    In an experiment file, a mistake in the scope of a method is ignored here: it is reported when that method is bound.
    """
    bindings = only_bindings(statements)
    methods = {binding.scope for binding in bindings if binding.name == "Method"}
    for binding in bindings:
        try:
            bind(binding)
        except ConfigError:
            if binding.scope.split("/")[0] not in methods:
                raise


def bind_overrides(statements: Sequence[Statement]) -> None:
    """Binds a layer whose unscoped bindings also override scoped ones of the same parameter."""
    for binding in only_bindings(statements):
        bind(binding)
        if binding.parameter and not binding.scope:
            selector = _target_selector(binding)
            for (scope, bound_selector), parameters in BINDINGS.items():
                if scope and bound_selector == selector:
                    parameters.pop(binding.parameter, None)
