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

_PLAIN_SCHEMAS: dict[Any, Schema] = {
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
    (record_type,) = get_args(document_type) if is_list else (document_type,)
    records = [_record_schema(member, defs, name) for member in _union_members(record_type)]
    body = records[0] if len(records) == 1 else {"anyOf": records}
    title = (titles or inspect.cleandoc(record_type.__doc__ or "").splitlines())[0]
    header = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    definitions = {"$defs": defs} if defs else {}
    return header | ({"type": "array", "items": body} if is_list else body) | definitions


def _record_schema(record_type: Any, defs: dict[str, Schema], document_name: str = "") -> Schema:
    fields = {"schema": {"const": f"lobench/{document_name}/1"}} if document_name else {}
    types_by_field = get_type_hints(record_type, include_extras=True)
    descriptions = _attribute_descriptions(record_type)
    optional_fields = set()
    for name in (
        [field.name for field in dataclasses.fields(record_type)]
        if dataclasses.is_dataclass(record_type)
        else types_by_field
    ):
        field_type = types_by_field[name]
        if get_origin(field_type) is NotRequired:
            optional_fields.add(name)
            (field_type,) = get_args(field_type)
        field_description = {"description": descriptions[name]} if name in descriptions else {}
        fields[name] = field_description | _type_schema(field_type, defs)
    required = [name for name in fields if name not in optional_fields]
    return {"type": "object", "properties": fields, "required": required, "additionalProperties": False}


def _type_schema(type_hint: Any, defs: dict[str, Schema]) -> Schema:
    outer_type = get_origin(type_hint)
    type_arguments = get_args(type_hint)
    if outer_type is Annotated:
        annotated = _type_schema(type_arguments[0], defs)
        for annotation in type_arguments[1:]:
            annotated = annotated | ({"description": annotation} if isinstance(annotation, str) else annotation)
        return annotated
    if outer_type in (Union, types.UnionType):
        options = [_type_schema(argument, defs) for argument in type_arguments if argument is not types.NoneType]
        schema = options[0] if len(options) == 1 else {"anyOf": options}
        return _nullable(schema) if types.NoneType in type_arguments else schema
    if outer_type is Literal:
        values = [literal.value if isinstance(literal, enum.Enum) else literal for literal in type_arguments]
        return {"const": values[0]} if len(values) == 1 else {"enum": values}
    if type_hint in _PLAIN_SCHEMAS:
        return dict(_PLAIN_SCHEMAS[type_hint])
    if isinstance(type_hint, type) and issubclass(type_hint, enum.Enum):
        return {"enum": [member.value for member in type_hint]}
    if is_typeddict(type_hint) or dataclasses.is_dataclass(type_hint):
        defs[type_hint.__name__] = defs.get(type_hint.__name__) or _record_schema(type_hint, defs)
        return {"$ref": f"#/$defs/{type_hint.__name__}"}
    container = outer_type or type_hint
    if isinstance(container, type) and issubclass(container, Mapping):
        key_schema, value_schema = [_type_schema(argument, defs) for argument in type_arguments or (str, Any)]
        key_rule = {"propertyNames": key_schema} if "enum" in key_schema else {}
        return {"type": "object", **key_rule, **({"additionalProperties": value_schema} if value_schema else {})}
    if isinstance(container, type) and issubclass(container, Collection) and type_arguments:
        return {"type": "array", "items": _type_schema(type_arguments[0], defs)}
    raise TypeError(f"{type_hint} is nothing that JSON has")


def _union_members(type_hint: Any) -> tuple[Any, ...]:
    return get_args(type_hint) if get_origin(type_hint) in (Union, types.UnionType) else (type_hint,)


def _nullable(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return schema if "null" in schema.get("type", ()) else {"anyOf": [schema, {"type": "null"}]}


def _attribute_descriptions(record_type: Any) -> dict[str, str]:
    """Returns the lines below `Attributes:` of a dataclass and its bases, by attribute."""
    descriptions: dict[str, str] = {}
    for base in reversed(record_type.__mro__):
        _, _, attribute_lines = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")
        for names, text in re.findall(r"^  (\w+(?:, \w+)*): ((?:.|\n(?=    ))+)", attribute_lines, re.MULTILINE):
            descriptions |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return descriptions
