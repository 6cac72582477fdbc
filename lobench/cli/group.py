"""Command group `lobench`, which imports each command only when it is used."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import click

from lobench.cli.command_checks import with_checks
from lobench.cli.exit_codes import ExitCode
from lobench.cli.help_lines import fit_help
from lobench.cli.options import accept_argument_or_option, did_you_mean
from lobench.cli.output import ErrorCode, emit_error, full_disk_error, json_stdout, open_streams, refused_file_error
from lobench.core.errors import LobenchError, PluginFailure
from lobench.core.lazy import loaded
from lobench.core.wording import describe_value, headline
from lobench.engine.chief.signals import obeying_interrupts

__all__ = ["cli", "main", "own_commands", "plugin_commands"]

_LIKELY_COMMANDS = {  # likely names of commands that have another name
    "evaluate": "lobench watch CHECKPOINT --suite SUITE --once",
    "eval": "lobench watch CHECKPOINT --suite SUITE --once",
    "train": "lobench run EXPERIMENT.gin",
    "show": "lobench results STORE",
}
_SECTIONS = {  # of `lobench --help`; other commands are under "Other"
    "Run": ("watch", "run", "tune", "baseline"),
    "Look": ("results", "compare", "report", "view", "list"),
    "Ask": ("best", "bisect", "ablate", "falsify", "keep", "alarm", "budget", "suite", "history", "debug"),
    "Share": ("publish", "audit", "site", "merge", "import", "convert", "score"),
    "Set up": ("new", "doctor", "plugins", "schema"),
}
_LIKELY_OPTIONS = {  # likely names of options, with the names that commands use for the same purpose
    "-k": ("--case",),
    "-n": ("--workers",),
    "-o": ("--output",),
    "-s": ("--seeds", "--suite"),
    "--by": ("--metric",),
    "--jobs": ("--workers",),
    "--lr": ("--optimizer",),
    "--sessions": ("--seeds",),
    "--num-seeds": ("--seeds", "--sessions"),
    "--num_seeds": ("--seeds", "--sessions"),
    "--seeds": ("--sessions",),
}
_SEEDS_ADVICE = {  # where the number of seeds is set for commands without an option for it
    "run": "the number of seeds is in the experiment file: Experiment.num_sessions = 4",
    "watch": "--gin-param Case.num_seeds=4 sets the number of seeds",
}
_ADVICE_BY_OPTION = {  # what to type for options that a command does not have
    **{
        (command, option): text
        for command, text in _SEEDS_ADVICE.items()
        for option in ("--sessions", "--seeds", "--num-seeds", "--num_seeds")
    },
    ("watch", "--optimizer"): "a checkpoint's config.gin names its optimizer; `lobench compare 'adam()' 'sgd()' "
    "--suite SUITE` evaluates optimizers without a checkpoint",
    ("run", "--optimizer"): "the experiment file names the optimizers: adam/Method.optimizer = @adam()",
}
_GUARDED_ATTRIBUTE = "lobench_guarded"  # attribute of the commands of plugins whose errors name the plugin
_PACKAGE_BY_COMMAND = {"evolve": "lobench-evolve", "pbt": "lobench-pbt"}  # commands that may not be installed

_EPILOG = """Plugins add commands of their own (evolve, pbt): `lobench list commands`.

\b
Examples:
  lobench watch runs/today --suite suites/quick --sink tensorboard
  lobench watch runs/today/theta.npz --suite suites/quick --once
  lobench results --store runs/today/lobench_results/quick --format json
  pytest suites/quick --lobench-checkpoint runs/today/theta.npz -n auto
"""


class _Group(click.Group):
    """Group that knows the names and summaries of commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(dict.fromkeys((*own_commands(), *plugin_commands())))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in own_commands():
            return fit_help(with_checks(_own_command(cmd_name)))
        plugin_command = plugin_commands().get(cmd_name)
        if plugin_command is None:
            _refuse_shared_name(cmd_name)
            return None
        command = plugin_command.load()
        if not isinstance(command, click.Command):
            raise PluginFailure(
                f"the command {cmd_name!r} is not a click command",
                where=f"plugin {plugin_command.plugin!r}",
                got=describe_value(command),
                next_step="decorate it with click.command()",
            )
        return fit_help(with_checks(_guard_plugin_command(command, cmd_name, plugin_command.plugin)))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0] in _LIKELY_COMMANDS:
                advice = f"; did you mean `{_LIKELY_COMMANDS[args[0]]}`?"
            elif args[0] in _PACKAGE_BY_COMMAND:
                package = _PACKAGE_BY_COMMAND[args[0]]
                advice = f"; it comes with the plugin {package}: pip install -e plugins/{package}"
            else:
                advice = did_you_mean(args[0], [*self.list_commands(ctx), *_PACKAGE_BY_COMMAND])
            raise click.UsageError(f"No such command {args[0]!r}{advice}", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # raises before the exit code is decided
        except BrokenPipeError:  # click would exit with 1, which means a failed verdict
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards unwritten output
            raise click.exceptions.Exit(ExitCode.NO_READER) from None
        except OSError as error:
            raise full_disk_error(error) or refused_file_error(error) or error from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        summaries = {name: summary for name, (_, summary) in own_commands().items()}
        width = max(map(len, summaries))
        names_in_sections = {name for names in _SECTIONS.values() for name in names}
        sections = {**_SECTIONS, "Other": tuple(name for name in summaries if name not in names_in_sections)}
        for title, names in sections.items():
            if rows := [(name.ljust(width), summaries[name]) for name in names if name in summaries]:
                with formatter.section(title):
                    formatter.write_dl(rows)


@functools.cache
def own_commands() -> dict[str, tuple[str, str]]:
    """Returns the import path and summary of lobench's own commands by name, without a plugin manager, which is slow.

    Packages declare their commands in `__init__.py`.
    """
    modules = [
        *map(importlib.import_module, ("lobench.experiments", "lobench.cli.builtin_commands")),
        *_tool_packages(),
    ]
    return {name: declaration for module in modules for name, declaration in module.COMMANDS.items()}


@functools.cache
def _tool_packages() -> list[ModuleType]:
    tools_folder = Path(__file__).parents[1] / "tools"
    folder_names = sorted(
        entry.name for entry in os.scandir(tools_folder) if os.path.exists(f"{entry.path}/__init__.py")
    )
    return [importlib.import_module(f"lobench.tools.{name}") for name in folder_names]


@functools.cache
def _own_command(name: str) -> click.Command:
    """Imports a command, and applies the functions of tools that add options to it (`OPTIONS`)."""
    command: click.Command = loaded(own_commands()[name][0])
    for tool in _tool_packages():
        if name in getattr(tool, "OPTIONS", {}):
            loaded(tool.OPTIONS[name])(command)
    accept_argument_or_option(command)
    return command


def _guard_plugin_command(command: click.Command, name: str, plugin: str) -> click.Command:
    """Wraps a plugin's command, so that errors in its code name the plugin."""
    original_invoke = command.invoke

    where = f"plugin {plugin!r}, hook lobench_cli_commands"

    def invoke_guarded(context: click.Context) -> Any:
        try:
            with _report_os_exit(f"lobench: {where}: the command {name!r} ended the process"):
                return original_invoke(context)
        except (LobenchError, OSError, EOFError, SystemExit, KeyboardInterrupt):
            raise
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BaseException as error:
            raise PluginFailure(f"the command {name!r} failed", where=where, got=headline(error)) from error

    if not hasattr(command, _GUARDED_ATTRIBUTE):  # a command that was not run before in this process
        setattr(command, _GUARDED_ATTRIBUTE, True)
        command.invoke = invoke_guarded  # type: ignore[method-assign, assignment]
    return command


@contextlib.contextmanager
def _report_os_exit(line: str) -> Iterator[None]:
    """Makes `os._exit` write a line to standard error and exit with 3, because 0 and 1 would look like verdicts."""
    original_exit = os._exit
    own_pid = os.getpid()

    def exit_with_message(status: int) -> NoReturn:
        if os.getpid() == own_pid:  # otherwise a process that was forked meanwhile
            os.write(2, f"{line}; got os._exit({status})\n".encode())
            original_exit(ExitCode.ERROR)
        original_exit(status)

    os._exit = exit_with_message
    try:
        yield
    finally:
        os._exit = original_exit


def _refuse_shared_name(name: str) -> None:
    """Raises PluginError if two plugins declare a command of this name."""
    from lobench.core.errors import UsageError
    from lobench.plugins import load_plugins

    with contextlib.suppress(UsageError):
        load_plugins().find("lobench_cli_commands", name, kind="command")


def plugin_commands() -> dict[str, Any]:
    """Returns the commands that other packages declare. A name that two of them declare is left out."""
    from lobench.plugins import load_plugins

    declared_commands = load_plugins().usable_declarations("lobench_cli_commands")
    return {
        name: declared_command for name, declared_command in declared_commands.items() if name not in own_commands()
    }


@click.group(
    cls=_Group,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(package_name="lobench")
@click.pass_context
def cli(context: click.Context) -> None:
    """pytest for learned optimizers: evaluate every checkpoint of a meta-training run."""
    if context.invoked_subcommand is not None:
        return
    from lobench.cli.first_look import first_look

    if lines := first_look(Path()):
        click.echo("\n".join([*lines, "", "`lobench --help` lists all commands."]))
        return
    click.echo(context.get_help())
    context.exit(ExitCode.USAGE)


def main() -> None:
    """Entry point of the console script. Exits with a code of `ExitCode`."""
    # Imports and stores that are read create many objects and no garbage: collections took 7% of the table of a store
    # of 100,000 evaluations.
    gc.set_threshold(100_000, 20, 10)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # otherwise Python scans all objects before the process ends
    open_streams()
    with obeying_interrupts(), json_stdout(sys.argv[1:]):
        code = _run()
    sys.exit(code)


def _run() -> int:
    """Runs the command, reports its errors, and returns the exit code."""
    try:
        result = cli(standalone_mode=False)
        return result if isinstance(result, int) else ExitCode.OK
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        emit_error("interrupted", ExitCode.INTERRUPTED)
        return ExitCode.INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx is not None else "", err=True)
        emit_error("no command was given", ExitCode.USAGE, where=_command_name(error))
        return ExitCode.USAGE
    except click.ClickException as error:
        click.echo(f"lobench: {_usage_line(error)}", err=True)
        emit_error(error.format_message(), ExitCode.USAGE, where=_command_name(error))
        return ExitCode.USAGE
    except LobenchError as error:
        exit_code: ErrorCode = ExitCode.ERROR if isinstance(error, PluginFailure) else ExitCode.USAGE
        click.echo(f"lobench: {error}", err=True)
        emit_error(error, exit_code)
        return exit_code
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  (Python would exit with 1, which means a failed verdict)
        import traceback

        traceback.print_exc()
        click.echo("lobench: internal error in lobench or in a plugin; this is not a verdict", err=True)
        emit_error(headline(error), ExitCode.ERROR)
        return ExitCode.ERROR


def _usage_line(error: click.ClickException) -> str:
    """Returns one line on a wrong command line, with the command that lists the options."""
    message = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption) and (advice := _option_advice(error)):
        message = f"No such option {error.option_name!r}; {advice}"
    if "unexpected extra argument" in message and _has_option(error, "--command"):
        message += "; put the command in quotes behind --command: --command 'python train.py --seed {seed} --out {out}'"
    message = message.replace("is not a valid integer range", "is not an integer")
    message = message.replace("is not a valid integer", "is not an integer")
    message = re.sub("is not a valid float( range)?", "is not a number", message)
    return f"{message}; see `{_command_name(error)} --help`" if isinstance(error, click.UsageError) else message


def _has_option(error: click.ClickException, flag: str) -> bool:
    context = getattr(error, "ctx", None)
    return context is not None and any(flag in parameter.opts for parameter in context.command.params)


def _option_advice(error: click.NoSuchOption) -> str:
    """Returns advice for an unknown option: the option that the user probably meant, or another way to do it."""
    if error.ctx is None:
        return ""
    flags = {flag for parameter in error.ctx.command.params for flag in parameter.opts}
    same_purpose = [flag for flag in _LIKELY_OPTIONS.get(error.option_name, ()) if flag in flags]
    if same_purpose:
        return f"did you mean '{same_purpose[0]}'?"
    return _ADVICE_BY_OPTION.get((error.ctx.info_name or "", error.option_name), "")


def _command_name(error: click.ClickException) -> str:
    """Returns the command that was called, such as `lobench watch`."""
    context = getattr(error, "ctx", None)
    if context is not None:
        path: str = context.command_path
        return path
    words = [word for word in sys.argv[1:] if not word.startswith("-")]  # click's parser raises without a context
    return f"lobench {words[0]}" if words and words[0] in own_commands() else "lobench"
