"""Options that are given twice: repeatable, or an error, in every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from shown import texts_of

from lobench.cli.group import cli

SHOWN = texts_of("lobench")


def _commands(group: click.Group, context: click.Context, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, context, (*path, name))
        elif command is not None:
            yield (*path, name)


COMMANDS = sorted(_commands(cli, click.Context(cli)))


def _command(path: tuple[str, ...]) -> click.Command:
    found: click.Command | None = cli
    for name in path:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name)
    assert found is not None
    return found


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_second_value_of_an_option_is_refused(path: tuple[str, ...]) -> None:
    single = [
        option
        for option in _command(path).params
        if isinstance(option, click.Option) and not (option.multiple or option.is_flag or option.count)
    ]
    for option in single:
        values = ["1"] * option.nargs
        result = CliRunner().invoke(cli, [*path, option.opts[0], *values, option.opts[0], *values])
        assert result.exit_code == 2, (option.opts, result.output)
        assert SHOWN["takes-one-value-and-was"].format(option=option.opts[0]) in result.output, (
            option.opts,
            result.output,
        )


def test_commands_of_plugins_are_checked_too() -> None:
    assert ("pbt", "serve") in COMMANDS and len(COMMANDS) > 30


def test_case_may_be_repeated_where_it_names_several() -> None:
    for name in ("run", "tune"):
        (option,) = (one for one in _command((name,)).params if "--case" in one.opts)
        assert isinstance(option, click.Option) and option.multiple
