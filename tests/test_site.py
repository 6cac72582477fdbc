"""The documentation site: built without a network, whole, and as the code is."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import lobench as lobench_
from reference import ROOT
from shown import texts_of

import lobench
import lobench.extend
from lobench import hookspecs
from lobench.plugins import load_plugins

SHOWN = texts_of("lobench")

NO_NETWORK = """
import socket

def refuse(self, address, *rest):
    if self.family != socket.AF_UNIX:
        raise OSError(f"the site asks for {address}")

socket.socket.connect = socket.socket.connect_ex = refuse
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    # With --quiet, warnings would not be counted, and --strict would have no effect.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
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


def test_every_name_of_gin_is_on_a_page_with_its_fields(site: Path) -> None:
    pages = {kind: text_of(site / "reference" / f"{kind}.html") for kind in ("tasks", "optimizers", "schedules")}
    for kind, page in pages.items():
        named = [line.split()[0] for line in lobench_("list", kind).stdout.splitlines() if line[:1].isalnum()]
        assert len(named) > 5 and not [name for name in named if name not in page]
    assert "adam.learning_rate" in pages["optimizers"] and "DigitsMLP.hidden_sizes(32,)" in pages["tasks"].replace(
        "\n", ""
    )
    gin = text_of(site / "reference" / "gin.html")
    for field in ("Case.num_inner_steps", "Method.checkpoint", "Phase.opt_state", "expect.margin", "Evolve.strategy"):
        assert field in gin
    assert "Method.trainer_bindings" not in gin


def test_every_hook_has_its_signature_and_every_event_its_fields(site: Path) -> None:
    page = text_of(site / "reference" / "hooks.html")
    for name, hook in vars(hookspecs.HookSpecs).items():
        if name.startswith("lobench_"):
            event = inspect.signature(hook).parameters.get("event")
            assert f"{name}(event: {event.annotation})" in page if event else f"{name}()" in page
    for field in ("event.checkpoint", "event.seed_block", "event.evaluations", "event.curves"):
        assert field in page
    assert {name for name in dir(load_plugins().hook) if name.startswith("lobench_")} <= set(
        re.findall(r"lobench_\w+", page)
    )


def test_example_of_a_docstring_is_a_block_of_code(site: Path) -> None:
    page = text_of(site / "reference" / "extend.html")
    assert ">>> [member.id for member in front(members)]\n[1, 2]\n" in page


@pytest.mark.parametrize("module", ["lobench", "lobench.extend", "lobench.testing"])
def test_every_public_name_is_documented(site: Path, module: str) -> None:
    page = (site / "reference" / f"{module.removeprefix('lobench.')}.html").read_text()
    if module == "lobench.testing":
        assert 'id="lobench.testing.sinks.SinkContract"' in page and 'id="lobench.testing.parity.check"' in page
        return
    names = lobench.__all__ if module == "lobench" else lobench.extend.__all__
    assert not [name for name in names if f'id="{module}.{name}"' not in page]
