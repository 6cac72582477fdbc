"""The documentation site: built without a network, whole, and as the code is."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest
from forked import ALL, python
from reference import ROOT
from shown import texts_of

SHOWN = texts_of("lobench")

NO_NETWORK = """
import socket

def refuse(self, address, *rest):
    if self.family != socket.AF_UNIX:
        raise OSError(f"the site asks for {address}")

socket.socket.connect = socket.socket.connect_ex = refuse
"""
BUILD = f"{NO_NETWORK}\nfrom mkdocs.__main__ import cli\n\ncli()"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, **ALL, "NO_MKDOCS_2_WARNING": "1"}
    # With --quiet, warnings would not be counted, and --strict would have no effect.
    done = python("-c", BUILD, "build", "--strict", "--site-dir", folder / "site", cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
    pages = list(site.rglob("*.html"))
    found = {page.name: urls for page in pages if (urls := loads.findall(page.read_text()))}
    assert len(pages) > 50 and not found
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", styles)


def test_every_link_between_pages_leads_somewhere(site: Path) -> None:
    """mkdocs checks what pages say; this looks at what it made of them, so of made pages too."""
    broken = []
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text())) for page in site.rglob("*.html")}
    for page in anchors:
        for link in re.findall(r'<a\b[^>]*href="([^":]*)"', page.read_text()):
            path, _, anchor = html.unescape(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            anchor = "" if anchor.startswith("/") else anchor  # a view of a report
            if page.name != "404.html" and not (target.exists() and (not anchor or anchor in anchors.get(target, ()))):
                broken.append((page.name, link))
    assert not broken


def test_every_command_and_option_is_on_its_page(site: Path) -> None:
    import click

    from lobench.cli import cli

    def is_shown(parameter: click.Parameter) -> bool:
        return isinstance(parameter, click.Option) and not parameter.hidden

    page, context = text_of(site / "reference" / "commands.html"), click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None and f"lobench {name}" in page
        assert SHOWN["comes-with-the-plugin-lobench"] not in page  # only those of others do
        options = [option for each in command.params if is_shown(each) for option in each.opts]
        assert not [option for option in options if option not in page], name
