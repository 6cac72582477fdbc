"""Hooks of lobench-torch."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_gin_modules"]


@hookimpl
def lobench_gin_modules() -> Iterable[Declaration]:
    summary = "`@torch.optim.NAME()`, and `@torch_optimizer()` of any class of torch optimizers"
    # `lobench list optimizers` shows modules whose name ends in "optimizers".
    return [
        Declaration(name="lobench_torch.torch_optimizers", factory="lobench_torch.torch_optimizers:", summary=summary)
    ]
