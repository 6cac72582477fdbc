"""Schedules by gin name, wherever an optimizer takes a rate: `adam.learning_rate = @cosine()`.

A module of this folder is found by itself: what it makes `@configurable` is exported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lobench.inner.configurable import configurables_in

_SHIPPED = configurables_in(__name__, __path__)
__all__ = list(_SHIPPED)
globals().update(_SHIPPED)

if TYPE_CHECKING:  # who checks types knows the function from its own module

    def __getattr__(name: str) -> Any: ...
