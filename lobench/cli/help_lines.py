"""Lines of help texts that fit the terminal, such as examples.

click folds paragraphs, but leaves the lines below a `\\b` as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

__all__ = ["fit_help", "folded_help"]

_COMMAND = re.compile(r" +(lobench|pytest|python) ")
_SHELL_WORDS = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")  # words of a shell, quotes included
_COMMENT = re.compile(r"\s+(# .*)$")
_FOLDED_ATTRIBUTE = "lobench_fits"


def fit_help(command: click.Command) -> click.Command:
    """Folds the long lines of a command's help, and of the commands of a group. Returns the command."""
    if not hasattr(command, _FOLDED_ATTRIBUTE):
        setattr(command, _FOLDED_ATTRIBUTE, True)
        get_help = command.get_help

        def get_folded_help(ctx: click.Context) -> str:
            from lobench.report.tables.text import terminal_width  # slow to import, and often not needed

            return folded_help(get_help(ctx), terminal_width())

        command.get_help = get_folded_help  # type: ignore[method-assign]
        for subcommand in getattr(command, "commands", {}).values():
            fit_help(subcommand)
    return command


def folded_help(text: str, width: int) -> str:
    r"""Folds lines that are too long. A command is continued after a `\`, so that it can still be pasted.

    Args:
      text: Help text.
      width: Largest width of a line in columns.
    """
    from lobench.report.tables.text import wrap_lines

    lines = list[str]()
    is_continued = False
    for line in text.split("\n"):
        is_command = _COMMAND.match(line) is not None or is_continued
        is_continued = is_command and line.endswith("\\")
        if len(line) <= width:
            lines.append(line)
        else:
            lines += _folded_command(line, width) if is_command else wrap_lines(line, width).split("\n")
    return "\n".join(lines)


def _folded_command(line: str, width: int) -> list[str]:
    from lobench.report.tables.text import wrap_lines

    indent = line[: len(line) - len(line.lstrip())]
    lines = list[str]()
    if comment := _COMMENT.search(line):
        lines += wrap_lines(indent + comment[1], width).split("\n")
        line = line[: comment.start()]
    first_word, *other_words = _with_values(_SHELL_WORDS.findall(line), width - len(indent) - len("     \\"))
    current_line = indent + first_word
    for index, word in enumerate(other_words):
        max_width = width if index == len(other_words) - 1 else width - len(" \\")
        if len(current_line) + 1 + len(word) > max_width:
            lines.append(f"{current_line} \\")
            current_line = f"{indent}    {word}"
        else:
            current_line += f" {word}"
    return [*lines, current_line]


def _with_values(words: Sequence[str], max_width: int) -> list[str]:
    """Joins options with their values, if both fit on a line."""
    joined_words = list[str]()
    for word in words:
        last_word = joined_words[-1] if joined_words else ""
        is_value = last_word.startswith("--") and " " not in last_word and not word.startswith(("-", "\\"))
        if is_value and len(last_word) + 1 + len(word) <= max_width:
            joined_words[-1] = f"{last_word} {word}"
        else:
            joined_words.append(word)
    return joined_words
