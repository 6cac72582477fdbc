"""Options and output of `lobench new`."""

from __future__ import annotations

from pathlib import Path

import click

from lobench.cli.options import Name
from lobench.cli.output import emit, format_option

__all__ = ["new"]

_KINDS = ["suite", "task", "optimizer", "sink", "plugin", "skill"]


@click.command(
    epilog="""\b
Examples:
  lobench new suite mysuite
  lobench new suite myevals --command
  lobench new suite mytests --test
  lobench new task my_task --into mysuite
  lobench new optimizer MyLOpt
  lobench new sink mydb --into mysuite
  lobench new plugin mine
  lobench new skill .claude/skills/lobench-keep

Exit codes: 0, 2 usage: nothing was written."""
)
@click.argument("what", metavar="|".join(_KINDS), type=Name(_KINDS))
@click.argument("name", metavar="NAME")
@click.option(
    "--into", type=click.Path(path_type=Path), help="Existing folder to write into (default: a new folder NAME)."
)
@click.option("--command", is_flag=True, help="With suite: cases that are commands, in any framework.")
@click.option("--test", is_flag=True, help="With suite: ordinary tests that run once for each checkpoint.")
@format_option("text", "json", name="output_format", prints={"new": "lobench.tools.new.new:NewRecord"})
def new(what: str, name: str, into: Path | None, command: bool, test: bool, output_format: str) -> None:
    """Write a new suite, task, optimizer, sink or plugin: working files with their tests, for you to edit.

    NAME is the name of the module; a class gets it in CamelCase. `skill` writes SKILL.md into the folder NAME: how an
    agent decides about changes with `lobench keep`. Nothing is overwritten.
    """
    from lobench.tools.new.new import new as write_skeleton

    skeleton = write_skeleton(what, name, into=into, command=command, test=test)  # type: ignore[arg-type]  # checked by click
    for path in skeleton.files:
        click.echo(path)
    click.echo(f"\nnext: {skeleton.next_command}")
    if output_format == "json":
        emit("new", skeleton)
