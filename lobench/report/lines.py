"""Names in lines of text: those of files, cases and runs may hold anything."""

from __future__ import annotations

import re

__all__ = ["one_line", "without_controls"]

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    """Returns text with what would break a line, or steer a terminal, as escapes (`\\n`, `\\x1b`)."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def without_controls(page: str) -> str:
    """Returns a page whose lines stay, with every other character that is not shown but steers as an escape."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], page)
