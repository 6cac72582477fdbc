"""What the tests of preconditioners have in common: gradients, and matrices with a known spectrum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NUM_UPDATES = 7


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns numbers that hang on their shape and seed alone, in whatever order tests run."""
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def gradients(*shape: int) -> np.ndarray:
    """Returns float32[NUM_UPDATES, *shape], each entry of a size of its own."""
    return (np.exp(normal(*shape)) * normal(NUM_UPDATES, *shape)).astype(np.float32)


def with_spectrum(values: Any, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns a symmetric matrix with these eigenvalues, and its eigenvectors."""
    vectors = np.linalg.qr(normal(len(values), len(values), seed=seed))[0]
    return (vectors * np.asarray(values)) @ vectors.T, vectors


def moved(optimizer: Any, params: Any, grads: Any, key: jax.Array | None = None) -> tuple[Any, Any]:
    """Returns the parameters after each update, stacked, and the optimizer's last state.

    Args:
      grads: As params, with a leading axis; update t has the key `fold_in(key, t)`.
    """

    def step(carry: Any, given: Any) -> Any:
        params, state = carry
        grad, index = given
        updates, state = optimizer.update(grad, state, params, key=jax.random.fold_in(key, index))
        params = jax.tree.map(jnp.add, params, updates)
        return (params, state), params

    key = jax.random.key(0) if key is None else key
    count = len(jax.tree.leaves(grads)[0])

    @jax.jit
    def run(params: Any, grads: Any) -> Any:
        return jax.lax.scan(step, (params, optimizer.init(params)), (grads, jnp.arange(count)))

    (_, state), path = run(params, grads)
    return jax.tree.map(np.asarray, path), state
