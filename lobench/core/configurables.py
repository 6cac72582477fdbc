"""Names in gin that `lobench.configurable` gave to classes and functions outside lobench."""

from __future__ import annotations

__all__ = ["USER_CONFIGURABLES"]

USER_CONFIGURABLES: set[str] = set()  # whole names: "my_package.optimizers.lion"
