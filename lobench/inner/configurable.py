"""How tasks and optimizers become names in gin."""

from __future__ import annotations

from typing import TypeVar

import gin

__all__ = ["configurable"]

T = TypeVar("T")


def configurable(target: T) -> T:
    """Registers a class or function with gin under its own name and returns it unchanged.

    gin files say `@Name()`; calls from Python are not affected by bindings.
    """
    gin.register(target, module="lobench")
    return target
