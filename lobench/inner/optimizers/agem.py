"""A-GEM: gradients that do not increase the loss on an episodic memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.inner.configurable import configurable
from lobench.inner.extra_inputs.calling import call_with_accepted
from lobench.inner.extra_inputs.optimizer_side import with_extra_inputs
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.baselines import sgd

__all__ = ["agem"]


@configurable
def agem(inner: Any = None) -> optax.GradientTransformationExtraArgs:
    """A-GEM: projects gradients that conflict with the gradient of an episodic memory.

    The inner optimizer receives g - (g'r / r'r) r if g'r < 0, else g, where r is the gradient of the memory, over all
    parameters as one vector. r is 0 while the memory is empty. The task defines `memory_loss`.

    Args:
      inner: Optimizer that steps by the projected gradient. None: SGD with rate 0.1.
    Source: Chaudhry et al. 2019, "Efficient lifelong learning with A-GEM", arXiv 1812.00420, equation 11.
    """
    optimizer: Any = sgd() if inner is None else inner
    if type(optimizer) is optax.GradientTransformation:
        optimizer = optax.with_extra_args_support(optimizer)

    def init(params: PyTree, **facts: Any) -> PyTree:
        return call_with_accepted(optimizer.init, params, **facts)

    def update(
        grads: PyTree, state: PyTree, params: PyTree = None, *, memory: PyTree, **extra: Any
    ) -> tuple[PyTree, PyTree]:
        grads = remove_conflict_with_memory(grads, memory)
        extra |= {"memory": memory} | ({"grad": grads} if "grad" in extra else {})
        result: tuple[PyTree, PyTree] = call_with_accepted(optimizer.update, grads, state, params, **extra)
        return result

    return with_extra_inputs(init, update, ("memory",), inner=optimizer)


def remove_conflict_with_memory(grads: PyTree, memory_grads: PyTree) -> PyTree:
    """Returns the gradient without its component opposite to the memory's gradient.

    A gradient without such a component is returned unchanged, bit for bit.
    """
    largest_entry = jnp.max(
        jnp.asarray([jnp.max(jnp.abs(leaf), initial=0.0) for leaf in jax.tree.leaves(memory_grads)])
    )
    has_memory = jnp.asarray(largest_entry >= np.finfo(np.float32).tiny)
    # Scaled to size 1, because the square of a small gradient would be 0.
    scaled_memory = jax.tree.map(
        lambda leaf: _as_float32(leaf) / jnp.where(has_memory, largest_entry, 1.0).astype(jnp.float32), memory_grads
    )
    memory_square = jnp.where(has_memory, _dot(scaled_memory, scaled_memory), 1.0)
    # Twice, to remove the rest that rounding leaves.
    return _without_conflict(
        _without_conflict(grads, scaled_memory, memory_square, has_memory), scaled_memory, memory_square, has_memory
    )


def _without_conflict(grads: PyTree, memory_grads: PyTree, memory_square: jax.Array, has_memory: jax.Array) -> PyTree:
    product = _dot(grads, memory_grads)

    def remove_conflict(grad: jax.Array, direction: jax.Array) -> jax.Array:
        return jnp.where(
            has_memory & (product < 0),
            (_as_float32(grad) - product / memory_square * direction).astype(grad.dtype),
            grad,
        )

    return jax.tree.map(remove_conflict, grads, memory_grads)


def _as_float32(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.float32)


def _dot(first_tree: PyTree, second_tree: PyTree) -> jax.Array:
    pairs = zip(jax.tree.leaves(first_tree), jax.tree.leaves(second_tree), strict=True)
    total: jax.Array = sum(
        (jnp.sum(_as_float32(first_leaf) * _as_float32(second_leaf)) for first_leaf, second_leaf in pairs),
        jnp.float32(0),
    )
    return total
