"""Check that `--output` replaces nothing that the command reads, and no result store, in every command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

__all__ = ["keep_inputs"]

_MARK = "lobench_keeps_inputs"
_OUTPUT = "output"
_DATABASE = "ledger.sqlite"  # with its journals, `-wal` and `-shm`


def keep_inputs(command: click.Command) -> click.Command:
    """Makes a command, and the commands of a group, reject an `--output` that it reads. Returns the command."""
    if not hasattr(command, _MARK):
        setattr(command, _MARK, True)
        _check_before_running(command)
        for each in getattr(command, "commands", {}).values():
            keep_inputs(each)
    return command


def _check_before_running(command: click.Command) -> None:
    own: Any = command.invoke

    def invoke(ctx: click.Context) -> Any:
        output = ctx.params.get(_OUTPUT)
        if isinstance(output, str | Path) and os.path.isfile(output):
            if os.path.basename(os.path.realpath(output)).startswith(_DATABASE):
                raise click.UsageError(f"--output {output} is the database of a result store; name another file", ctx)
            for read in _files(value for name, value in ctx.params.items() if name != _OUTPUT):
                if os.path.isfile(read) and os.path.samefile(read, output):
                    raise click.UsageError(f"--output {output} is what the command reads; name another file", ctx)
        return own(ctx)

    command.invoke = invoke  # type: ignore[method-assign]


def _files(values: Any) -> Iterator[str | Path]:
    for value in values:
        if isinstance(value, str | Path):
            yield value
        elif isinstance(value, tuple | list):
            yield from _files(value)
