"""The commands of `lobench` and the options that pytest gets, as click and pytest know them."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import click
from words import escaped, prose, table

from lobench.cli import cli
from lobench.plugins import load_plugins
from lobench.pytest_plugin.options import add_options

__all__ = ["commands_page", "pytest_page"]


def commands_page() -> str:
    """Returns the page of every command, those of installed plugins last."""
    context = click.Context(cli, info_name="lobench")
    of_plugins = load_plugins().declarations("lobench_cli_commands")
    parts = ["# Commands", "`lobench COMMAND --help` says the same on a terminal."]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts.append(f"## lobench {name}")
        if name in of_plugins and not of_plugins[name].plugin.startswith("lobench."):
            parts.append(f"Comes with the plugin `{of_plugins[name].plugin}`.")
        parts += _command(command, click.Context(command, info_name=f"lobench {name}"))
    return "\n\n".join(parts) + "\n"


def _command(command: click.Command, context: click.Context) -> list[str]:
    parts = [_block(command.get_usage(context).removeprefix("Usage: ")), _text(command.help or "")]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            assert sub is not None
            inner = click.Context(sub, info_name=f"{context.info_name} {name}")
            parts += [f"### {inner.info_name}", *_command(sub, inner)]
    rows = [row for parameter in command.params if (row := _option(parameter)) is not None]
    if rows:
        parts.append(table(("option", "", "default"), rows))
    if command.epilog:
        parts.append(_text(command.epilog))
    return [part for part in parts if part]


def _option(parameter: click.Parameter) -> tuple[str, str, str] | None:
    if not isinstance(parameter, click.Option) or parameter.hidden:
        return None
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    kind = "" if parameter.is_flag else f" {parameter.make_metavar(click.Context(click.Command('x')))}"
    notes = [escaped(parameter.help or "")]
    notes += ["May be given again."] if parameter.multiple and "again" not in (parameter.help or "") else []
    notes += ["Required."] if parameter.required else []
    return f"`{names}{kind}`", " ".join(notes), _default(parameter)


def _default(parameter: click.Option) -> str:
    value = parameter.to_info_dict()["default"]
    return "" if value in (None, "", False) or callable(value) or parameter.multiple else f"`{value}`"


def _text(text: str) -> str:
    """Returns click's text: paragraphs that begin with \\b keep their lines."""
    parts = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        kept = textwrap.dedent(paragraph).partition("\b\n")
        parts.append(_block(kept[2]) if kept[1] else prose(kept[0]))
    return "\n\n".join(parts)


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


class _Recorded:
    """Takes what a plugin tells pytest's parser."""

    def __init__(self) -> None:
        self.options: list[tuple[str, dict[str, Any]]] = []
        self.ini: list[tuple[str, str]] = []

    def getgroup(self, *_: Any) -> _Recorded:
        return self

    def addoption(self, name: str, **words: Any) -> None:
        self.options.append((name, words))

    def addini(self, name: str, text: str, **_: Any) -> None:
        self.ini.append((name, text))


def pytest_page() -> str:
    """Returns the page of the options `--lobench-*`."""
    received = _Recorded()
    add_options(received)  # type: ignore[arg-type]  # it is asked for these three methods alone
    of_ini = {name for name, _ in received.ini}
    rows = []
    for name, words in received.options:
        value = "" if words.get("action") == "store_true" else " VALUE"
        ini = name.removeprefix("--").replace("-", "_")
        rows.append((f"`{name}{value}`", escaped(words["help"]), f"`{ini}`" if ini in of_ini else ""))
    text = (
        "A suite is run by pytest itself. These are lobench's options; what has an ini name may stand in its ini file."
    )
    return f"# Options of pytest\n\n{text}\n\n{table(('option', '', 'ini name'), rows)}\n"
