"""Schemas made from types: what a record's type says, the schema says, and a checker of schemas agrees."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest

from lobench.cli.json_schema import json_schema
from lobench.cli.output import json_text
from lobench.core.json_numbers import Finite


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Length:
    """A length.

    Attributes:
      lower, upper: Its bounds, in
        metres.
    """

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class NamedLength(Length):
    """A length with a name."""

    name: str


class Thing(TypedDict):
    """`lobench thing`: a thing."""

    path: Path
    size: Annotated[Finite, "In metres."]
    colour: Colour | None
    lengths: tuple[NamedLength, ...]
    best: Length | None
    counts: Mapping[Colour, int]
    kind: Literal["a", "b"]
    free: dict[str, Any]
    version: Literal[1]
    either: int | str
    note: NotRequired[str]


class Odd(TypedDict):
    odd: complex


class Longer(Thing):
    """`lobench thing --more`: a thing and more."""

    more: bool


def thing(**changed: object) -> dict[str, object]:
    lengths = (NamedLength(0.0, math.inf, "x"),)
    found = Thing(
        path=Path("x"), size=1.0, colour=None, lengths=lengths, best=None, counts={Colour.RED: 1}, kind="a", free={},
        version=1, either="x",
    )  # fmt: skip
    return {**found, **changed}


def errors(record: Mapping[str, object]) -> list[str]:
    checker = jsonschema.Draft202012Validator(json_schema("thing", Thing))
    return [error.json_path for error in checker.iter_errors(json.loads(json_text("thing", record)))]


def test_what_is_printed_is_as_its_type_says() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema("thing", Longer))
    assert errors(thing()) == [] and errors(thing(note="x", colour=Colour.BLUE, best=Length(1.0, 2.0))) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"size": math.nan},
        {"colour": "green"},
        {"best": {"lower": 1.0}},
        {"counts": {"green": 1}},
        {"kind": "c"},
        {"version": 2},
        {"either": 0.5},
        {"note": None},
        {"new": 1},
    ],
)
def test_what_the_type_refuses_the_schema_refuses(changed: dict[str, object]) -> None:
    assert errors(thing(**changed)) != []


def test_names_titles_and_descriptions_are_those_of_the_types() -> None:
    found = json_schema("thing", list[Longer])
    assert (found["type"], found["title"]) == ("array", "`lobench thing --more`: a thing and more.")
    record = found["items"]
    assert record["properties"]["schema"] == {"const": "lobench/thing/1"}
    assert record["properties"]["size"] == {"type": "number", "description": "In metres."}
    assert set(record["properties"]) - set(record["required"]) == {"note"}
    bound = {"description": "Its bounds, in metres.", "type": ["number", "null"]}
    assert found["$defs"]["NamedLength"]["properties"] == {"lower": bound, "upper": bound, "name": {"type": "string"}}
    assert json_schema("x", Annotated[Length, "A title."])["title"] == "A title."


def test_a_type_that_json_lacks_is_an_error() -> None:
    with pytest.raises(TypeError, match="complex"):
        json_schema("odd", Odd)
