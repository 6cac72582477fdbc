"""Check for repeated options: a second value of an option that takes one is an error, in every command.

click would silently keep the last value.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

__all__ = ["refuse_repeated_options"]

_MARK = "lobench_refuses_repeated_options"


def refuse_repeated_options(command: click.Command) -> click.Command:
    """Makes a command, and the commands of a group, reject a second value of an option. Returns the command."""
    if not hasattr(command, _MARK):
        setattr(command, _MARK, True)
        _check_before_parsing(command)
        for each in getattr(command, "commands", {}).values():
            refuse_repeated_options(each)
    return command


def _check_before_parsing(command: click.Command) -> None:
    own: Any = command.parse_args

    def parse_args(ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            given = Counter(command.make_parser(ctx).parse_args(args=list(args))[2])
            for option, count in given.items():
                takes_one = isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
                if takes_one and count > 1:
                    raise click.UsageError(f"{option.opts[0]} takes one value, and was given {count} times", ctx)
        parsed: list[str] = own(ctx, args)
        return parsed

    command.parse_args = parse_args  # type: ignore[method-assign]
