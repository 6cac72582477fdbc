"""Periodic computation under vmap, where a per-replica condition would always compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

__all__ = ["compute_when_due"]

T = TypeVar("T")


@jax.custom_batching.custom_vmap
def _due_anywhere(is_due: jax.Array) -> jax.Array:
    return is_due


@_due_anywhere.def_vmap
def _in_any_replica(axis_size: int, in_batched: list[bool], is_due: jax.Array) -> tuple[jax.Array, bool]:
    return _due_anywhere(is_due.any(axis=0) if in_batched[0] else is_due), False


def compute_when_due(is_due: jax.Array, compute: Callable[[], T], old_value: T) -> T:
    """Returns `compute()` if `is_due`, else `old_value`. Nothing is computed if no replica is due.

    `jax.vmap` turns a condition into a selection between two results, both of which are computed. Here the result is
    computed only if any replica is due, and then selected per replica. If all replicas are due at the same time,
    nothing is computed in vain.

    Args:
      is_due: bool[].
      compute: Function that returns the new value.
      old_value: Value with the structure, shapes and dtypes of `compute()`.
    """

    def computed() -> T:
        chosen: T = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), compute(), old_value)
        return chosen

    result: T = jax.lax.cond(_due_anywhere(is_due), computed, lambda: old_value)
    return result
