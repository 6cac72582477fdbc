"""Codec of frozen dataclasses for messages between processes: JSON and one binary payload, no pickle.

A message is the length of its JSON part in four bytes (little-endian), the JSON part, and the payload. The JSON part
has the kind of the message first, then its fields. The payload is the value of the field of type `bytes`, if there is
one. Decoding validates everything: a missing or unknown field, or a value of another type, is a ValueError that names
the field (`result.lease: got '3', expected int`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import struct
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

__all__ = ["Codec", "Message", "kind_of", "may_be_message"]

_LENGTH = struct.Struct("<I")
_OPENING = b'{"kind": "'  # start of the JSON part
_MAX_KIND_LENGTH = 64
_MAX_SHOWN_CHARACTERS = 60  # characters of an invalid value in error messages

_Reader = Callable[[object, str], Any]


class Message:
    """Base of messages. A subclass is a frozen dataclass; its kind is its name in lower case.

    Fields may be str, int, float, bool, a string enum, another dataclass, `X | Y`, `X | None`, `tuple[X, ...]`,
    `tuple[X, Y]` or `Mapping[str, X]`. At most one field may be bytes.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Progress(Message):
    ...     step: int
    >>> Progress.from_bytes(Progress(step=3).to_bytes())
    Progress(step=3)
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @classmethod
    def kind_name(cls) -> str:
        """Returns the name of this kind, as `kind_of` reads it from a message."""
        return cls.__name__.lower()

    def to_bytes(self) -> bytes:
        kind: Any = type(self)
        values = {"kind": kind.kind_name(), **_field_values(self)}
        payload_name = _payload_name(kind)
        payload: bytes = values.pop(payload_name) if payload_name else b""
        text = json.dumps(values, default=_field_values).encode()
        return _LENGTH.pack(len(text)) + text + payload

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads a message of this kind.

        Raises:
          ValueError: The bytes are not a message of this kind. The text names the faulty field.
        """
        return Codec(cls).from_bytes(data)


M = TypeVar("M", bound=Message)


class Codec(Generic[M]):
    """Reads messages of several kinds, such as all kinds that one end of a connection may receive.

    Args:
      kinds: Classes of messages with distinct names.

    >>> Codec(Exit).from_bytes(Exit().to_bytes())
    Exit()
    """

    def __init__(self, *kinds: type[M]) -> None:
        self._kinds: dict[str, Any] = {kind.kind_name(): kind for kind in kinds}

    def from_bytes(self, data: bytes) -> M:
        """Reads a message.

        Raises:
          ValueError: The bytes are not a message of any of these kinds. The text names the faulty field.
        """
        values, payload = _header_and_body(data)
        kind_name = values.pop("kind", None)
        if not isinstance(kind_name, str):
            raise ValueError("no message: it has no kind")
        kind = self._kinds.get(kind_name)
        if kind is None:
            raise ValueError(
                f"a message of unknown kind {_shorten(kind_name)}, expected one of {', '.join(self._kinds)}"
            )
        if payload_name := _payload_name(kind):
            if payload_name in values:
                raise ValueError(f"{kind_name}.{payload_name}: it belongs behind the fields, not among them")
            values[payload_name] = payload
        elif payload:
            raise ValueError(f"{kind_name}: {len(payload)} bytes behind a message that has no payload")
        message: M = _dataclass_reader(kind)(values, kind_name)
        return message


def may_be_message(data: bytes | bytearray) -> bool:
    """Returns whether bytes may be the start of a message. They may be shorter than a header."""
    opening = data[_LENGTH.size : _LENGTH.size + len(_OPENING)]
    return _OPENING.startswith(opening)


def kind_of(message: bytes) -> str:
    """Returns a message's kind, read from its header only; "" if it has none.

    For relays that do not decode the body.

    >>> kind_of(Exit().to_bytes())
    'exit'
    """
    start = _LENGTH.size + len(_OPENING)
    if message[_LENGTH.size : start] != _OPENING:
        return ""
    return message[start : start + _MAX_KIND_LENGTH].partition(b'"')[0].decode(errors="replace")


def _header_and_body(data: bytes) -> tuple[dict[str, object], bytes]:
    try:
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        if len(data) < end:
            raise ValueError(f"no message: {len(data) - _LENGTH.size} bytes of {length}")
        values = json.loads(data[_LENGTH.size : end])
    except (struct.error, RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"no message: {error}") from error
    if not isinstance(values, dict):
        raise ValueError("no message: it has no kind")
    return values, data[end:]


def _field_values(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


@functools.cache
def _payload_name(kind: Any) -> str:
    names = [field.name for field in dataclasses.fields(kind) if typing.get_type_hints(kind)[field.name] is bytes]
    if "kind" in kind.__dataclass_fields__:
        raise TypeError(f"{kind.__name__} has a field `kind`, which every message has of itself")
    if len(names) > 1:
        raise TypeError(f"{kind.__name__} has several payloads: {', '.join(names)}")
    return names[0] if names else ""


@functools.cache
def _reader_for(hint: Any) -> _Reader:
    """Returns a function that checks and converts one value of a type."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint in _PLAIN:
        return functools.partial(_read_plain, _PLAIN[hint], getattr(hint, "__name__", str(hint)))
    if origin in (types.UnionType, typing.Union):
        readers = tuple(_reader_for(argument) for argument in arguments if argument is not types.NoneType)
        item_reader = readers[0] if len(readers) == 1 else functools.partial(_read_union, readers, str(hint))
        return functools.partial(_read_optional, item_reader) if types.NoneType in arguments else item_reader
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return functools.partial(_read_list, _reader_for(arguments[0]))
    if origin is tuple:
        return functools.partial(_read_fixed_list, tuple(map(_reader_for, arguments)))
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return functools.partial(_read_mapping, _reader_for(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return functools.partial(_read_enum, hint)
    if hasattr(hint, "__dataclass_fields__"):
        return _dataclass_reader(hint)
    raise TypeError(f"a message cannot have a field of type {hint}")


# JSON does not distinguish 1 and 1.0. In Python True is an int, but in a message it is not.
_PLAIN: Mapping[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (float, int), bool: (bool,), bytes: (bytes,)}


def _read_plain(accepted: tuple[type, ...], expected: str, value: object, where: str) -> object:
    if type(value) not in accepted:
        raise _invalid_error(value, where, expected)
    return value


def _read_optional(item_reader: _Reader, value: object, where: str) -> object:
    return None if value is None else item_reader(value, where)


def _read_union(readers: tuple[_Reader, ...], expected: str, value: object, where: str) -> object:
    for reader in readers:
        with contextlib.suppress(ValueError):
            return reader(value, where)
    raise _invalid_error(value, where, expected)


def _read_list(item_reader: _Reader, value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise _invalid_error(value, where, "a list")
    return tuple(item_reader(item, f"{where}[{index}]") for index, item in enumerate(value))


def _read_fixed_list(readers: tuple[_Reader, ...], value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list) or len(value) != len(readers):
        raise _invalid_error(value, where, f"a list of {len(readers)}")
    return tuple(
        reader(item, f"{where}[{index}]") for index, (reader, item) in enumerate(zip(readers, value, strict=True))
    )


def _read_mapping(item_reader: _Reader, value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _invalid_error(value, where, "an object")
    return {name: item_reader(item, f"{where}[{name!r}]") for name, item in value.items()}


def _read_enum(kind: type[enum.StrEnum], value: object, where: str) -> enum.StrEnum:
    if isinstance(value, str) and value in kind._value2member_map_:
        return kind(value)
    raise _invalid_error(value, where, f"one of {', '.join(kind)}")


@functools.cache
def _dataclass_reader(kind: Any) -> _Reader:
    hints = typing.get_type_hints(kind)
    readers = {field.name: _reader_for(hints[field.name]) for field in dataclasses.fields(kind)}
    return functools.partial(_read_dataclass, kind, readers)


def _read_dataclass(kind: type, readers: Mapping[str, _Reader], value: object, where: str) -> object:
    if not isinstance(value, dict):
        raise _invalid_error(value, where, f"the fields of {kind.__name__}")
    if missing_fields := [name for name in readers if name not in value]:
        raise ValueError(f"{where}: no field {', '.join(map(repr, missing_fields))}")
    if unknown_fields := [name for name in value if name not in readers]:
        raise ValueError(f"{where}: unknown field {', '.join(map(_shorten, unknown_fields))}")
    return kind(**{name: reader(value[name], f"{where}.{name}") for name, reader in readers.items()})


def _invalid_error(value: object, where: str, expected: str) -> ValueError:
    return ValueError(f"{where}: got {_shorten(value)}, expected {expected}")


def _shorten(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."
