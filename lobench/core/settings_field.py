"""Settings fields with help and bounds, from which command options are made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Option", "changed_fields", "option", "settings_from"]

S = TypeVar("S", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Command-line option of a field: `--name`, with the field's type.

    Attributes:
      help: Help text, one line.
      flag: Name of the option if it is not the field's: "--suite" for `suites`, "--quiet -q" for two names.
      metavar: Placeholder of the value in the help.
      least, above, most: Bounds of a number: inclusive lower, exclusive lower, inclusive upper.
      choices: The allowed values of a text. (): any.
      exists: Whether a path must exist.
      required: Whether the option must be given.
    """

    help: str
    flag: str = ""
    metavar: str | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    exists: bool = False
    required: bool = False


def option(default: Any, help: str, **words: Any) -> Any:
    """Returns a dataclass field with a command-line option; `words` are the other fields of `Option`."""
    return field(default=default, metadata={"option": Option(help=help, **words)})


def settings_from(kind: type[S], options: dict[str, Any], **values: Any) -> S:
    """Returns settings with those of the options that are their fields, which are removed from `options`.

    Args:
      kind: Dataclass of the settings.
      options: Keyword arguments of a function that takes settings of several kinds.
      values: Values of fields that are arguments of their own.
    """
    own = {each.name: options.pop(each.name) for each in fields(kind) if each.name in options}
    return kind(**own, **values)


def changed_fields(settings: DataclassInstance) -> dict[str, Any]:
    """Returns the values that differ from the defaults of their fields, by name."""
    return {each.name: value for each in fields(settings) if (value := getattr(settings, each.name)) != each.default}
