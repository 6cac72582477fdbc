"""Checks of task arguments from gin files. Errors are a ConfigError instead of a traceback from jax.

Each check takes the task, or its name, for error messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real

from lobench.core.errors import ConfigError
from lobench.core.number_checks import is_integer, require_integer

__all__ = ["choice", "integer", "number", "setting", "sizes"]


def setting(task: object, name: str) -> str:
    """Returns the gin name of an argument: "DigitsMLP.batch_size"."""
    owner = task if isinstance(task, str) else type(task).__name__
    return f"{owner}.{name}"


def integer(task: object, name: str, value: object, *, at_least: int = 1, at_most: int | None = None) -> int:
    """Returns `value` if it is an integer within the bounds; raises ConfigError otherwise."""
    return require_integer(setting(task, name), value, at_least=at_least, at_most=at_most)


def number(task: object, name: str, value: object, *, at_least: float = 0.0) -> float:
    """Returns `value` as a float if it is finite and at least `at_least`; raises ConfigError otherwise."""
    if isinstance(value, bool) or not isinstance(value, Real) or not at_least <= float(value) < math.inf:
        raise ConfigError(setting(task, name), got=repr(value), expected=f"a finite number >= {at_least:g}")
    return float(value)


def sizes(
    task: object, name: str, value: object, *, min_count: int = 0, max_count: int | None = None
) -> tuple[int, ...]:
    """Returns `value` as a tuple of integers >= 1.

    Args:
      task, name: Task and name of the argument.
      value: Value to check.
      min_count, max_count: Bounds of its length. None: no upper bound.
    Raises:
      ConfigError: The value is not such a sequence.
    """
    is_sequence = isinstance(value, Sequence) and all(map(is_integer, value))
    largest_count = math.inf if max_count is None else max_count
    if not is_sequence or not isinstance(value, Sequence) or not min_count <= len(value) <= largest_count:
        if max_count is not None:
            count_text = f"{min_count} to {max_count}"
        else:
            count_text = f"{min_count} or more" if min_count else "any number"
        expected = f"a tuple of integers >= 1, {count_text} of them, such as (32,)"
        raise ConfigError(setting(task, name), got=repr(value), expected=expected)
    return tuple(value)


def choice(task: object, name: str, value: object, choices: Iterable[object]) -> None:
    """Raises ConfigError unless `value` is one of the choices."""
    allowed_values = list(choices)
    if value not in allowed_values:
        raise ConfigError(
            setting(task, name), got=repr(value), expected="one of " + ", ".join(map(repr, allowed_values))
        )
