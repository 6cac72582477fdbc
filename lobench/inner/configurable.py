"""Registration of tasks and optimizers with gin, and discovery of the shipped ones."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable
from typing import TypeVar

import gin

from lobench.core.configurables import USER_CONFIGURABLES, record_calls

__all__ = ["configurable", "configurables_in", "register"]

T = TypeVar("T")

_registered_targets: list[object] = []  # in order of registration


def configurable(target: T) -> T:
    """Registers a class or function with gin under its own name and returns it unchanged.

    In gin files it is `@Name()`, or `@my_package.Name()` if another configurable has the same name. Bindings do not
    affect calls from Python.

    >>> @lobench.configurable
    ... def halving(rate=0.1):
    ...     return optax.sgd(optax.exponential_decay(rate, 100, 0.5))
    >>> halving(0.5).init(jnp.ones(2))[0]
    EmptyState()
    """
    _registered_targets.append(register(target))
    record_calls(target)
    return target


def register(target: T) -> T:
    """Registers a class or function with gin, as `configurable` does, without listing it in `configurables_in`."""
    module_name = str(target.__module__)
    if module_name.partition(".")[0] == "lobench":
        gin.register(target, module="lobench")
    else:
        # gin accepts identifiers only, and a file may be imported as "my-suite.tasks".
        module_name = re.sub(r"(?a:[^\w.])|(?<![^.])(?=\d)", "_", module_name)
        gin.register(target, module=module_name)
        USER_CONFIGURABLES.add(f"{module_name}.{target.__name__}")  # type: ignore[attr-defined]
    return target


def configurables_in(package: str, path: Iterable[str]) -> dict[str, object]:
    """Imports the modules of a package, and returns the configurables that they register, by gin name.

    A new task or optimizer is therefore a single file, and needs no entry in a list.
    """
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
    own_targets = [target for target in _registered_targets if target.__module__.startswith(f"{package}.")]
    configurables = {target.__name__: target for target in own_targets}  # type: ignore[attr-defined]
    return dict(sorted(configurables.items()))
