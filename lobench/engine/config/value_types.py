"""Checks of bound values against the signatures of the functions that read them."""

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
    """Value that does not fit its reader's signature.

    Attributes:
      path: Path of the parameter: `adam.learning_rate`.
      got: Value as text.
      expected: Description of the accepted types.
    """

    path: str
    got: str
    expected: str


def first_mistyped(lines: Iterable[str]) -> Mistyped | None:
    """Returns the first binding whose value does not fit the parameter's annotation or default; None if all fit.

    The result explains an error but is not an error itself, because annotations of other packages may be wrong.

    Args:
      lines: Bindings, one per line.
    """
    for line in lines:
        for binding in only_bindings(parse_text(line, repr(line))):
            names = matching_names(binding.selector)
            if (
                not binding.parameter
                or len(names) != 1
                or isinstance(binding.value, Reference | Macro | list | tuple | dict)
            ):
                continue
            accepted_types = _accepted_types(CONFIGURABLES.get_match(names[0]).wrapped, binding.parameter)
            if accepted_types and not any(_accepts(accepted_type, binding.value) for accepted_type in accepted_types):
                expected = " or ".join(dict.fromkeys(map(_type_name, accepted_types)))
                return Mistyped(path=f"{binding.name}.{binding.parameter}", got=repr(binding.value), expected=expected)
    return None


def _accepted_types(target: Any, parameter: str) -> tuple[Any, ...]:
    """Returns the types that a parameter accepts; () if unknown."""
    annotated_function = target.__init__ if inspect.isclass(target) else target
    try:
        signature_parameter = inspect.signature(target).parameters[parameter]
        hint = typing.get_type_hints(annotated_function).get(parameter)
        default = signature_parameter.default
    except (NameError, TypeError, KeyError, ValueError, AttributeError):  # no signature, or an unresolved annotation
        return ()
    if (
        hint is None
        and not isinstance(signature_parameter.annotation, str)
        and signature_parameter.annotation is not signature_parameter.empty
    ):
        hint = signature_parameter.annotation  # a wrapper may have set a `__signature__` of its own
    if hint is None or hint is Any:
        default_type = float if type(default) is int else type(default)  # `momentum=0` takes any number
        return (default_type,) if isinstance(default, _NUMBERS) else ()
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def _accepts(accepted_type: Any, value: Any) -> bool:
    """Returns whether a type accepts a value. A type that is not a class accepts anything."""
    origin = typing.get_origin(accepted_type) or accepted_type
    if origin is typing.Literal:
        return value in typing.get_args(accepted_type)
    if origin is Any or not inspect.isclass(origin):
        return True
    if origin is float or origin is complex:
        return isinstance(value, _NUMBERS) and not isinstance(value, bool)
    if origin is int:
        return type(value) is int
    try:
        return isinstance(value, origin)
    except TypeError:  # for example, a protocol
        return True


def _type_name(accepted_type: Any) -> str:
    origin = typing.get_origin(accepted_type) or accepted_type
    if origin is typing.Literal:
        return ", ".join(map(repr, typing.get_args(accepted_type)))
    names = {int: "an integer", float: "a number", complex: "a number", str: "a text", bool: "True or False"}
    return names.get(origin, getattr(origin, "__name__", str(origin)).replace("NoneType", "None"))
