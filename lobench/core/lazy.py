"""Lazy exports: names of a package that are imported on first use.

`import lobench` must import neither jax nor pandas, although `lobench.Task` needs jax. Example: after

    if TYPE_CHECKING:
        from lobench.inner.task import Task, TaskFamily

    __getattr__ = on_first_use(__name__)

the first use of `lobench.Task` imports `lobench.inner.task`. Type checkers read the same lines.
"""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def on_first_use(package: str) -> Callable[[str], object]:
    """Returns a `__getattr__` for a package that loads the names imported below its `if TYPE_CHECKING:`.

    Args:
      package: `__name__` of the package.
    """

    @functools.cache
    def module_by_name() -> dict[str, str]:
        text = Path(sys.modules[package].__file__ or "").read_text(encoding="utf-8")
        blocks = [node for node in ast.parse(text).body if isinstance(node, ast.If)]
        imports = (node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom))
        return {alias.name: str(node.module) for node in imports for alias in node.names}

    def load(name: str) -> object:
        if name not in module_by_name():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(module_by_name()[name])
        value = getattr(module, name, None) or importlib.import_module(f"{module.__name__}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return load


def loaded(reference: str) -> Any:
    """Imports "module:attribute" and returns its value."""
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)
