"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.tensor_axes import eigh, gram, map_leaves, multiply_axis, orthogonal_factor
from lobench.inner.schedules.schedule import Rate
from lobench.inner.vmap_periodic import compute_when_due

__all__ = ["soap"]

_FactorsByAxis: TypeAlias = tuple[jax.Array | None, ...]  # a matrix per axis; None for an unchanged axis


class SoapState(NamedTuple):
    """State of `soap`. `grams` and `bases` have a matrix float32[d, d] for each axis of each tensor."""

    step: jax.Array  # int32[], updates before this one
    mu: PyTree  # in the coordinates of the bases, as is `nu`
    nu: PyTree
    grams: PyTree
    bases: PyTree


@configurable
def soap(
    learning_rate: Rate = 3e-3,
    b1: float = 0.95,
    b2: float = 0.95,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    update_interval: int = 10,
    max_preconditioned_dim: int = 10_000,
) -> optax.GradientTransformationExtraArgs:
    """SOAP: Adam in the eigenbasis of Shampoo's preconditioner.

    Vectors have Adam's update. A tensor with more than two axes has a basis for each of them. The first gradient only
    initializes the bases.

    Both moments are stored in the bases, as in the authors' code. If the mean were rotated and the square not, their
    rounding errors would differ, and their quotient could have any size if a gradient has no component.

    Args:
      learning_rate: Learning rate.
      b1, b2, eps, weight_decay: As in AdamW.
      update_interval: Number of updates between two changes of the bases.
      max_preconditioned_dim: Longest axis with a basis.
    Source: Vyas et al. 2024, "SOAP: Improving and Stabilizing Shampoo using Adam", arXiv 2409.11321, algorithms 3 and
    4, with Adam's bias correction.
    """
    return optax.chain(
        optax.GradientTransformation(
            lambda params: _init(params, max_preconditioned_dim),
            lambda grads, state, params=None: _update(grads, state, b1, b2, eps, update_interval),
        ),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def _init(params: PyTree, max_dim: int) -> SoapState:
    def matrices(leaf: jax.Array, make: Any) -> _FactorsByAxis:
        has_any = leaf.ndim > 1 and leaf.size > 0
        return tuple(make((dim, dim)) if has_any and dim <= max_dim else None for dim in leaf.shape)

    return SoapState(
        step=jnp.zeros([], jnp.int32),
        mu=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params),
        nu=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params),
        grams=jax.tree.map(lambda leaf: matrices(leaf, jnp.zeros), params),
        bases=jax.tree.map(lambda leaf: matrices(leaf, lambda shape: jnp.eye(shape[0])), params),
    )


def _update(
    grads: PyTree, state: SoapState, b1: float, b2: float, eps: float, update_interval: int
) -> tuple[PyTree, SoapState]:
    is_first = state.step == 0
    num_moves = jnp.maximum(state.step, 1)
    first_correction = 1 - b1**num_moves
    second_correction = 1 - b2**num_moves

    def update_leaf(
        grad: jax.Array, mu: jax.Array, nu: jax.Array, grams: _FactorsByAxis, bases: _FactorsByAxis
    ) -> tuple[PyTree, ...]:
        grad = grad.astype(jnp.float32)
        grams = tuple(
            None if factor is None else b2 * factor + (1 - b2) * gram(grad, axis) for axis, factor in enumerate(grams)
        )
        rotated = _into_bases(grad, bases)
        new_mu = b1 * mu + (1 - b1) * rotated
        new_nu = b2 * nu + (1 - b2) * jnp.square(rotated)
        move = new_mu / first_correction / (jnp.sqrt(new_nu / second_correction) + eps)
        move = _out_of_bases(move, bases)
        results = [jnp.where(is_first, old, new) for old, new in ((0, move), (mu, new_mu), (nu, new_nu))]
        return (*results, grams)

    updates, mu, nu, grams = map_leaves(update_leaf, grads, state.mu, state.nu, state.grams, state.bases)
    first_bases = compute_when_due(is_first, lambda: jax.tree.map(_eigenvectors, grams), state.bases)
    is_due = (state.step % update_interval == 0) & ~is_first
    bases, mu = compute_when_due(is_due, lambda: _rotate_bases(grams, first_bases, mu), (first_bases, mu))
    return updates, SoapState(state.step + 1, mu, nu, grams, bases)


def _rotate_bases(grams: PyTree, bases: PyTree, mu: PyTree) -> tuple[PyTree, PyTree]:
    """Returns the next bases, and the mean in these bases."""
    new_bases = jax.tree.map(_orthogonal_iteration, grams, bases)
    (mu,) = map_leaves(lambda leaf, old, new: (_into_bases(_out_of_bases(leaf, old), new),), mu, bases, new_bases)
    return new_bases, mu


def _into_bases(tensor: jax.Array, bases: _FactorsByAxis) -> jax.Array:
    for axis, basis in enumerate(bases):
        tensor = tensor if basis is None else multiply_axis(tensor, basis.T, axis)
    return tensor


def _out_of_bases(tensor: jax.Array, bases: _FactorsByAxis) -> jax.Array:
    for axis, basis in enumerate(bases):
        tensor = tensor if basis is None else multiply_axis(tensor, basis, axis)
    return tensor


def _eigenvectors(matrix: jax.Array) -> jax.Array:
    # The largest eigenvalue comes first: an orthogonal iteration keeps this order.
    return eigh(matrix)[1][:, ::-1]


def _orthogonal_iteration(matrix: jax.Array, basis: jax.Array) -> jax.Array:
    return orthogonal_factor(matrix @ basis)
