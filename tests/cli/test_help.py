"""`lobench --help` shows each command once, in the section that says what it is for."""

from __future__ import annotations

import shlex

import click
import pytest
from commands import lobench
from shown import texts_of

from lobench.cli.group import cli, own_commands, plugin_commands
from lobench.cli.help_lines import folded_help

SHOWN = texts_of("lobench")


def test_help_lists_each_command_in_one_section() -> None:
    output = lobench("--help").stdout
    listed = [line.split()[0] for line in output.splitlines() if line[:2] == "  " != line[:3]]
    titles = [line.rstrip(":") for line in output.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", "Run", "Look", "Ask", "Share", SHOWN["set-up"]]
    assert sorted(set(own_commands()) & set(listed)) == sorted(own_commands())
    assert all(listed.count(name) == 1 for name in own_commands())


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", sorted([*own_commands(), *plugin_commands()]))
def test_no_line_of_a_help_is_wider_than_the_terminal(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with click.Context(cli, info_name="lobench") as context:
        command = cli.get_command(context, name)
        assert command is not None
        text = command.get_help(click.Context(command, info_name=name, parent=context))
    assert [line for line in text.splitlines() if len(line) > width] == []


def test_folded_example_is_the_same_command_when_it_is_pasted() -> None:
    words = ["lobench", "keep", "--command", "python train.py --seed {seed} --out {out}", *("--link", "data") * 9]
    line = "    " + shlex.join(words)
    lines = folded_help(line, 60).splitlines()
    assert len(lines) > 1 and all(len(each) <= 60 for each in lines)
    assert shlex.split(folded_help(line, 60).replace("\\\n", " ")) == words
    assert not [each for each in lines if each.rstrip("\\ ").endswith("--link")], "an option stays beside its value"


def test_folded_line_with_a_single_apostrophe_keeps_it() -> None:
    line = f"  lobench runs what the suite's gin files bind {'a' * 30}"
    assert folded_help(line, 40).replace("\\\n", " ").split() == line.split()
