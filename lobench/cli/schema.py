"""Options and output of `lobench schema`."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Collection, Iterator
from typing import Annotated, TypedDict

import click

from lobench.cli.json_schema import Schema, json_schema
from lobench.cli.output import FormatOption, emit, emit_text, format_option
from lobench.core.errors import PluginError, UsageError, suggestion
from lobench.core.lazy import loaded

__all__ = ["document_schema", "documents", "schema"]


class SchemaEntry(TypedDict):
    name: str
    file: Annotated[str, "Python file that defines the type."]
    title: str


class SchemaRecord(TypedDict):
    """`lobench schema`: the available schemas."""

    schemas: list[SchemaEntry]


@click.command(
    epilog="""\b
Examples:
  lobench schema
  lobench schema run
  lobench schema results.methods > methods.schema.json
  lobench schema error

Exit codes: 0, 2 usage."""
)
@click.argument("name", default="", metavar="[NAME]")
@format_option("text", "json", name="output_format", prints={"schema": f"{__name__}:SchemaRecord"})
def schema(name: str, output_format: str) -> None:
    """Print the JSON Schema of a command's output under --format json; without NAME, list the schemas.

    NAME is a command, with a dot and a word if it prints several documents: run, run.plan, results.history. A document
    names its schema: "lobench/run/1". The number increases when a field is removed or changes its meaning, not when a
    field is added.
    """
    type_paths = documents()
    if name:
        emit_text(json.dumps(document_schema(_known_schema_name(name, type_paths)), indent=1) + "\n")
        return
    if output_format == "json":
        emit(
            "schema",
            SchemaRecord(
                schemas=[_schema_entry(schema_name, type_path) for schema_name, type_path in type_paths.items()]
            ),
        )
        return
    from lobench.report.tables.text import description_list

    click.echo(description_list((schema, document_schema(schema)["title"]) for schema in type_paths))


def document_schema(name: str) -> Schema:
    """Returns the schema of a document of `documents`."""
    return json_schema(name, loaded(documents()[name]))


@functools.cache
def documents() -> dict[str, str]:
    """Returns the import path of the record's type for each document that commands print, by name."""
    type_paths = {"error": "lobench.cli.output:ErrorRecord"}
    for option in (option for command in _commands() for option in command.params):
        type_paths |= option.prints if isinstance(option, FormatOption) else {}
    return dict(sorted(type_paths.items()))


def _commands() -> Iterator[click.Command]:
    from lobench.cli.group import cli

    context = click.Context(cli)
    for name in cli.list_commands(context):
        try:
            command = cli.get_command(context, name)
        except PluginError as error:
            click.echo(f"lobench: {error}", err=True)
            continue
        yield from command.commands.values() if isinstance(command, click.Group) else [command] if command else []


def _schema_entry(name: str, type_path: str) -> SchemaEntry:
    file = sys.modules[loaded(type_path) and type_path.partition(":")[0]].__file__
    return SchemaEntry(name=f"lobench/{name}/1", file=str(file), title=document_schema(name)["title"])


def _known_schema_name(name: str, schema_names: Collection[str]) -> str:
    short_name = name.removeprefix("lobench/").partition("/")[0]
    if short_name not in schema_names:
        names_in_group = [schema_name for schema_name in schema_names if schema_name.startswith(f"{short_name}.")]
        raise UsageError(
            "no such schema",
            got=repr(name),
            expected=f"one of {', '.join(names_in_group or schema_names)}",
            next_step=suggestion(short_name, schema_names),
        )
    return short_name
