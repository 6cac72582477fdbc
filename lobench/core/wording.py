"""Wording of messages: an exception in one line, counts with their nouns, durations."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lobench.core.errors import LobenchError

__all__ = [
    "LEVEL_TOLERANCE",
    "cause",
    "convert_errors",
    "counted",
    "counted_range",
    "counted_with_verb",
    "describe_value",
    "duration_text",
    "groups_text",
    "headline",
    "is_level",
    "level_text",
    "seed_ranges_text",
    "short_path",
    "shortened_list",
    "significant_text",
]

_MAX_VALUE_LENGTH = 80  # letters of a value in a message
LEVEL_TOLERANCE = 1e-6  # rounding error of a mean score
_MAX_LEVEL_NAMES = 3


def one_line(text: str) -> str:
    """Returns a text with line breaks and control characters escaped (`\\n`, `\\x1b`)."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def counted(count: int, name: str) -> str:
    """Returns a count with its noun: `1 method`, `2,000 methods`.

    >>> counted(1, "method"), counted(2000, "method")
    ('1 method', '2,000 methods')
    """
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def counted_with_verb(count: int, name: str, singular: str = "is", plural: str = "are", *, suffix: str = "") -> str:
    """Returns a count with its noun and verb.

    >>> counted_with_verb(1, "method"), counted_with_verb(2, "method", "has", "have")
    ('1 method is', '2 methods have')
    >>> counted_with_verb(1, "result", "was", "were", suffix=" of Adam")
    '1 result of Adam was'

    Args:
      count: Number.
      name: Noun in the singular.
      singular: Verb of one.
      plural: Verb of several.
      suffix: Text between noun and verb.
    """
    return f"{counted(count, name)}{suffix} {singular if count == 1 else plural}"


def counted_range(counts: Iterable[int], name: str) -> str:
    """Returns the lowest and the highest of several counts with their noun: `4 seeds`, `4 to 16 seeds`."""
    different_counts = sorted(set(counts))
    start_text = f"{different_counts[0]:,} to " if len(different_counts) > 1 else ""
    return start_text + counted(different_counts[-1], name)


def groups_text(groups: Iterable[Sequence[str]]) -> str:
    """Returns a line that names the groups of two cases or more; "" without such groups."""
    group_texts = [one_line(", ".join(sorted(group))) for group in groups if len(group) > 1]
    return (
        f"cases in one group, in whose mean a seed or an item counts once: {'; '.join(group_texts)}"
        if group_texts
        else ""
    )


def seed_ranges_text(seeds: Sequence[int]) -> str:
    """Returns sorted seeds as text: `0 to 3, 7`."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in ranges)


def shortened_list(names: Sequence[str], most: int) -> str:
    """Returns `a, b`, or `a, b and 3 more` of longer lists."""
    rest_text = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest_text


def is_level(score: float, best: float) -> bool:
    """Returns whether a score equals the best one up to rounding. Methods with level scores share their rank."""
    return abs(score - best) < LEVEL_TOLERANCE


def level_text(best: float, others: Iterable[tuple[str, float]]) -> str:
    """Returns `, level with a, b`: the others whose score is level with the best one. "" if there is none.

    >>> level_text(0.5, [("adam", 0.5), ("sgd", 0.25)])
    ', level with adam'
    """
    names = [name for name, score in others if is_level(score, best)]
    return f", level with {shortened_list(names, _MAX_LEVEL_NAMES)}" if names else ""


def short_path(path: str) -> str:
    """Returns a path below the working directory as a relative path; any other text unchanged."""
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return path if relative.startswith("..") else relative


def significant_text(value: float, digits: int) -> str:
    """Formats a number with `digits` significant digits, including trailing zeros: `0.300`, `123456`, `1.23e-07`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:z.0f}"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    exponent = int(power)
    if -4 <= exponent < 6:
        return f"{value:.{max(0, digits - 1 - exponent)}f}"
    return f"{mantissa}e{exponent:+03d}"


def duration_text(seconds: float) -> str:
    """Returns a duration in readable units: `0.4 s`, `40 s`, `7 min`, `3 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


@contextlib.contextmanager
def convert_errors(
    errors: type[Exception] | tuple[type[Exception], ...],
    kind: type[LobenchError],
    what: str,
    *,
    where: Path | str,
    next_step: str = "",
) -> Iterator[None]:
    """Converts errors of the system or of a library into a one-line `kind` with `what`, `where` and the cause."""
    try:
        yield
    except errors as error:
        raise kind(what, where=str(where), got=cause(error), next_step=next_step) from error


def headline(error: BaseException) -> str:
    """Returns the class of an exception and its first line; for errors of lobench, only the line.

    Example: "KeyError: 'relu'". A line that ends with a colon is joined with the next one, as in jax's "... must have
    equal types, but they differ:". Of a traceback in its text only the exception is shown. Notes of the exception, such
    as gin's, are left out.

    >>> headline(ValueError("cut off"))
    'ValueError: cut off'
    """
    if isinstance(error, LobenchError):
        return cause(error)
    return _first_line(f"{type(error).__name__}: {_text_of(error)}")


def describe_value(value: object) -> str:
    """Returns the class of a value and the start of its text, in one line: "NoneType: None"."""
    try:
        text = one_line(repr(value)[:_MAX_VALUE_LENGTH])
    except Exception as text_error:  # noqa: BLE001  (a stranger's class, or a number with too many digits)
        text = f"its text cannot be made ({type(text_error).__name__})"
    return f"{type(value).__name__}: {text}"


def cause(error: BaseException) -> str:
    """Returns the first line of an exception without its class; for errors of the system, their description.

    Example: "No space left on device" for "[Errno 28] No space left on device: '/data/store'".

    >>> cause(ValueError("cut off"))
    'cut off'
    """
    return getattr(error, "strerror", None) or _first_line(_text_of(error)) or type(error).__name__


def _text_of(error: BaseException) -> str:
    """Returns the text of an exception, also of a class whose `__str__` fails."""
    try:
        return str(error)
    except Exception as text_error:  # noqa: BLE001  (a stranger's class)
        return f"its text cannot be made ({type(text_error).__name__})"


_TRACEBACK = "Traceback (most recent call last):"


def _first_line(text: str) -> str:
    introduction, header, traceback = text.rpartition(_TRACEBACK)
    if header:  # as in jax's "error calling callback: Traceback ...": the frames are of nobody's interest
        ends = (line for line in traceback.splitlines()[1:] if line.strip() and not line[0].isspace())
        text = introduction.partition(header)[0] + next(ends, header)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    is_introduction = len(lines) > 1 and lines[0].endswith(":")
    return " ".join(lines[: 1 + is_introduction])
