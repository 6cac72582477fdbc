"""Optimizers by gin name: baselines through optax, and learned optimizers with a theta.

All modules of this folder are imported, and their `@configurable` functions and classes are exported from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lobench.inner.configurable import configurables_in
from lobench.inner.optimizers.optax_names import OptaxNames

_SHIPPED = configurables_in(__name__, __path__)
__all__ = list(_SHIPPED)
globals().update(_SHIPPED)

lobench_on_use = OptaxNames()
lobench_kinds = {  # kinds that `lobench list` shows separately from optimizers
    "weighters": [name for name, made in _SHIPPED.items() if made.__module__.startswith(f"{__name__}.weighters.")],
    "continual": ["agem"],
}

if TYPE_CHECKING:  # type checkers read the class from its module

    def __getattr__(name: str) -> Any: ...
