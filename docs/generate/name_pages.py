"""The public names, from their docstrings: what `__all__` holds is on a page, and nothing else."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import lobench
import lobench.extend
import lobench.testing

__all__ = ["extend_page", "lobench_page", "testing_page"]

_MAY_DEFINE = ("begin", "remove", "location", "curves", "value_of")  # methods of contracts with a default


def lobench_page() -> str:
    return _page(
        "lobench", lobench.__all__, "What suites and notebooks use. `import lobench` imports neither jax nor pandas."
    )


def extend_page() -> str:
    text = (
        "What plugins use besides `lobench`, `lobench.hookspecs` ([hooks and events](hooks.md)) and `lobench.testing`."
    )
    return _page("lobench.extend", lobench.extend.__all__, text)


def testing_page() -> str:
    """Returns the page of the contracts: each module with what a test module subclasses or calls."""
    parts = ["# lobench.testing", inspect.cleandoc(lobench.testing.__doc__ or "")]
    for module in pkgutil.iter_modules(lobench.testing.__path__, "lobench.testing."):
        found = importlib.import_module(module.name)
        public = [name for name in found.__all__ if name.endswith("Contract")]
        if not public and "parity" not in module.name:
            continue  # what contracts themselves are made of
        parts += [f"## {module.name}", _module_doc(found.__doc__ or "")]
        for name in public or found.__all__:
            members = f", members: {_to_define(getattr(found, name))}" if name.endswith("Contract") else ""
            parts.append(f"::: {module.name}.{name}\n    options: {{heading_level: 3{members}}}")
    return "\n\n".join(parts) + "\n"


def _to_define(contract: type) -> list[str]:
    """Returns the methods of a contract that a test module defines."""
    return [
        name
        for name, value in vars(contract).items()
        if getattr(value, "__isabstractmethod__", False) or name in _MAY_DEFINE
    ]


def _page(module: str, names: list[str], text: str) -> str:
    parts = [f"# {module}", text, *(f"::: {module}.{name}" for name in sorted(names, key=str.lower))]
    return "\n\n".join(parts) + "\n"


def _module_doc(doc: str) -> str:
    """Returns a module's docstring: the example that follows its first paragraph is Python."""
    first, _, rest = inspect.cleandoc(doc).partition("\n\n")
    return f"{first}\n\n```python\n{rest}\n```" if rest.startswith("class ") else inspect.cleandoc(doc)
