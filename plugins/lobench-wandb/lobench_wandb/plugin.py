"""Declares the sink."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_result_sinks"]


@hookimpl
def lobench_result_sinks() -> Iterable[Declaration]:
    summary = "history of W&B runs, offline unless WANDB_MODE is set; wandb[:[ENTITY/]PROJECT][,run=ID]"
    return [Declaration(name="wandb", factory="lobench_wandb.sink:WandbSink", summary=summary)]
