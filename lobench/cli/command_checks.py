"""Checks of every command: no option is given twice, and `--output` does not overwrite an input of the command.

click would silently keep the last value of an option.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

__all__ = ["with_checks"]

_CHECKED_ATTRIBUTE = "lobench_checks"
_OUTPUT_PARAMETER = "output"
_DATABASE = "ledger.sqlite"  # its journals `-wal` and `-shm` are database files, too


def with_checks(command: click.Command) -> click.Command:
    """Adds the checks to a command, and to the commands of a group. Returns the command."""
    if not hasattr(command, _CHECKED_ATTRIBUTE):
        setattr(command, _CHECKED_ATTRIBUTE, True)
        _refuse_repeated_options(command)
        _refuse_overwritten_inputs(command)
        for subcommand in getattr(command, "commands", {}).values():
            with_checks(subcommand)
    return command


def _refuse_repeated_options(command: click.Command) -> None:
    original_parse_args: Any = command.parse_args

    def parse_args(ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            counts_by_option = Counter(command.make_parser(ctx).parse_args(args=list(args))[2])
            for option, count in counts_by_option.items():
                takes_one = isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
                if takes_one and count > 1:
                    raise click.UsageError(f"{option.opts[0]} takes one value, and was given {count} times", ctx)
        remaining: list[str] = original_parse_args(ctx, args)
        return remaining

    command.parse_args = parse_args  # type: ignore[method-assign]


def _refuse_overwritten_inputs(command: click.Command) -> None:
    original_invoke: Any = command.invoke

    def invoke(ctx: click.Context) -> Any:
        output = ctx.params.get(_OUTPUT_PARAMETER)
        if isinstance(output, str | Path) and os.path.isfile(output):
            if os.path.basename(os.path.realpath(output)).startswith(_DATABASE):
                raise click.UsageError(f"--output {output} is the database of a result store; name another file", ctx)
            for input_file in _paths_in(value for name, value in ctx.params.items() if name != _OUTPUT_PARAMETER):
                if os.path.isfile(input_file) and os.path.samefile(input_file, output):
                    raise click.UsageError(f"--output {output} is an input of the command; name another file", ctx)
        return original_invoke(ctx)

    command.invoke = invoke  # type: ignore[method-assign]


def _paths_in(values: Any) -> Iterator[str | Path]:
    for value in values:
        if isinstance(value, str | Path):
            yield value
        elif isinstance(value, tuple | list):
            yield from _paths_in(value)
