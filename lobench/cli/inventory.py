"""The commands `lobench list` and `lobench plugins`."""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NotRequired, TypedDict

import click

from lobench.cli.exit_codes import ExitCode
from lobench.cli.options import Name
from lobench.cli.output import emit, format_option, show
from lobench.core.containment import contain_plugins
from lobench.core.errors import LobenchError, PluginFailure, UsageError
from lobench.core.wording import headline
from lobench.plugins import BrokenPlugin

__all__ = ["list_things", "plugins"]


class Item(TypedDict):
    name: str
    shape: NotRequired[Annotated[str, "Of a parameter: type and shape, `float32[64, 32]`."]]
    summary: NotRequired[str]
    plugin: NotRequired[str]
    cases: NotRequired[list[str]]
    settings: NotRequired[str]
    source: NotRequired[str]


class ListRecord(TypedDict):
    """`lobench list KIND`: the available names."""

    kind: str
    items: list[Item]
    broken: Annotated[list[str], "One line for each file that could not be read. If there are any, the exit code is 2."]


class ListedPlugin(TypedDict):
    name: str
    hooks: list[str]


class PluginsRecord(TypedDict):
    """`lobench plugins`: plugins, their hooks, and plugins that cannot be imported."""

    plugins: list[ListedPlugin]
    broken: list[BrokenPlugin]


_REST_LINK = re.compile(r"`([^<`]+?)\s*<([^>]+)>`_+")

_HOOK_BY_KIND = {
    "sources": "lobench_checkpoint_sources",
    "readers": "lobench_checkpoint_readers",
    "sinks": "lobench_result_sinks",
    "executors": "lobench_executors",
    "policies": "lobench_admission_policies",
    "strategies": "lobench_selection_strategies",
    "searches": "lobench_search_strategies",
    "metrics": "lobench_metrics",
    "figures": "lobench_report_sections",
    "formats": "lobench_import_formats",
    "commands": "lobench_cli_commands",
}
_GIN_KINDS = ("tasks", "optimizers", "weighters", "continual", "schedules")
_KIND_SUMMARIES = {
    "tasks": "inner problems, for `Case.task`",
    "optimizers": "optimizers, for `--optimizer` and `Case.learned_optimizer`",
    "weighters": "weighters of several losses, around another optimizer",
    "continual": "methods of continual learning, around another optimizer",
    "schedules": "schedules of rates",
    "suites": "suites with their cases",
    "parameters": "parameters of a case by path, for `no_decay`, `groups` and the like",
    "sources": "where checkpoints come from, for `lobench watch`",
    "readers": "formats of checkpoints",
    "sinks": "where results go, for `--sink`",
    "executors": "where evaluations run, for `--executor`",
    "policies": "which waiting checkpoints are evaluated, for `--checkpoints`",
    "strategies": "how populations select members",
    "searches": "searches, for `Method.search`",
    "metrics": "metrics that plugins add to those of the tasks",
    "figures": "figures that plugins add to the report",
    "formats": "formats of `lobench import`, for `--kind`",
    "commands": "commands that plugins add",
}


@click.command(name="list")
@click.argument("kind", metavar="[KIND]", default="kinds", type=Name(["kinds", *_KIND_SUMMARIES]))
@click.argument("case", metavar="[CASE]", default="")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="For suites: folder of suites (default: ./suites, and lobench's own).",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="For names of gin (tasks, optimizers, ...): show settings and sources too."
)
@format_option("text", "json", name="output_format", prints={"list": f"{__name__}:ListRecord"})
def list_things(kind: str, case: str, folder: Path | None, verbose: bool, output_format: str) -> None:
    """List the names that gin files, suites and options accept.

    KIND: tasks, optimizers, weighters, continual, schedules, suites, parameters, sources, readers, sinks, executors,
    policies, strategies, searches, metrics, figures, formats, commands. Without KIND, list the kinds.

    CASE: for parameters, the case that has them: quick/relu32, or FILE.gin:NAME.
    """
    errors = list[LobenchError]()
    if kind == "parameters" and not case:
        raise UsageError("the parameters of which case?", expected="lobench list parameters SUITE/CASE")
    if case and kind != "parameters":
        raise UsageError(f"`lobench list {kind}` takes no further argument", got=repr(case))
    if kind == "kinds":
        items = _list_kinds()
    elif kind == "parameters":
        items = _list_parameters(case)
    elif kind == "suites":
        items = _list_suites(folder, errors)
    elif kind in _HOOK_BY_KIND:
        items = _list_declared(_HOOK_BY_KIND[kind])
    else:
        items = _list_configurables(kind, verbose=verbose)
    if output_format == "json":
        emit("list", ListRecord(kind=kind, items=items, broken=[str(error) for error in errors]))
    if errors:
        sys.exit(ExitCode.USAGE)


def _list_kinds() -> list[Item]:
    from lobench.report.tables.text import description_list

    show(description_list((f"lobench list {name}", summary) for name, summary in _KIND_SUMMARIES.items()))
    return [{"name": name, "summary": summary} for name, summary in _KIND_SUMMARIES.items()]


def _list_declared(hook: str) -> list[Item]:
    from lobench.cli.group import own_commands
    from lobench.plugins import load_plugins
    from lobench.report.tables.text import description_list

    manager = load_plugins()
    hidden_commands = own_commands() if hook == "lobench_cli_commands" else {}
    registered_by_name = {
        name: registered
        for name, registered in manager.usable_declarations(hook).items()
        if name not in hidden_commands
    }
    if registered_by_name:
        show(
            description_list(
                (name, f"{registered.declaration.summary} [{registered.plugin}]")
                for name, registered in registered_by_name.items()
            )
        )
    else:
        show("none: no installed plugin adds any")
    for plugin in manager.broken:
        if plugin.distribution != hook:  # it did not import, so its names are missing above
            print(f"lobench: plugin {plugin}", file=sys.stderr)
    manager.declarations(hook)  # raises if two plugins declare one name; the list above has the others
    # A hook that declares failed.
    if hook_failures := [failure for failure in manager.broken if failure.distribution == hook]:
        raise PluginFailure(hook_failures[0].cause)
    return [
        {"name": name, "summary": registered.declaration.summary, "plugin": registered.plugin}
        for name, registered in registered_by_name.items()
    ]


def _list_parameters(case: str) -> list[Item]:
    from lobench.engine.checkpoints.given import gin_layers_at
    from lobench.engine.config.bound import binds_optimizer
    from lobench.engine.config.suite import find_case
    from lobench.evaluation.runner import BlockRunner
    from lobench.plugins import load_plugins
    from lobench.report.tables.text import description_list

    _, spec = find_case(case)
    layers = replace(gin_layers_at("", load_plugins()), import_folders=(str(Path(spec.path).parent),))
    if not binds_optimizer(spec, layers):
        layers = replace(layers, gin_params=("Case.optimizer = @lobench.sgd()",))  # the parameters do not depend on it
    shapes = BlockRunner(layers).parameters(spec)
    show(description_list((path or '""', shape) for path, shape in shapes.items()))
    return [{"name": path, "shape": shape} for path, shape in shapes.items()]


def _list_suites(folder: Path | None, errors: list[LobenchError]) -> list[Item]:
    """Lists suites. Files that cannot be read are reported, and do not hide the others; the exit code is then 2.

    Lobench's own suites are listed by the names that `--suite` accepts, others by their paths.
    """
    from lobench.engine.config.shipped import shipped_folder, suite_name
    from lobench.engine.config.suite import specs_in

    builtin_folder = shipped_folder()
    local_folder = Path("suites")
    if folder is not None and not folder.is_dir():
        raise UsageError("no such folder", where=str(folder), next_step="name one with --folder")
    folders = (
        [folder]
        if folder
        else [
            candidate
            for candidate in (local_folder if local_folder.resolve() != builtin_folder else None, builtin_folder)
            if candidate
        ]
    )
    items = list[Item]()
    for file in (file for folder in folders for file in sorted(folder.rglob("*.gin"))):
        try:
            names = [spec.name for spec in specs_in(file)]
        except LobenchError as error:
            errors.append(error)
            click.echo(f"lobench: {error}", err=True)
            continue
        if names:
            show(f"{suite_name(file)}: {', '.join(names)}")
            items.append({"name": suite_name(file), "cases": names})
    return items


def _list_configurables(kind: str, *, verbose: bool) -> list[Item]:
    """Lists the configurables of a kind in the gin modules of lobench and of plugins."""
    from lobench.plugins import load_plugins
    from lobench.report.tables.text import description_list

    configurables = dict[str, Callable[..., Any]]()
    summaries = list[str]()
    for gin_module in load_plugins().usable_declarations("lobench_gin_modules").values():
        module_name, _, _ = gin_module.declaration.factory.partition(":")
        try:
            with contain_plugins():
                module = importlib.import_module(module_name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (a plugin boundary: named, and the others are listed)
            where = f"plugin {gin_module.plugin!r}, hook lobench_gin_modules"
            failure = PluginFailure(f"cannot import {module_name!r}", where=where, got=headline(error))
            click.echo(f"lobench: {failure}; going on", err=True)
            continue
        configurables |= {name: getattr(module, name) for name in sorted(_names_of_kind(module, kind))}
        resolver = getattr(module, "lobench_on_use", None)
        if resolver is not None and module_name.endswith(kind):
            if verbose:
                configurables |= getattr(resolver, "optimizers", dict)()
            else:
                summaries.append(resolver.summary)
    if verbose:
        show(
            "\n".join(line for name, configurable in configurables.items() for line in _item_lines(name, configurable))
        )
    elif configurables:
        show(
            description_list(
                (name, _item_of(name, configurable)["summary"]) for name, configurable in configurables.items()
            )
        )
    for summary in summaries:
        show(summary)
    return [_item_of(name, configurable) for name, configurable in configurables.items()]


def _names_of_kind(module: ModuleType, kind: str) -> set[str]:
    """Returns the public configurables of a gin module that are of a kind.

    The kind is declared by the module's `lobench_kinds`. Without it, the end of the module's name or, failing that, the
    methods of a configurable determine the kind.
    """
    other_kinds: dict[str, Collection[str]] = getattr(module, "lobench_kinds", {})
    names = set(getattr(module, "__all__", ())).difference(*other_kinds.values())
    module_kinds = [suffix for suffix in _GIN_KINDS if module.__name__.endswith(suffix)]
    if not module_kinds:
        names = {name for name in names if _kind_by_methods(getattr(module, name)) == kind}
    elif kind not in module_kinds:
        names = set()
    return names.union(other_kinds.get(kind, ()))


def _kind_by_methods(configurable: object) -> str:
    """Returns "tasks" for the classes of tasks and families, "optimizers" for learned optimizers, else ""."""
    if not inspect.isclass(configurable):
        return ""
    if hasattr(configurable, "opt_fn"):
        return "optimizers"
    is_task = hasattr(configurable, "init") and hasattr(configurable, "loss")
    return "tasks" if is_task or hasattr(configurable, "task_fn") else ""


def _item_lines(name: str, configurable: Callable[..., Any]) -> list[str]:
    """Returns lines: the name and its first sentence, the settings with their defaults, and the source if known."""
    description = _item_of(name, configurable)
    heading = f"{name}  {description['summary']}".rstrip()
    return [heading, *(f"    {detail}" for detail in (description["settings"], description["source"]) if detail)]


def _item_of(name: str, configurable: Callable[..., Any]) -> Item:
    """Returns name, summary, settings and source, each on one line; "" for missing ones."""
    doc_lines = (inspect.getdoc(configurable) or "").splitlines()
    return {
        "name": name,
        "summary": doc_lines[0] if doc_lines else "",
        "settings": _settings_text(configurable),
        "source": _source_text(doc_lines),
    }


def _settings_text(configurable: Callable[..., Any]) -> str:
    """Returns the settings: `learning_rate = 0.001, b1 = 0.9`. A setting without default has only its name."""
    parameters = (
        parameter
        for parameter in inspect.signature(configurable).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    )
    return ", ".join(
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name} = {_value_text(parameter.default)}"
        for parameter in parameters
    )


def _value_text(value: object) -> str:
    is_plain = value is None or isinstance(value, str | int | float) or type(value) in (tuple, list)
    return repr(value) if is_plain else getattr(value, "__name__", type(value).__name__)


def _source_text(doc_lines: Iterable[str]) -> str:
    """Returns the first source or reference in a docstring, in one line."""
    lines_from_source = list(
        itertools.dropwhile(lambda line: not line.startswith(("Source:", "References:")), doc_lines)
    )
    if not lines_from_source:
        return ""
    source_lines = [lines_from_source[0].partition(":")[2], *itertools.takewhile(str.strip, lines_from_source[1:])]
    text = " ".join(line.strip() for line in source_lines if line.strip())
    return "Source: " + _REST_LINK.sub(r"\1, \2", text)


@click.command()
@format_option("text", "json", name="output_format", prints={"plugins": f"{__name__}:PluginsRecord"})
def plugins(output_format: str) -> None:
    """Show every plugin with the hooks that it implements, and those that do not import."""
    from lobench.plugins import load_plugins

    manager = load_plugins()
    listed_plugins = [ListedPlugin(name=name, hooks=hooks) for name, hooks in manager.plugins()]
    for plugin in listed_plugins:
        show(f"{plugin['name']}: {', '.join(plugin['hooks']) or 'no hooks'}")
    for broken_plugin in manager.broken:
        click.echo(str(broken_plugin), err=True)
    if output_format == "json":
        emit("plugins", PluginsRecord(plugins=listed_plugins, broken=manager.broken))
