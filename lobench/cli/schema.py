"""The command `lobench schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

import click

from lobench.cli.output import emit, emit_text, format_option
from lobench.core.errors import UsageError, suggestion

__all__ = ["schema", "schema_files"]


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
@format_option("text", "json")
def schema(name: str, kind: str) -> None:
    """Print the JSON Schema of what a command prints under --format json; without NAME, which schemas there are.

    NAME is a command, with a point and a word where it prints several things: run, run.plan, results.history. What is
    printed names its schema: "lobench/run/1". The number grows where a field goes or changes its meaning; a field that
    is added leaves it.
    """
    files = schema_files()
    if name:
        emit_text(_found(files, name).read_text(encoding="utf-8"))
        return
    found = [(each, json.loads(file.read_text(encoding="utf-8"))) for each, file in files.items()]
    if kind == "json":
        said = [{"name": _id(one), "file": str(files[each]), "title": one["title"]} for each, one in found]
        emit("schema", {"schemas": said})
        return
    from lobench.report.tables.text import text_table

    click.echo(text_table([(each, one["title"]) for each, one in found], left={0, 1}))


def schema_files() -> dict[str, Traversable]:
    """Returns the schemas by name: those in the folder `schemas` beside each command."""
    return dict(sorted((file.name.removesuffix(".json"), file) for file in _files()))


def _files() -> Iterator[Traversable]:
    from lobench.plugins import load_plugins

    declared = load_plugins().declarations("lobench_cli_commands").values()
    modules = [each.declaration.factory.partition(":")[0] for each in declared]
    packages = {name for module in modules for name in (module.partition(".")[0], module.rpartition(".")[0])}
    for package in sorted(packages - {""}):
        folder = resources.files(package).joinpath("schemas")
        if folder.is_dir():
            yield from (file for file in folder.iterdir() if file.name.endswith(".json"))


def _found(files: dict[str, Traversable], name: str) -> Traversable:
    short = name.removeprefix("lobench/").partition("/")[0]
    if short not in files:
        several = [each for each in files if each.startswith(f"{short}.")]
        raise UsageError(
            "there is no such schema",
            got=repr(name),
            expected=f"one of {', '.join(several or files)}",
            next_step=suggestion(short, files),
        )
    return files[short]


def _id(one: dict[str, dict[str, dict[str, str]]]) -> str:
    body: dict[str, dict[str, str]] = one.get("properties") or one["items"]["properties"]  # type: ignore[assignment]
    return body["schema"]["const"]
