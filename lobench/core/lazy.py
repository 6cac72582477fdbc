"""Names of a package that are loaded when they are first used.

`import lobench` must import neither jax nor pandas, yet `lobench.Task` lives beside jax. Example: after

    __getattr__ = on_first_use(__name__, {"lobench.inner.task": "Task TaskFamily"})

`lobench.Task` imports `lobench.inner.task`, once, when somebody asks for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Returns the `__getattr__` of `package`.

    Args:
      package: The `__name__` of the module that gets it.
      homes: Module -> the names that live there, with blanks between them; of a package also its modules.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(home_of[name])
        value = getattr(home, name, None) or importlib.import_module(f"{home.__name__}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load


def loaded(place: str) -> Any:
    """Returns what "module:attribute" names, imported when it is asked for."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
