"""Options that are numbers: what is none, or out of bounds, is refused by every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from commands import lobench
from shown import texts_of

from lobench.cli import cli

SHOWN = texts_of("lobench")


def float_options(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields (command, option) of every option that takes a float, plugins' commands included."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from float_options(below, *path, name)
    for param in command.params:
        if isinstance(param.type, click.types.FloatParamType):
            yield path, param.opts[0]


def test_no_option_takes_what_is_no_number() -> None:
    found = list(float_options(cli))
    assert (("watch",), "--max-core-hours") in found and (("compare",), "--margin") in found
    for path, option in found:
        done = lobench(*path, option, "nan", "x")
        assert done.returncode == 2 and SHOWN["invalid-value-for"].format(option=option) in done.stderr, (path, option)
        assert SHOWN["nan-is-not-in-the"] in done.stderr


@pytest.mark.parametrize("option", ["--idle-timeout", "--max-core-hours"])
def test_a_watch_does_not_end_before_it_began(option: str) -> None:
    done = lobench("watch", "x", "--suite", "x", option, "-1")
    assert done.returncode == 2 and SHOWN["invalid-value-for-1-0"].format(option=option) in done.stderr
