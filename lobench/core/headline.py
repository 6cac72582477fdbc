"""What an exception says first."""

from __future__ import annotations

__all__ = ["headline"]


def headline(error: BaseException) -> str:
    """Returns the class of an exception and the first line of its text, without notes, which jax adds."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
