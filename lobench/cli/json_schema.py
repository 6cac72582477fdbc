"""JSON Schemas of the output of commands, derived from the types of their records.

A float may be NaN or infinite, which JSON lacks and `json_text` prints as null. Its type is therefore number or null,
unless it is declared `Finite`. Descriptions are the texts of `Annotated`, or the lines below `Attributes:` of
dataclasses.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import types
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

__all__ = ["json_schema"]

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    Any: {},
    object: {},
}


def json_schema(name: str, document_type: Any) -> Schema:
    """Returns the schema (draft 2020-12) of a document.

    Args:
      name: Name of the document, such as `run`, which is printed as "lobench/run/1".
      document_type: Type of its record: a TypedDict or a dataclass, or a list of these. The title is the text of
        `Annotated`, or the first line of the type's docstring.
    Raises:
      TypeError: A type has no JSON equivalent.
    """
    defs: dict[str, Schema] = {}
    document_type, *titles = get_args(document_type) if get_origin(document_type) is Annotated else (document_type,)
    is_list = get_origin(document_type) is list
    (record,) = get_args(document_type) if is_list else (document_type,)
    records = [_record(member, defs, name) for member in _members(record)]
    body = records[0] if len(records) == 1 else {"anyOf": records}
    title = (titles or inspect.cleandoc(record.__doc__ or "").splitlines())[0]
    header = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    definitions = {"$defs": defs} if defs else {}
    return header | ({"type": "array", "items": body} if is_list else body) | definitions


def _record(kind: Any, defs: dict[str, Schema], document: str = "") -> Schema:
    fields = {"schema": {"const": f"lobench/{document}/1"}} if document else {}
    hints = get_type_hints(kind, include_extras=True)
    lines = _attributes(kind)
    optional = set()
    for name in [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else hints:
        hint = hints[name]
        if get_origin(hint) is NotRequired:
            optional.add(name)
            (hint,) = get_args(hint)
        field_description = {"description": lines[name]} if name in lines else {}
        fields[name] = field_description | _schema(hint, defs)
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _schema(kind: Any, defs: dict[str, Schema]) -> Schema:
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        annotated = _schema(arguments[0], defs)
        for annotation in arguments[1:]:
            annotated = annotated | ({"description": annotation} if isinstance(annotation, str) else annotation)
        return annotated
    if origin in (Union, types.UnionType):
        options = [_schema(argument, defs) for argument in arguments if argument is not types.NoneType]
        schema = options[0] if len(options) == 1 else {"anyOf": options}
        return _nullable(schema) if types.NoneType in arguments else schema
    if origin is Literal:
        values = [value.value if isinstance(value, enum.Enum) else value for value in arguments]
        return {"const": values[0]} if len(values) == 1 else {"enum": values}
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        defs[kind.__name__] = defs.get(kind.__name__) or _record(kind, defs)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    container = origin or kind
    if isinstance(container, type) and issubclass(container, Mapping):
        key, value = [_schema(argument, defs) for argument in arguments or (str, Any)]
        names = {"propertyNames": key} if "enum" in key else {}
        return {"type": "object", **names, **({"additionalProperties": value} if value else {})}
    if isinstance(container, type) and issubclass(container, Collection) and arguments:
        return {"type": "array", "items": _schema(arguments[0], defs)}
    raise TypeError(f"{kind} is nothing that JSON has")


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _nullable(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return schema if "null" in schema.get("type", ()) else {"anyOf": [schema, {"type": "null"}]}


def _attributes(kind: Any) -> dict[str, str]:
    """Returns the lines below `Attributes:` of a dataclass and its bases, by attribute."""
    descriptions: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, lines = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")
        for names, text in re.findall(r"^  (\w+(?:, \w+)*): ((?:.|\n(?=    ))+)", lines, re.MULTILINE):
            descriptions |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return descriptions
