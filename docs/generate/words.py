"""Text of the code as markdown: what is plain there stays plain here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["escaped", "prose", "table"]

_CODE = re.compile(r"(`[^`]*`)")
_ROLE = re.compile(r":(?:\w+:)?\w+:`~?\.?([^`<]+?)(?:\s*<[^`>]*>)?`")
_REFERENCE = re.compile(r"`([^`<]+?)\s*<(https?://[^`>]+)>`_+")


def escaped(text: str) -> str:
    """Returns one line that shows its stars, bars and angles; what is between backticks is code."""
    parts = _CODE.split(text.replace("``", "`"))
    shown = (part if part.startswith("`") else re.sub(r"([*_\[\]\\])", r"\\\1", part) for part in parts)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in shown)


def prose(text: str) -> str:
    """Returns paragraphs; indented parts are code, and what Sphinx means by its roles is a name."""
    text = _REFERENCE.sub(r"\1 (\2)", _ROLE.sub(r"`\1`", text))
    shown = []
    for paragraph in text.strip("\n").split("\n\n"):
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines if line.strip()):
            shown.append(paragraph)
        else:
            shown.append(escaped(" ".join(line.strip() for line in lines)))
    return "\n\n".join(shown)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
