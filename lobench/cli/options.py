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
    "OutputPath",
    "accept_argument_or_option",
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


def options_of(settings_class: type, *names: str) -> Callable[[C], C]:
    """Decorator that adds options for the fields of a dataclass. The command receives them by field name.

    Args:
      settings_class: The dataclass.
      names: Names of the fields, in the order of the help. None given: all options, inherited ones last.
    """
    fields_by_name = {field.name: field for field in fields(settings_class) if "option" in field.metadata}
    bases = filter(is_dataclass, settings_class.__mro__)
    depth_of_field = {field.name: depth for depth, base in enumerate(bases) for field in fields(base)}
    # Own fields come before inherited ones.
    ordered_names = names or tuple(sorted(fields_by_name, key=depth_of_field.__getitem__))

    def decorate(command: C) -> C:
        for name in reversed(ordered_names):
            command = _click_option(fields_by_name[name])(command)
        return command

    return decorate


def evaluation_options(command: C) -> C:
    """Decorator that adds the options of a command that evaluates: workers, executor and bindings."""
    from lobench.api.settings import WatchSettings

    names = ("workers", "executor", "ray_address", "insecure", "gin_files", "gin_params", "keep_results")
    return options_of(WatchSettings, *names)(command)


def watched_run_options(command: C) -> C:
    """Decorator that adds the options that name the watch of a run: `suites`, `name` and `store`."""
    suite_help = "Suite of the watch; repeatable."
    store_help = (
        "Store of the watch (default: as `lobench watch`), or of an experiment, with a command's session as RUN."
    )
    command = click.option("--store", type=click.Path(path_type=Path), help=store_help)(command)
    command = click.option("--name", default="", help="Name of the watch (default: the suite's).")(command)
    return click.option("--suite", "suites", multiple=True, required=True, help=suite_help)(command)


def report_option(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator that adds `--report`. The command receives the sink `report` among its `sinks`."""

    @functools.wraps(command)
    def with_report(*, report: bool, sinks: tuple[str, ...], **options: Any) -> None:
        from lobench.report.page.builtin_report import REPORT

        command(sinks=(*sinks, REPORT) if report and REPORT not in sinks else sinks, **options)

    help_text = "Keep report.html in the store up to date; the same as `--sink report`."
    return click.option("--report", is_flag=True, help=help_text)(with_report)


def display_options(command: C) -> C:
    """Decorator that adds the options of a display: `verbose` and `color`."""
    color_type = click.Choice(["auto", "yes", "no"])
    command = click.option("--color", type=color_type, default="auto", show_default=True, help="Colors, as in pytest.")(
        command
    )
    return click.option("--verbose", "-v", is_flag=True, help="Print a line for each evaluation too.")(command)


def baseline_option(command: C) -> C:
    """Decorator that adds `baselines` to a command that reads one store."""
    help_text = "Suite, or a file of its baselines; repeatable (default: the suites of the store)."
    path_type = click.Path(exists=True, path_type=Path)
    return click.option("--baseline", "baselines", multiple=True, type=path_type, help=help_text)(command)


def experiment_options(command: C) -> C:
    """Decorator that adds the options that choose the methods of a store: `experiment` and `every`."""
    all_help = "Show everything in the store, not only an experiment's methods."
    command = click.option("--all", "every", is_flag=True, help=all_help)(command)
    experiment_help = "Show the methods of this experiment (default: the last one that ran)."
    return click.option("--experiment", default="", help=experiment_help)(command)


def _click_option(field: Field[Any]) -> Callable[[C], C]:
    field_option: Option = field.metadata["option"]
    click_arguments: dict[str, Any] = {
        "help": field_option.help,
        "metavar": field_option.metavar,
        "required": field_option.required,
    }
    type_text = str(field.type)
    if field.default is not MISSING:  # not for required options: click takes an explicit None for a value
        click_arguments["default"] = field.default
    if type_text == "bool":
        click_arguments["is_flag"] = True
    elif type_text.startswith("tuple["):
        click_arguments |= {"multiple": True, "type": _click_type(type_text.removeprefix("tuple["), field_option)}
    else:
        click_arguments |= {
            "show_default": click_arguments.get("default") not in (None, ""),
            "type": _click_type(type_text, field_option),
        }
    flags = field_option.flag.split() or [f"--{field.name.replace('_', '-')}"]
    return click.option(*flags, field.name, **click_arguments)


def _click_type(type_text: str, field_option: Option) -> Any:
    if type_text.startswith("int"):
        least, most = (None if bound is None else int(bound) for bound in (field_option.least, field_option.most))
        return click.INT if least is most is None else click.IntRange(least, most)
    if type_text.startswith("float"):
        lower = field_option.least if field_option.above is None else field_option.above
        return BoundedNumber(lower, field_option.most, min_open=field_option.above is not None)
    if type_text.startswith("Path"):
        return click.Path(exists=field_option.exists, path_type=Path)
    return click.Choice(field_option.choices) if field_option.choices else click.STRING


# Arguments that are options in other commands.
_FLAG_BY_ARGUMENT = {"store": "--store", "stores": "--store", "suites": "--suite"}


def accept_argument_or_option(command: click.Command) -> None:
    """Lets a command accept its store or its suites as an argument and as an option: `STORE` and `--store STORE`."""
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    flags = {flag for param in command.params for flag in param.opts}
    for argument in arguments:
        flag = _FLAG_BY_ARGUMENT.get(argument.name or "")
        if flag is not None and flag not in flags:
            option = click.Option([flag, "other_form"], multiple=True, hidden=True, type=argument.type)
            _merge_parameters(command, argument, option)
    if all(argument.nargs == 1 for argument in arguments):  # otherwise the last argument takes all words
        for option in [param for param in command.params if isinstance(param, click.Option) and param.required]:
            if flag := next((name for name in option.opts if name in _FLAG_BY_ARGUMENT.values()), ""):
                click_arguments: dict[str, Any] = {
                    "nargs": -1 if option.multiple else 1,
                    "metavar": f"[{flag[2:].upper()}]",
                    "type": option.type,
                }
                _merge_parameters(command, option, click.Argument(["other_form"], required=False, **click_arguments))
                return


def _merge_parameters(
    command: click.Command, main_parameter: click.Parameter, other_parameter: click.Parameter
) -> None:
    """Adds a parameter to a command. Its values are prepended to those of another, required parameter."""
    has_several = main_parameter.nargs == -1 or main_parameter.multiple

    def merged_values(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        other_value = context.meta.pop("lobench.other_form", None)
        other_values = (
            tuple(other_value) if isinstance(other_value, tuple) else (() if other_value is None else (other_value,))
        )
        own_values = tuple(value or ()) if has_several else (() if value is None else (value,))
        values = (*other_values, *own_values)
        if not values and not context.resilient_parsing:
            raise click.MissingParameter(ctx=context, param=parameter)
        if has_several:
            return values
        if len(set(values)) > 1:
            raise click.UsageError(
                f"{_FLAG_BY_ARGUMENT.get(parameter.name or '', 'the value')} is given twice", context
            )
        return values[0] if values else None

    def store_other_values(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        context.meta["lobench.other_form"] = value

    main_parameter.required, main_parameter.callback = False, merged_values
    other_parameter.is_eager = True
    other_parameter.expose_value = False
    other_parameter.callback = store_other_values
    command.params.append(other_parameter)


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


class OutputPath(click.Path):
    """Path of `--output`. `-` is standard output, as without the option, or refused.

    Args:
      is_printed: Whether the command prints its output if it has no `--output`.
    """

    def __init__(self, *, is_printed: bool = False) -> None:
        super().__init__(path_type=Path)
        self._is_printed = is_printed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != "-":
            return super().convert(value, param, ctx)
        if not self._is_printed:
            self.fail("got '-', standard output; expected a path, because this output is not printed", param, ctx)
        return None


class BoundedNumber(click.FloatRange):
    """Number within bounds. NaN is rejected explicitly, because every comparison with it is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number
