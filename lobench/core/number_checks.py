"""Checks of numbers in files and options, with uniform error messages."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

from lobench.core.errors import ConfigError

__all__ = [
    "DEVICE_SHARE",
    "integer_text",
    "is_device_share",
    "is_integer",
    "is_number",
    "require_integer",
    "unless_nan",
]

DEVICE_SHARE = "a share of one device, or a whole number"


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether a value is an int or a float. A bool is neither; NaN and infinities are numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def unless_nan(value: float, default: float) -> float:
    return default if math.isnan(value) else value


def is_integer(value: object, *, at_least: int = 1, at_most: int | None = None) -> TypeGuard[int]:
    """Returns whether a value is an integer within bounds. A bool is not an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return at_least <= value <= (math.inf if at_most is None else at_most)


def integer_text(at_least: int = 1, at_most: int | None = None) -> str:
    """Returns the description of an integer within bounds: "an integer >= 1"."""
    return f"an integer >= {at_least}" if at_most is None else f"an integer from {at_least} to {at_most}"


def require_integer(what: str, value: Any, *, at_least: int = 1, at_most: int | None = None, where: str = "") -> int:
    """Returns `value` if it is an integer within bounds.

    Args:
      what: Name of the setting in the error message.
      value: Value to check.
      at_least, at_most: Bounds, inclusive. None: no upper bound.
      where: File or case with the setting.
    Raises:
      ConfigError: The value is not such an integer.
    """
    if not is_integer(value, at_least=at_least, at_most=at_most):
        raise ConfigError(what, where=where, got=repr(value), expected=integer_text(at_least, at_most))
    return value


def is_device_share(value: object) -> bool:
    """Returns whether a value is a number of devices: a share of one, or a whole number."""
    return is_number(value) and (0 <= value <= 1 or (1 < value < math.inf and float(value).is_integer()))
