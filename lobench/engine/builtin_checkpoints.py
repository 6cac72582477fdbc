"""Built-in declarations: the directory source and the readers that need no plugin."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_checkpoint_readers", "lobench_checkpoint_sources"]


@hookimpl
def lobench_checkpoint_sources() -> Iterable[Declaration]:
    factory = "lobench.engine.source:DirectorySource"
    return [Declaration(name="directory", factory=factory, summary="checkpoints in a folder, or a single one by path")]


@hookimpl
def lobench_checkpoint_readers() -> Iterable[Declaration]:
    module = "lobench.engine.readers"
    return [
        Declaration(name="npz", factory=f"{module}:NpzReader", summary="numpy .npz"),
        Declaration(name="safetensors", factory=f"{module}:SafetensorsReader", summary=".safetensors"),
        Declaration(name="pickle", factory=f"{module}:PickleReader", summary="refused unless --allow-pickle"),
    ]
