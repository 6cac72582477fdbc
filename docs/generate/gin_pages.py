"""Everything that a gin file can name, with its fields, their defaults and what its docstring says of them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gin.config as gin_state
import griffe
from words import escaped, prose, table

from lobench.core.search import space
from lobench.engine.config import bound, phases
from lobench.engine.config.experiment import file  # they register Case, Method, Phase, ...
from lobench.plugins import load_plugins

__all__ = ["gin_pages"]

Made = Callable[..., Any]

_KINDS = ("tasks", "optimizers", "schedules")
_NOT_BOUND = {  # fields that no gin file says
    "Method": {name for name in bound.Method.__slots__ if name not in file._METHOD_KEYS},
    "Experiment": {name for name in bound.Experiment.__slots__ if name not in file._EXPERIMENT_KEYS},
}
_TEXTS = {
    "tasks": "`relu32/Case.task = @NAME()`; `NAME.FIELD = VALUE` sets a field.",
    "optimizers": "`Case.learned_optimizer = @NAME()` for those with a theta, `Case.optimizer = @NAME()` "
    "for the others, and so on a command line: `--lobench-optimizer 'adam(); adam.learning_rate = 0.01'`.",
    "schedules": "Where an optimizer takes a rate it takes a schedule: `adam.learning_rate = @NAME()`.",
    "gin": "What is bound to say what a case, a phase, a method and an experiment are.",
}


def gin_pages() -> dict[str, str]:
    """Returns pages by name: tasks, optimizers, schedules, and `gin` for all else that is registered."""
    kinds: dict[str, dict[str, Made]] = {kind: {} for kind in _KINDS}
    optaxes: dict[str, Made] = {}
    for found in load_plugins().declarations("lobench_gin_modules").values():
        module = importlib.import_module(found.declaration.name)
        for kind in _KINDS:
            if found.declaration.name.endswith(kind):
                kinds[kind] |= {name: getattr(module, name) for name in sorted(module.__all__)}
        if hasattr(on_use := getattr(module, "lobench_on_use", None), "optimizers"):
            optaxes |= on_use.optimizers()
    known = {id(made) for of_kind in kinds.values() for made in of_kind.values()}
    registered = {selector.rsplit(".", 1)[-1]: each.wrapped for selector, each in gin_state._REGISTRY.items()}
    rest = {name: made for name, made in registered.items() if id(made) not in known and not _is_gins(made)}
    pages = {kind: _page(kind, of_kind) for kind, of_kind in kinds.items()}
    pages["optimizers"] += "\n## Optax's own\n\n" + "\n\n".join(_entry(name, made, 3) for name, made in optaxes.items())
    pages["gin"] = _page("gin", rest) + _spaces() + _searches()
    assert phases  # imported for what it registers
    return pages


def _is_gins(made: Made) -> bool:
    return (getattr(made, "__module__", "") or "").partition(".")[0] in ("gin", "optax")


def _page(kind: str, named: Mapping[str, Made]) -> str:
    title = "Cases and experiments in gin" if kind == "gin" else kind.capitalize()
    return "\n\n".join((f"# {title}", _TEXTS[kind], *(_entry(name, made, 2) for name, made in named.items()))) + "\n"


def _entry(name: str, made: Made, level: int) -> str:
    """Returns a heading, the docstring's text, a row for each field, and the rest of the docstring."""
    fields, before, after = _documented(made)
    hidden = _NOT_BOUND.get(name, set())
    rows = [
        (f"`{name.rsplit('.', 1)[-1]}.{each.name}`", _default(each), fields.get(each.name, ""))
        for each in _parameters(made)
        if each.name not in hidden
    ]
    parts = [f"{'#' * level} {name}", before, table(("field", "default", ""), rows) if rows else "", after]
    return "\n\n".join(part for part in parts if part)


def _parameters(made: Made) -> Iterable[inspect.Parameter]:
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [each for each in inspect.signature(made).parameters.values() if each.kind not in variable]


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is parameter.empty:
        return "none: it has to be bound"
    if type(value).__repr__ is object.__repr__ or callable(value):
        return f"`{getattr(value, '__name__', type(value).__name__)}`"
    return "`{}`" if str(value) == "<factory>" else f"`{value!r}`"


def _documented(made: Made) -> tuple[dict[str, str], str, str]:
    """Returns what a docstring says of its fields, its text before them, and its text behind them."""
    docs = [inspect.getdoc(made) or ""]
    if inspect.isclass(made) and made.__init__.__doc__ and "Args:" in made.__init__.__doc__:  # type: ignore[misc]
        docs.append(inspect.cleandoc(made.__init__.__doc__))  # type: ignore[misc]
    fields: dict[str, str] = {}
    texts: tuple[list[str], list[str]] = [], []
    for doc in docs:
        for section in griffe.Docstring(_apart(doc)).parse("google", warnings=False):
            if section.kind.value in ("parameters", "attributes", "other parameters"):
                for each in section.value:
                    fields |= dict.fromkeys(each.name.replace("*", "").split(", "), prose(each.description))
            elif section.kind.value == "text":
                texts[bool(fields)].append(prose(section.value))
            elif section.kind.value == "admonition":
                texts[1].append(f"{section.title}: {prose(section.value.description)}")
            elif section.kind.value == "returns":
                texts[1].append("Returns: " + " ".join(prose(each.description) for each in section.value))
    return fields, "\n\n".join(texts[0]), "\n\n".join(texts[1])


def _apart(doc: str) -> str:
    """A section that follows the fields without an empty line is one of its own all the same."""
    return re.sub(r"\n(?=(?:Source|References?|Returns|Raises|Notes?):)", "\n\n", doc)


def _spaces() -> str:
    words = {kind.capitalize(): ", ".join(f"`{word}`" for word in of_kind) for kind, of_kind in space._KEYWORDS.items()}
    rows = [(f"`{kind}`", fields) for kind, fields in words.items()]
    text = "A space where a value stands makes a method a search: `adam.learning_rate = @rate/Real()`."
    return f"\n## Spaces\n\n{text} [searches.md](../searches.md) has examples.\n\n{table(('space', 'fields'), rows)}\n"


def _searches() -> str:
    """Returns the searches with what they take; those of plugins are among them."""
    parts = ["\n## Searches", "`tuned/Method.search = @NAME()`; `NAME.FIELD = VALUE` sets a field."]
    for name, found in load_plugins().declarations("lobench_search_strategies").items():
        module, _, attribute = found.declaration.factory.partition(":")
        factory = getattr(importlib.import_module(module), attribute)
        parts.append(f"{_entry(name, factory, 3)}\n\n{escaped(found.declaration.summary)}.")
    return "\n\n".join(parts) + "\n"
