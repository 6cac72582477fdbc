"""Settings fields with help and bounds, from which command options are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Option", "option"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How the command line says a field: `--name`, with the field's type.

    Attributes:
      help: A line.
      flag: Its name where that is not the field's: "--suite" of `suites`, "--quiet -q" for two.
      metavar: What stands for its value in the help.
      least, above, most: Bounds of a number: at least, more than, at most.
      required: Whether it must be given.
    """

    help: str
    flag: str = ""
    metavar: str | None = None
    least: float | None = None
    above: float | None = None
    most: float | None = None
    required: bool = False


def option(default: Any, help: str, **words: Any) -> Any:
    """Returns a field of a dataclass that is an option too; `words` are those of `Option`."""
    return field(default=default, metadata={"option": Option(help=help, **words)})
