"""Bitwise comparison for the contracts of tasks and optimizers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["COMPILED_FAST", "assert_same_bits", "key_of", "same_bits", "types_of"]

# Options of XLA for programs that run only once: they compile fast and run slowly.
COMPILED_FAST = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def key_of(seed: Any) -> jax.Array:
    key: jax.Array = jax.random.key(seed, impl="threefry2x32")
    return key


def types_of(tree: Any) -> str:
    """Returns structure, shapes and dtypes."""
    return str(jax.tree.map(lambda leaf: (np.shape(leaf), str(jnp.result_type(leaf))), tree))


def same_bits(first: Any, second: Any) -> bool:
    """Returns whether two arrays hold the same bytes.

    ``assert first.tobytes() == second.tobytes()`` may take forever: if it fails and ``CI`` is set, pytest compares the
    texts of both in quadratic time.
    """
    return np.asarray(first).tobytes() == np.asarray(second).tobytes()


def assert_same_bits(first: Any, second: Any) -> None:
    assert types_of(first) == types_of(second)
    for first_leaf, second_leaf in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert same_bits(first_leaf, second_leaf), f"other bits in an array of shape {np.shape(first_leaf)}"
