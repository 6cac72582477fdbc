"""Names on the command line that are nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import click

__all__ = ["Name", "did_you_mean"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'watch'?`, or "" where nothing is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class Name(click.Choice[str]):
    """A choice whose error says which of them was meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            expected = ", ".join(self.choices)
            self.fail(f"{value!r} is none of {expected}{did_you_mean(str(value), self.choices)}", param, ctx)
        return super().convert(value, param, ctx)
