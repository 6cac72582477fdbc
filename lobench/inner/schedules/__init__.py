"""Schedules by gin name, for any rate of an optimizer: `adam.learning_rate = @cosine()`.

All modules of this folder are imported, and their `@configurable` functions are exported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lobench.inner.configurable import configurables_in

_SHIPPED = configurables_in(__name__, __path__)
__all__ = list(_SHIPPED)
globals().update(_SHIPPED)

if TYPE_CHECKING:  # type checkers read the function from its module

    def __getattr__(name: str) -> Any: ...
