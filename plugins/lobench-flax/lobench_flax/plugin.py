"""Declares the readers."""

from __future__ import annotations

from collections.abc import Iterable

from lobench.hookspecs import Declaration, hookimpl

__all__ = ["lobench_checkpoint_readers"]


@hookimpl
def lobench_checkpoint_readers() -> Iterable[Declaration]:
    return [
        Declaration(
            name="flax",
            factory="lobench_flax.msgpack_reader:MsgpackReader",
            summary="flax msgpack: raw theta, and google/learned_optimization's params_N",
        ),
        Declaration(name="orbax", factory="lobench_flax.orbax_reader:OrbaxReader", summary="orbax step directories"),
    ]
