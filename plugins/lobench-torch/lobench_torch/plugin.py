"""Hooks of lobench-torch."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_gin_modules"]


@hookimpl
def lobench_gin_modules() -> Iterable[Declaration]:
    summary = "`@torch.optim.NAME()`, and `@torch_optimizer()` of any class of torch optimizers"
    return [Declaration(name="lobench_torch.gin_names", factory="lobench_torch.gin_names:", summary=summary)]
