"""Settings fields with help and bounds, from which command options are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Option", "option"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Command-line option of a field: `--name`, with the field's type.

    Attributes:
      help: Help text, one line.
      flag: Name of the option if it is not the field's: "--suite" for `suites`, "--quiet -q" for two names.
      metavar: Placeholder of the value in the help.
      least, above, most: Bounds of a number: inclusive lower, exclusive lower, inclusive upper.
      required: Whether the option must be given.
    """

    help: str
    flag: str = ""
    metavar: str | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    required: bool = False


def option(default: Any, help: str, **words: Any) -> Any:
    """Returns a dataclass field with a command-line option; `words` are the other fields of `Option`."""
    return field(default=default, metadata={"option": Option(help=help, **words)})
