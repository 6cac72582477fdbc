"""Inner tasks of lobench, with their names in gin.

All modules of this folder are imported, and their `@configurable` functions and classes are exported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lobench.inner.configurable import configurables_in

_SHIPPED = configurables_in(__name__, __path__)
__all__ = list(_SHIPPED)
globals().update(_SHIPPED)

if TYPE_CHECKING:  # type checkers read the class from its module

    def __getattr__(name: str) -> Any: ...
