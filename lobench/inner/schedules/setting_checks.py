"""Checks of schedules' settings from gin files; traced values are not checked."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.core.number_checks import is_number, require_integer
from lobench.inner.schedules.schedule import Schedule

__all__ = ["check_integers", "check_numbers"]


def check_numbers(
    schedule: str, *, above: float = -math.inf, at_least: float = -math.inf, at_most: float = math.inf, **values: Any
) -> None:
    """Raises ConfigError if a value is not a number, or is a known number out of range."""
    for name, value in values.items():
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.integer):
            raise ConfigError(
                f"{schedule}.{name} is the index of an update",
                next_step=f"bind `@{schedule}()` where `@{schedule}` is bound",
            )
        if is_number(value) and not (above < value and at_least <= value <= at_most):
            bounds = {"above": above, "at least": at_least, "at most": at_most}
            range_text = " and ".join(
                f"{relation} {bound:g}" for relation, bound in bounds.items() if math.isfinite(bound)
            )
            raise ConfigError(f"{schedule}.{name}", got=repr(value), expected=f"a number {range_text or 'that is one'}")
        if not is_number(value) and not isinstance(value, Schedule) and not hasattr(value, "dtype"):
            raise ConfigError(f"{schedule}.{name}", got=repr(value), expected="a number")


def check_integers(schedule: str, *, at_least: int, **values: Any) -> None:
    """Raises ConfigError if a value is not an integer, or is too small."""
    for name, value in values.items():
        require_integer(f"{schedule}.{name}", value, at_least=at_least)
