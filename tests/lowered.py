"""Programs of tests are lowered in contexts of MLIR that they share."""

from __future__ import annotations

import itertools
import threading
from typing import Any

__all__ = ["share_contexts"]

_NUM_PROGRAMS = 50  # a context holds the constants of all of its programs


def share_contexts() -> None:
    """Replaces how jax makes a context, for each program that it lowers, by one context for the next programs.

    Making one takes 2 ms. Tests call hundreds of small functions of jax outside of a program, each of which is lowered
    as one: without this, contexts are a tenth of the time of tests of tasks and optimizers.
    """
    from jax._src.interpreters import mlir

    make = getattr(mlir, "make_ir_context", None)  # private: another jax may have none, and makes contexts its own way
    if make is not None and not isinstance(make, _Contexts):
        mlir.make_ir_context = _Contexts(make)


class _Contexts(threading.local):
    def __init__(self, make: Any) -> None:
        self._make, self._shared, self._numbers = make, None, itertools.count()

    def __call__(self) -> Any:
        if next(self._numbers) % _NUM_PROGRAMS == 0:
            self._shared = self._make()
        return self._shared
