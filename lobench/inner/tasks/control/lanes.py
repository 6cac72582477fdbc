"""What is computed only now and then, where lanes are mapped: a condition of each lane would compute it always."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

__all__ = ["when"]

T = TypeVar("T")


@jax.custom_batching.custom_vmap
def _in_any_lane(flag: jax.Array) -> jax.Array:
    return flag


@_in_any_lane.def_vmap
def _joined(axis_size: int, in_batched: list[bool], flag: jax.Array) -> tuple[jax.Array, bool]:
    return (_in_any_lane(jnp.any(flag, axis=0)) if in_batched[0] else flag), False


def when(due: jax.Array, change: Callable[[T], T], state: T) -> T:
    """Returns `change(state)` where it is due, and the state where it is not.

    Under `jax.vmap` a condition becomes a choice between two results, both of which are computed. Here the change is
    computed when it is due in any lane, and chosen in those in which it is. Lanes that count alike lose nothing.
    """

    def changed(state: T) -> T:
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), change(state), state)

    return jax.lax.cond(_in_any_lane(due), changed, lambda state: state, state)
