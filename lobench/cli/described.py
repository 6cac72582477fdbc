"""What a person wants to know of a task or an optimizer before binding it: its settings, and where it is from."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["described", "description"]

_REFERENCE = re.compile(r"`([^<`]+?)\s*<([^>]+)>`_+")


def described(name: str, made: Callable[..., Any]) -> list[str]:
    """Returns lines: the name and its first sentence, the settings with their defaults, the source if it says one."""
    said = description(made)
    head = f"{name}  {said['summary']}".rstrip()
    return [head, *(f"    {said[more]}" for more in ("settings", "source") if said[more])]


def description(made: Callable[..., Any]) -> dict[str, str]:
    """Returns summary, settings and source, each a line; "" where there is none."""
    doc = (inspect.getdoc(made) or "").splitlines()
    return {"summary": doc[0] if doc else "", "settings": _settings(made), "source": _source(doc)}


def _settings(made: Callable[..., Any]) -> str:
    """Returns `learning_rate = 0.001, b1 = 0.9`; what has no default is a name alone."""
    found = (each for each in inspect.signature(made).parameters.values() if each.kind is not each.VAR_KEYWORD)
    return ", ".join(
        each.name if each.default is each.empty else f"{each.name} = {_written(each.default)}" for each in found
    )


def _written(value: object) -> str:
    is_plain = value is None or isinstance(value, str | int | float) or type(value) in (tuple, list)
    return repr(value) if is_plain else getattr(value, "__name__", type(value).__name__)


def _source(doc: Iterable[str]) -> str:
    """Returns what a docstring names as its source, in one line; of several references the first."""
    rest = list(itertools.dropwhile(lambda line: not line.startswith(("Source:", "References:")), doc))
    if not rest:
        return ""
    first = [rest[0].partition(":")[2], *itertools.takewhile(str.strip, rest[1:])]
    text = " ".join(line.strip() for line in first if line.strip())
    return "Source: " + _REFERENCE.sub(r"\1, \2", text)
