"""Every hook with its signature, every event with its fields: read from lobench/hookspecs.py."""

from __future__ import annotations

import dataclasses
import inspect
import re

from words import escaped, table

from lobench import hookspecs

__all__ = ["hooks_page"]

_INTRODUCTION = """# Hooks and events

A plugin is a module with functions of these names. An entry point in the group `lobench` names the module; a suite's
`conftest.py` needs none. [The tutorial](../tutorials/plugin.md) builds one;
[plugins.md](../plugins.md) has the rules."""


def hooks_page() -> str:
    """Returns the page: tables first, then every type that a hook gets or returns."""
    hooks = [each for name, each in vars(hookspecs.HookSpecs).items() if name.startswith("lobench_")]
    declares = [each for each in hooks if "event" not in inspect.signature(each).parameters]
    observes = [each for each in hooks if each not in declares]
    events = [inspect.signature(each).parameters["event"].annotation for each in observes]
    parts = [
        _INTRODUCTION,
        "## Hooks that declare",
        "Each returns `Declaration`s, takes no argument, and imports nothing heavy.",
        table(("hook", "what it declares"), [(f"`{each.__name__}()`", _summary(each)) for each in declares]),
        "## Hooks that observe",
        "Each gets one event after it is durable, and changes nothing.",
        table(("hook", "when"), [(f"`{each.__name__}(event: {_event(each)})`", _summary(each)) for each in observes]),
        "## Fields of the events",
        *(part for name in events for part in _fields(str(name))),
        "## All types, in full",
    ]
    names = [name for name in hookspecs.__all__ if name not in ("hookspec", "hookimpl")]
    parts += [f"::: lobench.hookspecs.{name}\n    options: {{heading_level: 3}}" for name in ("HookSpecs", *names)]
    return "\n\n".join(parts) + "\n"


def _event(hook: object) -> str:
    return str(inspect.signature(hook).parameters["event"].annotation)  # type: ignore[arg-type]


def _summary(hook: object) -> str:
    return escaped(" ".join((inspect.getdoc(hook) or "").split("\n\n")[0].split()))


def _fields(name: str) -> list[str]:
    event = getattr(hookspecs, name)
    documented = {}
    for kind in reversed(event.__mro__):
        documented |= _documented(kind.__doc__ or "")
    rows = [
        (f"`event.{each.name}`", f"`{each.type}`", documented.get(each.name) or _of_type(str(each.type)))
        for each in dataclasses.fields(event)
    ]
    # What every event derives from its subject.
    rows += [
        (f"`event.{key}`", f"`{inspect.signature(value.fget).return_annotation}`", _summary(value))
        for kind in event.__mro__
        for key, value in vars(kind).items()
        if isinstance(value, property)
    ]
    return [f"### `{name}`", _summary(event), table(("field", "type", ""), rows)]


def _of_type(name: str) -> str:
    """Returns what the type of a field says of itself: `tuple[EvaluationFinished, ...]` is EvaluationFinished."""
    found = getattr(hookspecs, re.sub(r"tuple\[(\w+), \.\.\.\]", r"\1", name), None)
    return _summary(found) if inspect.isclass(found) else ""


def _documented(doc: str) -> dict[str, str]:
    _, _, attributes = inspect.cleandoc(doc).partition("Attributes:\n")
    attributes = attributes.partition("\n\n")[0]  # an example follows
    found = re.findall(r"^  (\w+): (.*?)(?=^  \w|\Z)", attributes, re.DOTALL | re.MULTILINE)
    return {name: escaped(" ".join(text.split())) for name, text in found}
