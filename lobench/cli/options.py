"""Command options generated from settings fields, and their value types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from lobench.core.errors import suggestion
from lobench.core.settings_field import Option

__all__ = ["BoundedNumber", "Name", "baseline_option", "did_you_mean", "display_options", "options_of"]

C = TypeVar("C", bound=Callable[..., object])


def options_of(settings: type, *names: str) -> Callable[[C], C]:
    """Gives a command the options of a dataclass; the command gets them by the names of its fields.

    Args:
      names: Of the fields, in the order of the help; none: all that are options.
    """
    known = {each.name: each for each in fields(settings) if "option" in each.metadata}
    inherited = {each.name for base in settings.__bases__ if is_dataclass(base) for each in fields(base)}
    order = names or tuple(sorted(known, key=inherited.__contains__))  # a class's own come first

    def decorate(command: C) -> C:
        for name in reversed(order):
            command = _option(known[name])(command)
        return command

    return decorate


def display_options(command: C) -> C:
    """Gives a command what its display has: `verbose` and `color`."""
    choice = click.Choice(["auto", "yes", "no"])
    command = click.option("--color", type=choice, default="auto", show_default=True, help="Colors, as in pytest.")(
        command
    )
    return click.option("--verbose", "-v", is_flag=True, help="Print a line for each evaluation too.")(command)


def baseline_option(command: C) -> C:
    """Gives a command that reads one store `baselines`."""
    text = "Suite, or a file of its baselines; repeatable (default: the suites of the store)."
    kind = click.Path(exists=True, path_type=Path)
    return click.option("--baseline", "baselines", multiple=True, type=kind, help=text)(command)


def _option(field: Field[Any]) -> Callable[[C], C]:
    setting: Option = field.metadata["option"]
    words: dict[str, Any] = {"help": setting.help, "metavar": setting.metavar, "required": setting.required}
    kind = str(field.type)
    if field.default is not MISSING:  # a required option must not have one: click takes an explicit None for a value
        words["default"] = field.default
    if kind == "bool":
        words["is_flag"] = True
    elif kind.startswith("tuple["):
        words["multiple"] = True
    else:
        words |= {"show_default": words.get("default") not in (None, ""), "type": _type(kind, setting)}
    flags = setting.flag.split() or [f"--{field.name.replace('_', '-')}"]
    return click.option(*flags, field.name, **words)


def _type(kind: str, setting: Option) -> Any:
    if kind.startswith("int"):
        least, most = (None if bound is None else int(bound) for bound in (setting.least, setting.most))
        return click.INT if least is most is None else click.IntRange(least, most)
    if kind.startswith("float"):
        lower = setting.least if setting.above is None else setting.above
        return BoundedNumber(lower, setting.most, min_open=setting.above is not None)
    return click.STRING


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'watch'?`, or "" where nothing is near."""
    advice = suggestion(name, known)
    return f"; {advice}" if advice else ""


class Name(click.Choice[str]):
    """A choice whose error says which of them was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            expected = ", ".join(self.choices)
            self.fail(f"{value!r} is none of {expected}{did_you_mean(str(value), self.choices)}", param, ctx)
        return super().convert(value, param, ctx)


class BoundedNumber(click.FloatRange):
    """A number within bounds, which NaN is not: every comparison with it is false, and so no bound refuses it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not in the range {self._describe_range()}.", param, ctx)
        return number
