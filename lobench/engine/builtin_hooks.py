"""Built-in declarations: gin modules and admission policies."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_admission_policies", "lobench_gin_modules"]


@hookimpl
def lobench_gin_modules() -> Iterable[Declaration]:
    modules = ("optimizers", "tasks")
    return [Declaration(name=f"lobench.inner.{name}", factory=f"lobench.inner.{name}:") for name in modules]


@hookimpl
def lobench_admission_policies() -> Iterable[Declaration]:
    module = "lobench.core.admission"
    return [
        Declaration(
            name="latest", factory=f"{module}:latest", summary="the newest when a worker is free; skips others"
        ),
        Declaration(name="all", factory=f"{module}:every_checkpoint", summary="every checkpoint, in order"),
        Declaration(name="every", factory=f"{module}:every_nth", summary="every:N: each Nth, and the last of all"),
    ]
