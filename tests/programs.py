"""What a command printed for programs, checked against its schema."""

from __future__ import annotations

import functools
import json
from typing import Any

import jsonschema

from lobench.cli.schema import document_schema


@functools.cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = document_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def document(text: str) -> Any:
    """Returns the one document that a standard output holds, after it was found right; bare NaN is no JSON."""
    found = json.loads(text, parse_constant=lambda token: no_constant(token, text))
    records = found if isinstance(found, list) else [found]
    for name in {record["schema"] for record in records}:
        lobench, name, version = name.split("/")
        assert lobench == "lobench" and version == "1"
        validator(name).validate(found)
    return found


def no_constant(token: str, text: str) -> None:
    raise AssertionError(f"a bare {token} in {text[:500]}")
