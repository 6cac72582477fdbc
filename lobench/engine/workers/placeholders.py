"""Words of a user command with its placeholders filled in. Programs that only start one import this file alone."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["command_words", "fill_placeholders"]

_PLACEHOLDER = re.compile(r"\{([\w./]+)\}")
_PATH_PLACEHOLDERS = ("checkpoint", "folder", "gin", "out", "run")
_SHELLS = ("bash", "dash", "ksh", "sh", "zsh")


def command_words(words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a command's words with placeholders replaced.

    A first word `python` is replaced by the Python that runs lobench. In a shell script (`bash -c '...'`), paths are
    quoted, so that a path with a space or a quote stays one word.
    """
    script_index = _index_of_script(words)
    filled_words = [
        _filled_script(word, values) if index == script_index else fill_placeholders(word, values)
        for index, word in enumerate(words)
    ]
    return (sys.executable, *filled_words[1:]) if filled_words[0] == "python" else tuple(filled_words)


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """Returns a text in which each placeholder `{NAME}` is replaced by its value. Unknown placeholders stay."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def _index_of_script(words: Sequence[str]) -> int | None:
    """Returns the index of the script after a shell's option -c; None without one."""
    for index, word in enumerate(words):
        if Path(word).name not in _SHELLS:
            continue
        is_name = False  # whether the word is the name of an option after -o, as in `bash -eo pipefail -c ...`
        for argument_index, argument in enumerate(words[index + 1 : -1], index + 1):
            if re.fullmatch(r"-[a-z]*c", argument):
                return argument_index + 1
            if not is_name and not argument.startswith(("-", "+")):
                break
            is_name = re.fullmatch(r"[-+][A-Za-z]*[oO]", argument) is not None
    return None


def _filled_script(text: str, values: Mapping[str, str]) -> str:
    """Returns a shell script with placeholders replaced. Paths are quoted as needed inside or outside of quotes."""
    pieces, quote, position = list[str](), "", 0
    while position < len(text):
        match = _PLACEHOLDER.match(text, position)
        if match is not None and match[1] in values:
            value = values[match[1]]
            if match[1] in _PATH_PLACEHOLDERS:
                value = _quote(value, quote)
            pieces.append(value)
            position = match.end()
            continue
        character = text[position]
        if character == "\\" and quote != "'":
            pieces.append(text[position : position + 2])
            position += 2
            continue
        if character in ("'", '"') and quote in ("", character):
            quote = "" if quote else character
        pieces.append(character)
        position += 1
    return "".join(pieces)


def _quote(value: str, quote: str) -> str:
    """Returns a value escaped for a position inside the given quotes of a shell script. "": outside of quotes."""
    if quote == "'":
        return value.replace("'", "'\"'\"'")
    return re.sub(r'([\\"$`])', r"\\\1", value) if quote else shlex.quote(value)
