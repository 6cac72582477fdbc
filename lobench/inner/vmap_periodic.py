"""Periodic computation under vmap, where a per-replica condition would always compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

__all__ = ["when"]

T = TypeVar("T")


@jax.custom_batching.custom_vmap
def _anywhere(due: jax.Array) -> jax.Array:
    return due


@_anywhere.def_vmap
def _in_any_replica(axis_size: int, in_batched: list[bool], due: jax.Array) -> tuple[jax.Array, bool]:
    return _anywhere(due.any(axis=0) if in_batched[0] else due), False


def when(due: jax.Array, compute: Callable[[], T], kept: T) -> T:
    """Returns what is computed where it is due, else what is kept; it is not computed while it is due nowhere.

    Under `jax.vmap` a condition becomes a choice between two results, both of which are computed. Here it is computed
    when it is due in any replica, and chosen in those in which it is. Replicas that count alike lose nothing.

    Args:
      due: bool[].
      kept: Of the structure, shapes and dtypes that `compute` returns.
    """

    def computed() -> T:
        chosen: T = jax.tree.map(lambda new, old: jnp.where(due, new, old), compute(), kept)
        return chosen

    found: T = jax.lax.cond(_anywhere(due), computed, lambda: kept)
    return found
