"""Records for JSON, in which NaN and infinities become null."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar, cast

__all__ = ["Finite", "finite_or_none", "record_from"]

_MISSING = object()
T = TypeVar("T")
Finite: TypeAlias = Annotated[float, {"type": "number"}]  # type of a record's field that is never NaN


def record_from(kind: type[T], value: object, /, *further_values: object, **fields: object) -> T:
    """Returns a record with the values of attributes of the same names.

    Example:
        >>> from typing import TypedDict
        >>> class Span(TypedDict):
        ...     start: int
        ...     text: str
        >>> record_from(Span, slice(1, 4), text="1 to 4")
        {'start': 1, 'text': '1 to 4'}

    Args:
      kind: A TypedDict, all of whose fields are required.
      value: Value with the attributes.
      further_values: Objects that are searched in order for attributes that `value` lacks.
      fields: Values of the fields that are not attributes, or differ from them.
    Raises:
      AttributeError: No value has an attribute.
      TypeError: The record has no such field.
    """
    names = kind.__annotations__
    if unknown_fields := fields.keys() - names.keys():
        raise TypeError(f"{kind.__name__} has no field {min(unknown_fields)!r}")
    values = (value, *further_values)
    return cast(T, {name: fields[name] if name in fields else _attribute(values, name) for name in names})


def _attribute(values: Sequence[object], name: str) -> object:
    """Returns an attribute of the first value that has it. It is read once, as it may be computed."""
    for value in values:
        if (attribute := getattr(value, name, _MISSING)) is not _MISSING:
            return attribute
    return getattr(values[0], name)  # raises


def finite_or_none(value: T) -> T:
    """Replaces NaN and infinities by None in nested records, dicts, lists and tuples, because JSON cannot hold them.

    The return type is that of the value, although a float field of a returned record may be None.

    >>> finite_or_none({"loss": [1.0, float("nan")]})
    {'loss': [1.0, None]}
    """
    return cast(T, _with_finite_numbers(value))


def _with_finite_numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_finite_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_finite_numbers(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _with_finite_numbers(dataclasses.asdict(value))
    return None if isinstance(value, float) and not math.isfinite(value) else value
