"""Options of commands that are declared once, where their settings are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from shown import texts_of

from lobench.cli import cli
from lobench.cli.options import OutputPath, options_of
from lobench.core.settings_field import option

SHOWN = texts_of("lobench")


@dataclass(frozen=True, kw_only=True)
class Below:
    tries: int = option(3, "How often.", least=1, most=9)
    seconds: float | None = option(None, "How long.", above=0)
    hidden: int = 0


@dataclass(frozen=True, kw_only=True)
class Settings(Below):
    files: tuple[str, ...] = option((), "Which files.", flag="--file -f")
    is_quiet: bool = option(False, "Say less.")


def parsed(*arguments: str, names: tuple[str, ...] = ()) -> Any:
    found: dict[str, Any] = {}
    command = click.command()(options_of(Settings, *names)(lambda **values: found.update(values)))
    done = CliRunner().invoke(command, arguments)
    return found if done.exit_code == 0 and "--help" not in arguments else done.output


def test_a_field_is_an_option_of_its_type_and_default() -> None:
    assert parsed() == {"files": (), "is_quiet": False, "tries": 3, "seconds": None}
    given = parsed("-f", "a", "--file", "b", "--is-quiet", "--tries", "9", "--seconds", "0.5")
    assert given == {"files": ("a", "b"), "is_quiet": True, "tries": 9, "seconds": 0.5}
    assert parsed(names=("tries",)) == {"tries": 3}


@pytest.mark.parametrize("arguments", [("--tries", "0"), ("--tries", "10"), ("--seconds", "0"), ("--seconds", "nan")])
def test_a_bound_is_kept(arguments: tuple[str, str]) -> None:
    assert SHOWN["invalid-value"] in parsed(*arguments)


def test_help_has_a_class_s_own_before_what_it_inherits_and_nothing_that_is_no_option() -> None:
    lines = [line.split()[0].strip(",") for line in parsed("--help").splitlines() if line.startswith("  -")]
    assert lines == ["-f", "--is-quiet", "--tries", "--seconds", "--help"]


def test_an_output_to_a_dash_is_printed_or_refused_by_every_command() -> None:
    context = click.Context(cli)
    outputs = {
        name: parameter.type
        for name in cli.list_commands(context)
        if (command := cli.get_command(context, name)) is not None
        for parameter in command.params
        if "--output" in parameter.opts
    }
    printed = set[str]()
    for name, kind in outputs.items():
        assert isinstance(kind, OutputPath), name
        assert kind.convert("./-", None, None) == Path("-")
        try:
            assert kind.convert("-", None, None) is None
            printed.add(name)
        except click.BadParameter as error:
            assert SHOWN["this-output-is-not-printed"] in error.message
    assert printed == {"results", "report"} and len(outputs) > 9
