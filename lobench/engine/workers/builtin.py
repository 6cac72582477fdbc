"""Declarations of the executors of one machine."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_executors"]


@hookimpl
def lobench_executors() -> Iterable[Declaration]:
    pool = "lobench.engine.workers.pool"
    return [
        Declaration(name="local", factory=f"{pool}:LocalPool", summary="warm worker processes on this machine"),
        Declaration(name="inline", factory=f"{pool}:InlineExecutor", summary="one worker in this process, to debug"),
    ]
