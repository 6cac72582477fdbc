"""`lobench list` and `lobench plugins`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lobench.cli.options import Name
from lobench.core.errors import LobenchError, UsageError

__all__ = ["list_things", "plugins"]

_HOOKS = {
    "sources": "lobench_checkpoint_sources",
    "readers": "lobench_checkpoint_readers",
    "sinks": "lobench_result_sinks",
    "executors": "lobench_executors",
    "policies": "lobench_admission_policies",
    "strategies": "lobench_selection_strategies",
    "searches": "lobench_search_strategies",
    "metrics": "lobench_metrics",
    "commands": "lobench_cli_commands",
}


@click.command(name="list")
@click.argument("kind", metavar="KIND", type=Name(["tasks", "optimizers", "schedules", "suites", *_HOOKS]))
@click.option(
    "--folder", type=click.Path(path_type=Path), help="For suites: yours (default: ./suites, and lobench's own)."
)
@click.option("-v", "--verbose", is_flag=True, help="Tasks, optimizers, schedules: their settings and sources too.")
def list_things(kind: str, folder: Path | None, verbose: bool) -> None:
    """List what gin files, suites and options can name.

    KIND: tasks, optimizers, schedules, suites, sources, readers, sinks, executors, policies, strategies, searches,
    metrics, commands.
    """
    from lobench.plugins import load_plugins
    from lobench.report.lines import text_table

    if kind == "suites":
        _list_suites(folder)
    elif kind in _HOOKS:
        found = load_plugins().declarations(_HOOKS[kind])
        if found:
            rows = [(name, each.declaration.summary, f"[{each.plugin}]") for name, each in found.items()]
            click.echo(text_table(rows))
    else:
        _list_configurables(kind, verbose=verbose)


def _list_suites(folder: Path | None) -> None:
    """One broken file hides none of the others; it is named, and the exit code is 2.

    Lobench's own suites go by the names that `--suite` takes, others by their paths.
    """
    from lobench.engine.config.shipped import name_of, shipped_folder
    from lobench.engine.config.suite import specs_in

    own, here = shipped_folder(), Path("suites")
    if folder is not None and not folder.is_dir():
        raise UsageError("there is no such folder", where=str(folder), next_step="name one with --folder")
    folders = [folder] if folder else [each for each in (here if here.resolve() != own else None, own) if each]
    broken = False
    for file in (file for each in folders for file in sorted(each.rglob("*.gin"))):
        try:
            names = [spec.name for spec in specs_in(file)]
        except LobenchError as error:
            broken = True
            click.echo(f"lobench: {error}", err=True)
            continue
        if names:
            click.echo(f"{name_of(file)}: {', '.join(names)}")
    if broken:
        sys.exit(2)


def _list_configurables(kind: str, *, verbose: bool) -> None:
    """Imports the gin modules, then sorts what they registered by its shape."""
    import inspect

    from lobench.cli.described import described
    from lobench.plugins import load_plugins
    from lobench.report.lines import text_table

    for found in load_plugins().declarations("lobench_gin_modules").values():
        module = importlib.import_module(found.declaration.name)
        if not found.declaration.name.endswith(kind):
            continue
        named = {name: getattr(module, name) for name in sorted(getattr(module, "__all__", ()))}
        on_use = getattr(module, "lobench_on_use", None)
        if verbose:
            more: dict[str, Callable[..., Any]] = getattr(on_use, "optimizers", dict)()
            click.echo("\n".join(line for name, made in {**named, **more}.items() for line in described(name, made)))
            continue
        docs = [(inspect.getdoc(made) or "\n").splitlines()[0] for made in named.values()]
        click.echo(text_table(list(zip(named, docs, strict=True))))
        if on_use:
            click.echo(on_use.summary)


@click.command()
def plugins() -> None:
    """Show every plugin with the hooks that it implements, and those that do not import."""
    from lobench.plugins import load_plugins

    manager = load_plugins()
    for name, hooks in manager.plugins():
        click.echo(f"{name}: {', '.join(hooks) or 'no hooks'}")
    for broken in manager.broken:
        click.echo(f"{broken.name} ({broken.distribution}) does not import: {broken.cause}", err=True)
