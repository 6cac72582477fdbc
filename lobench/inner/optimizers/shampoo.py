"""Shampoo: full-matrix AdaGrad for each axis of a tensor."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.tensor_axes import eigh, gram, gram_diagonal, map_leaves, multiply_axis, reshape_to_axis
from lobench.inner.schedules.schedule import Rate
from lobench.inner.vmap_periodic import compute_when_due

__all__ = ["shampoo"]

_FactorsByAxis: TypeAlias = tuple[jax.Array, ...]  # for each axis float32[d, d], or float32[d] of a long one


class ShampooState(NamedTuple):
    """State of `shampoo`. `grams` and their `roots` are stored by axis of each tensor."""

    step: jax.Array  # int32[], updates before this one
    mu: PyTree
    grams: PyTree
    roots: PyTree


@configurable
def shampoo(
    learning_rate: Rate = 0.1,
    momentum: float = 0.9,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    update_interval: int = 10,
    max_preconditioned_dim: int = 1200,
) -> optax.GradientTransformationExtraArgs:
    """Shampoo: full-matrix AdaGrad for each axis of a tensor.

    Args:
      learning_rate: Learning rate.
      momentum: Decay of the average of gradients that is preconditioned. 0 is the paper's algorithm.
      eps: Factor of the identity in the initial preconditioners.
      weight_decay: Decoupled weight decay.
      update_interval: Number of updates between two computations of the roots. The first `update_interval` updates
        compute them each time, because roots of a single gradient are 1 / sqrt(eps) wherever it was zero.
      max_preconditioned_dim: Longest axis with a full preconditioner; longer axes have a diagonal one.
    Source: Gupta et al. 2018, "Shampoo: Preconditioned Stochastic Tensor Optimization", arXiv 1802.09568, algorithms 1
    (matrices) and 2 (tensors), with its delayed roots and its diagonal form of long axes.
    """
    return optax.chain(
        optax.GradientTransformation(
            lambda params: _init(params, eps, max_preconditioned_dim),
            lambda grads, state, params=None: _update(grads, state, momentum, eps, update_interval),
        ),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def _init(params: PyTree, eps: float, max_dim: int) -> ShampooState:
    def identities(leaf: jax.Array, scale: float) -> _FactorsByAxis:
        dims = leaf.shape or (1,)
        return tuple(scale * (jnp.eye(dim) if leaf.size and dim <= max_dim else jnp.ones(dim)) for dim in dims)

    return ShampooState(
        step=jnp.zeros([], jnp.int32),
        mu=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params),
        grams=jax.tree.map(lambda leaf: identities(leaf, eps), params),
        roots=jax.tree.map(lambda leaf: identities(leaf, 1.0), params),
    )


def _update(
    grads: PyTree, state: ShampooState, momentum: float, eps: float, update_interval: int
) -> tuple[PyTree, ShampooState]:
    def add_gradient(grad: jax.Array, mu: jax.Array, grams: _FactorsByAxis) -> tuple[jax.Array, _FactorsByAxis]:
        grad = grad.astype(jnp.float32)
        tensor = jnp.atleast_1d(grad)
        new_grams = (
            gram(tensor, axis) if factor.ndim == 2 else gram_diagonal(tensor, axis) for axis, factor in enumerate(grams)
        )
        return momentum * mu + (1 - momentum) * grad, tuple(map(jnp.add, grams, new_grams))

    def roots_of(grad: jax.Array, grams: _FactorsByAxis) -> tuple[_FactorsByAxis]:
        return (tuple(_inverse_root(gram, len(grams), eps) for gram in grams),)

    def preconditioned(mu: jax.Array, roots: _FactorsByAxis) -> tuple[jax.Array]:
        tensor = jnp.atleast_1d(mu)
        for axis, root in enumerate(roots):
            is_full = root.ndim == 2
            tensor = multiply_axis(tensor, root, axis) if is_full else tensor * reshape_to_axis(root, tensor, axis)
        return (tensor.reshape(mu.shape),)

    mu, grams = map_leaves(add_gradient, grads, state.mu, state.grams)
    is_due = (state.step % update_interval == 0) | (state.step < update_interval)
    roots = compute_when_due(is_due, lambda: map_leaves(roots_of, grads, grams)[0], state.roots)
    (updates,) = map_leaves(preconditioned, mu, roots)
    return updates, ShampooState(state.step + 1, mu, grams, roots)


def _inverse_root(matrix: jax.Array, order: int, eps: float) -> jax.Array:
    """Returns H^(-1/2k) of a tensor with k axes. Eigenvalues below `eps`, as after rounding, count as `eps`."""
    power = -1 / (2 * order)
    if matrix.ndim == 1:
        return matrix**power
    values, vectors = eigh(matrix)
    return (vectors * jnp.maximum(values, eps) ** power) @ vectors.T
