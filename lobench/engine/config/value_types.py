"""Types of bound values against what the signatures of their readers say."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lobench.engine.config.binding import matching_names
from lobench.engine.config.gin_state import CONFIGURABLES
from lobench.engine.config.syntax import Macro, Reference, only_bindings, parse_text

__all__ = ["Mistyped", "first_mistyped"]

_NUMBERS = (int, float, complex)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistyped:
    """A value that its reader's signature does not take.

    Attributes:
      path: `adam.learning_rate`.
    """

    path: str
    got: str
    expected: str


def first_mistyped(lines: Iterable[str]) -> Mistyped | None:
    """Returns the first of bindings, a line each, whose value is none that the annotation, or the default, allows.

    It explains an error, and is none by itself: annotations of others are not always right.
    """
    for line in lines:
        for one in only_bindings(parse_text(line, repr(line))):
            found = matching_names(one.selector)
            if not one.parameter or len(found) != 1 or isinstance(one.value, Reference | Macro | list | tuple | dict):
                continue
            wanted = _members(CONFIGURABLES.get_match(found[0]).wrapped, one.parameter)
            if wanted and not any(_takes(each, one.value) for each in wanted):
                expected = " or ".join(dict.fromkeys(map(_name, wanted)))
                return Mistyped(path=f"{one.name}.{one.parameter}", got=repr(one.value), expected=expected)
    return None


def _members(target: Any, parameter: str) -> tuple[Any, ...]:
    """Returns the types that a parameter may have; () where nothing says them."""
    read = target.__init__ if inspect.isclass(target) else target
    try:
        hint = typing.get_type_hints(read).get(parameter)
        default = inspect.signature(target).parameters[parameter].default
    except (NameError, TypeError, KeyError, ValueError, AttributeError):  # an annotation of a type that is not there
        return ()
    if hint is None or hint is Any:
        return (type(default),) if isinstance(default, _NUMBERS) else ()
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _takes(wanted: Any, value: Any) -> bool:
    """Says whether a type takes a value; of what is no plain class, whether it is anything but numbers and texts."""
    kind = typing.get_origin(wanted) or wanted
    if kind is typing.Literal:
        return value in typing.get_args(wanted)
    if kind is Any or not inspect.isclass(kind):
        return True
    if kind is float or kind is complex:
        return isinstance(value, _NUMBERS) and not isinstance(value, bool)
    if kind is int:
        return type(value) is int
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol, say
        return True


def _name(wanted: Any) -> str:
    kind = typing.get_origin(wanted) or wanted
    if kind is typing.Literal:
        return ", ".join(map(repr, typing.get_args(wanted)))
    names = {int: "an integer", float: "a number", complex: "a number", str: "a text", bool: "True or False"}
    return names.get(kind, getattr(kind, "__name__", str(kind)).replace("NoneType", "None"))
