"""Messages as bytes: what was said is what is heard, and everything else is a ValueError that says what and where."""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.codec import Codec, Message, kind_of, may_be_message

SHOWN = texts_of("core")


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: float
    y: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn(Message):
    name: str
    colour: Colour
    is_done: bool
    points: tuple[Point, ...]
    pair: tuple[str, int]
    notes: Mapping[str, str]
    payload: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty(Message):
    pass


CODEC: Codec[Drawn | Empty] = Codec(Drawn, Empty)
POINTS = st.builds(Point, x=st.floats(allow_nan=False) | st.integers(), y=st.none() | st.integers(-(10**30), 10**30))
DRAWN = st.builds(
    Drawn,
    name=st.text(),
    colour=st.sampled_from(Colour),
    is_done=st.booleans(),
    points=st.lists(POINTS, max_size=3).map(tuple),
    pair=st.tuples(st.text(), st.integers()),
    notes=st.dictionaries(st.text(), st.text(), max_size=3),
    payload=st.binary(max_size=50),
)
GOOD = Drawn(
    name="a",
    colour=Colour.RED,
    is_done=True,
    points=(Point(x=0.5, y=None), Point(x=1.0, y=2)),
    pair=("b", 3),
    notes={"c": "d"},
)


def packed(values: Any, payload: bytes = b"") -> bytes:
    text = json.dumps(values).encode()
    return struct.pack("<I", len(text)) + text + payload


def values_of(message: Message) -> dict[str, Any]:
    data = message.to_bytes()
    (length,) = struct.unpack_from("<I", data)
    values: dict[str, Any] = json.loads(data[4 : 4 + length])
    return values


@given(DRAWN | st.just(Empty()))
def test_what_is_said_is_what_is_heard(message: Drawn | Empty) -> None:
    data = message.to_bytes()
    assert CODEC.from_bytes(data) == message == type(message).from_bytes(data)
    assert kind_of(data) == type(message).__name__.lower()
    assert all(may_be_message(data[:end]) for end in range(len(data)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": 3}, SHOWN["drawn-name-got-3-expected"]),
        ({"name": None}, SHOWN["drawn-name-got-none-expected"]),
        ({"name": "x" * 10_000, "colour": 0}, SHOWN["drawn-colour-got-0-expected"]),
        ({"colour": "green"}, SHOWN["drawn-colour-got-green-expected"]),
        ({"is_done": 1}, SHOWN["drawn-is-done-got-1"]),
        ({"points": {}}, SHOWN["drawn-points-got-expected-a"]),
        ({"points": [[1, 2]]}, SHOWN["drawn-points-0-got-1"]),
        ({"points": [{"x": 1.0, "y": None}, {"x": 1.0}]}, SHOWN["drawn-points-1-no-field"]),
        ({"points": [{"x": 1.0, "y": 1, "z": 2}]}, SHOWN["drawn-points-0-unknown-field"]),
        ({"points": [{"x": 1.0, "y": 0.5}]}, SHOWN["drawn-points-0-y-got"]),
        ({"points": [{"x": 1.0, "y": True}]}, SHOWN["drawn-points-0-y-got-true"]),
        ({"points": [{"x": True, "y": 1}]}, SHOWN["drawn-points-0-x-got"]),
        ({"pair": ["a"]}, SHOWN["drawn-pair-got-a-expected"]),
        ({"pair": [1, "a"]}, SHOWN["drawn-pair-0-got-1"]),
        ({"notes": ["a"]}, SHOWN["drawn-notes-got-a-expected"]),
        ({"notes": {"a": 1}}, SHOWN["drawn-notes-a-got-1"]),
        ({"sound": "loud"}, SHOWN["drawn-unknown-field-sound"]),
        ({"payload": "x"}, SHOWN["drawn-payload-it-belongs-behind"]),
        ({"kind": "painted"}, SHOWN["message-of-unknown-kind-painted"]),
        ({"kind": 3}, SHOWN["no-message-it-has-no"]),
        ({"kind": "empty"}, SHOWN["empty-unknown-field-name-colour"]),
        ({"name": ["x" * 10_000]}, SHOWN["drawn-name-got-expected-str"].format(start="x" * 58)),
    ],
)
def test_what_is_wrong_is_named_with_its_place(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError) as refused:
        CODEC.from_bytes(packed({**values_of(GOOD), **changes}))
    assert str(refused.value) == why


@pytest.mark.parametrize("name", ["name", "colour", "is_done", "points", "pair", "notes"])
def test_a_missing_field_is_named(name: str) -> None:
    values = values_of(GOOD)
    del values[name]
    with pytest.raises(ValueError, match=SHOWN["drawn-no-field"].format(name=name)):
        CODEC.from_bytes(packed(values))


def test_bytes_behind_a_message_without_a_payload_are_refused() -> None:
    with pytest.raises(ValueError, match=SHOWN["empty-3-bytes-behind-a"]):
        CODEC.from_bytes(packed({"kind": "empty"}, b"abc"))


@given(st.binary(max_size=300) | st.recursive(st.none() | st.text(), st.lists, max_leaves=5).map(packed))
def test_rubbish_is_a_value_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(ValueError):
        CODEC.from_bytes(data)


@given(DRAWN, st.data())
def test_a_message_cut_or_changed_anywhere_is_read_or_a_value_error(message: Drawn, draw: st.DataObject) -> None:
    data = bytearray(message.to_bytes())
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    try:
        CODEC.from_bytes(bytes(data[: draw.draw(st.integers(0, len(data)))]))
    except ValueError as error:
        assert "\n" not in str(error)


def test_nests_too_deep_for_the_parser() -> None:
    text = b'{"kind": "empty", "a": ' + b"[" * 200_000
    with pytest.raises(ValueError, match=SHOWN["no-message"]):
        CODEC.from_bytes(struct.pack("<I", len(text)) + text)


def test_a_message_of_types_that_cannot_be_checked_is_its_writers_mistake() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Loose(Message):
        anything: object

    with pytest.raises(TypeError, match=SHOWN["cannot-have-a-field-of"]):
        Loose.from_bytes(packed({"kind": "loose", "anything": 1}))


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"hello world", b'\x09\0\0\0{"a": "b"}'])
def test_what_is_no_message_has_no_kind(data: bytes) -> None:
    assert kind_of(data) == ""


def test_a_value_of_several_types_keeps_its_own() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Cell(Message):
        value: int | float | str | tuple[int | None, ...] | None

    for value in (1, 1.0, "1", (1, None), None):
        read = Cell.from_bytes(Cell(value=value).to_bytes()).value
        assert (read, type(read)) == (value, type(value))
    with pytest.raises(ValueError, match=SHOWN["cell-value-got-true-expected"]):
        Cell.from_bytes(packed({"kind": "cell", "value": True}))
