"""Every command line of every page parses as it stands, and every block of Python compiles; others tests run them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from lobench.cli import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/tutorials/*.md")])
_ENDS = ("|", ">", ">>", "2>", "&&", "||", ";", "&")  # of what the shell gives to lobench


def blocks(text: str) -> list[tuple[str, str]]:
    """Returns language and text of each block: fenced, or indented by four blanks after an empty line."""
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.M | re.S)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    indented = re.findall(r"(?:^|\n)\n((?:    [^\n]*\n)+)", rest)
    return [*fenced, *(("", re.sub(r"^    ", "", found, flags=re.M)) for found in indented)]


def commands(text: str) -> list[list[str]]:
    """Returns the words of each line that calls lobench, up to what a shell takes for itself."""
    found = []
    for _, block in blocks(text):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.match(r"(?:\$ )?lobench (.*)", line.strip()):
                try:
                    words = shlex.split(match[1], comments=True)
                except ValueError:
                    continue  # a sentence that begins with the name
                end = next((i for i, word in enumerate(words) if word in _ENDS), None)
                found.append(words[:end])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_the_page_parses(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        if not words or words[0] == "..." or words[0].startswith(("-", "COMMAND")) or words[-1].endswith(("...", "…")):
            continue
        context = click.Context(cli, info_name="lobench")
        name, command, rest = cli.resolve_command(context, words)
        assert command is not None, f"{page.name}: no command {name!r}"
        while isinstance(command, click.Group) and rest:
            context = click.Context(command, info_name=name, parent=context)
            name, command, rest = command.resolve_command(context, rest)
        try:
            command.make_parser(click.Context(command, info_name=name, parent=context)).parse_args(rest)
        except click.UsageError as error:
            pytest.fail(f"{page.name}: lobench {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_python_on_the_page_compiles(page: Path) -> None:
    for language, block in blocks(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(block, str(page), "exec")


def test_options_of_pytest_on_all_pages_are_there(pytestconfig: pytest.Config) -> None:
    known = {name for option in pytestconfig._parser._groups for one in option.options for name in one.names()}
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--lobench-[a-z][a-z-]*[a-z]", page.read_text(encoding="utf-8")))
        assert not named - known, page.name
