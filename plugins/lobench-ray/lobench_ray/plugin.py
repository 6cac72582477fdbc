"""Declares the executor."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_executors"]


@hookimpl
def lobench_executors() -> Iterable[Declaration]:
    factory = "lobench_ray.executor:RayExecutor"
    return [Declaration(name="ray", factory=factory, summary="warm workers on the nodes of a Ray cluster")]
