"""Command options generated from settings fields, and their value types."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from lobench.core.errors import suggestion
from lobench.core.settings_field import Option

__all__ = [
    "BoundedNumber",
    "Name",
    "accept_either_form",
    "baseline_option",
    "did_you_mean",
    "display_options",
    "evaluation_options",
    "experiment_options",
    "options_of",
    "report_option",
    "watched_run_options",
]

C = TypeVar("C", bound=Callable[..., object])


def options_of(settings: type, *names: str) -> Callable[[C], C]:
    """Decorator that adds options for the fields of a dataclass. The command receives them by field name.

    Args:
      settings: The dataclass.
      names: Names of the fields, in the order of the help. None given: all options, inherited ones last.
    """
    fields_by_name = {field.name: field for field in fields(settings) if "option" in field.metadata}
    bases = filter(is_dataclass, settings.__mro__)
    depth_of_field = {field.name: depth for depth, base in enumerate(bases) for field in fields(base)}
    order = names or tuple(sorted(fields_by_name, key=depth_of_field.__getitem__))  # own fields before inherited ones

    def decorate(command: C) -> C:
        for name in reversed(order):
            command = _option(fields_by_name[name])(command)
        return command

    return decorate


def evaluation_options(command: C) -> C:
    """Decorator that adds the options of a command that evaluates: workers, executor and bindings."""
    from lobench.api.settings import WatchSettings

    names = ("workers", "executor", "ray_address", "insecure", "gin_files", "gin_params", "keep_results")
    return options_of(WatchSettings, *names)(command)


def watched_run_options(command: C) -> C:
    """Decorator that adds the options that name the watch of a run: `suites`, `name` and `store`."""
    suite = "Suite of the watch; repeatable."
    store = "Store of the watch (default: as `lobench watch`), or of an experiment, with a command's session as RUN."
    command = click.option("--store", type=click.Path(path_type=Path), help=store)(command)
    command = click.option("--name", default="", help="Name of the watch (default: the suite's).")(command)
    return click.option("--suite", "suites", multiple=True, required=True, help=suite)(command)


def report_option(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator that adds `--report`. The command receives the sink `report` among its `sinks`."""

    @functools.wraps(command)
    def with_report(*, report: bool, sinks: tuple[str, ...], **options: Any) -> None:
        from lobench.report.page.builtin_report import REPORT

        command(sinks=(*sinks, REPORT) if report and REPORT not in sinks else sinks, **options)

    text = "Keep report.html in the store up to date; the same as `--sink report`."
    return click.option("--report", is_flag=True, help=text)(with_report)


def display_options(command: C) -> C:
    """Decorator that adds the options of a display: `verbose` and `color`."""
    choice = click.Choice(["auto", "yes", "no"])
    command = click.option("--color", type=choice, default="auto", show_default=True, help="Colors, as in pytest.")(
        command
    )
    return click.option("--verbose", "-v", is_flag=True, help="Print a line for each evaluation too.")(command)


def baseline_option(command: C) -> C:
    """Decorator that adds `baselines` to a command that reads one store."""
    text = "Suite, or a file of its baselines; repeatable (default: the suites of the store)."
    kind = click.Path(exists=True, path_type=Path)
    return click.option("--baseline", "baselines", multiple=True, type=kind, help=text)(command)


def experiment_options(command: C) -> C:
    """Decorator that adds the options that choose the methods of a store: `experiment` and `every`."""
    everything = "Show everything in the store, not only an experiment's methods."
    command = click.option("--all", "every", is_flag=True, help=everything)(command)
    methods = "Show the methods of this experiment (default: the last one that ran)."
    return click.option("--experiment", default="", help=methods)(command)


def _option(field: Field[Any]) -> Callable[[C], C]:
    setting: Option = field.metadata["option"]
    click_arguments: dict[str, Any] = {"help": setting.help, "metavar": setting.metavar, "required": setting.required}
    kind = str(field.type)
    if field.default is not MISSING:  # not for required options: click takes an explicit None for a value
        click_arguments["default"] = field.default
    if kind == "bool":
        click_arguments["is_flag"] = True
    elif kind.startswith("tuple["):
        click_arguments |= {"multiple": True, "type": _type(kind.removeprefix("tuple["), setting)}
    else:
        click_arguments |= {
            "show_default": click_arguments.get("default") not in (None, ""),
            "type": _type(kind, setting),
        }
    flags = setting.flag.split() or [f"--{field.name.replace('_', '-')}"]
    return click.option(*flags, field.name, **click_arguments)


def _type(kind: str, setting: Option) -> Any:
    if kind.startswith("int"):
        least, most = (None if bound is None else int(bound) for bound in (setting.least, setting.most))
        return click.INT if least is most is None else click.IntRange(least, most)
    if kind.startswith("float"):
        lower = setting.least if setting.above is None else setting.above
        return BoundedNumber(lower, setting.most, min_open=setting.above is not None)
    if kind.startswith("Path"):
        return click.Path(exists=setting.exists, path_type=Path)
    return click.Choice(setting.choices) if setting.choices else click.STRING


_PLACES = {"store": "--store", "stores": "--store", "suites": "--suite"}  # arguments that are options in other commands


def accept_either_form(command: click.Command) -> None:
    """Lets a command accept its store or its suites as an argument and as an option: `STORE` and `--store STORE`."""
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    flags = {flag for param in command.params for flag in param.opts}
    for argument in arguments:
        flag = _PLACES.get(argument.name or "")
        if flag is not None and flag not in flags:
            option = click.Option([flag, "other_form"], multiple=True, hidden=True, type=argument.type)
            _join(command, argument, option)
    if all(argument.nargs == 1 for argument in arguments):  # otherwise the last argument takes all words
        for option in [param for param in command.params if isinstance(param, click.Option) and param.required]:
            if flag := next((name for name in option.opts if name in _PLACES.values()), ""):
                click_arguments: dict[str, Any] = {
                    "nargs": -1 if option.multiple else 1,
                    "metavar": f"[{flag[2:].upper()}]",
                    "type": option.type,
                }
                _join(command, option, click.Argument(["other_form"], required=False, **click_arguments))
                return


def _join(command: click.Command, main: click.Parameter, other: click.Parameter) -> None:
    """Adds a parameter to a command. Its values are prepended to those of another, required parameter."""
    takes_several = main.nargs == -1 or main.multiple

    def joined(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        other_value = context.meta.pop("lobench.other_form", None)
        other_values = (
            tuple(other_value) if isinstance(other_value, tuple) else (() if other_value is None else (other_value,))
        )
        own_values = tuple(value or ()) if takes_several else (() if value is None else (value,))
        values = (*other_values, *own_values)
        if not values and not context.resilient_parsing:
            raise click.MissingParameter(ctx=context, param=parameter)
        if takes_several:
            return values
        if len(set(values)) > 1:
            raise click.UsageError(f"{_PLACES.get(parameter.name or '', 'the value')} is given twice", context)
        return values[0] if values else None

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        context.meta["lobench.other_form"] = value

    main.required, main.callback = False, joined
    other.is_eager = True
    other.expose_value = False
    other.callback = keep
    command.params.append(other)


def did_you_mean(name: str, known_names: Iterable[str]) -> str:
    """Returns a hint such as `; did you mean 'watch'?`; "" if no known name is similar."""
    advice = suggestion(name, known_names)
    return f"; {advice}" if advice else ""


class Name(click.Choice[str]):
    """Choice whose error suggests a similar name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            expected = f"expected one of {', '.join(self.choices)}"
            self.fail(f"got {value!r}; {suggestion(str(value), self.choices) or expected}", param, ctx)
        return super().convert(value, param, ctx)


class BoundedNumber(click.FloatRange):
    """Number within bounds. NaN is rejected explicitly, because every comparison with it is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number
