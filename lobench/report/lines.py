"""Names in lines of text: those of files, cases and runs may hold anything."""

from __future__ import annotations

__all__ = ["one_line"]


def one_line(text: str) -> str:
    """Returns text with what would break a line, or steer a terminal, as escapes (`\\n`, `\\x1b`)."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
