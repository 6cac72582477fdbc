"""Every command line of every page parses as it stands, those too that no test runs on this machine."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from pages import blocks_of, commands_of, path_of
from reference import ROOT

from lobench.cli import cli

DOCS = ROOT / "docs"
PAGES = [path.relative_to(DOCS).as_posix() for path in sorted([*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")])] + [
    "README.md"
]
_ENDS = ("|", ">", ">>", "2>", "&&", "||", ";", "&")  # of what the shell gives to lobench


def calls_of(page: str) -> list[list[str]]:
    """Returns the words of each line that calls lobench, up to what a shell takes for itself."""
    found = []
    for block in blocks_of(page):
        for command in commands_of(block.text) if block.language == "bash" else ():
            for match in re.finditer(r"^\s*(?:\w+=\S* )?lobench (.*)", command, re.MULTILINE):
                words = shlex.split(match[1], comments=True)
                found.append(words[: next((i for i, word in enumerate(words) if word in _ENDS), None)])
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_parses(page: str) -> None:
    for words in calls_of(page):
        context = click.Context(cli, info_name="lobench")
        name, command, rest = cli.resolve_command(context, words)
        while isinstance(command, click.Group) and rest:
            context = click.Context(command, info_name=name, parent=context)
            name, command, rest = command.resolve_command(context, rest)
        assert command is not None
        try:
            command.make_parser(click.Context(command, info_name=name, parent=context)).parse_args(rest)
        except click.UsageError as error:
            pytest.fail(f"{page}: lobench {shlex.join(words)}: {error.format_message()}")


def test_options_of_pytest_on_all_pages_are_there(pytestconfig: pytest.Config) -> None:
    known = {name for option in pytestconfig._parser._groups for one in option.options for name in one.names()}
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--lobench-[a-z][a-z-]*[a-z]", path_of(page).read_text(encoding="utf-8")))
        assert not named - known, page
