"""PSGD with a Kronecker-factored preconditioner that whitens the gradient."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.tensor_axes import (
    gram,
    gram_diagonal,
    map_leaves,
    multiply_axis,
    reshape_to_axis,
    solve_upper_transposed,
)
from lobench.inner.schedules.schedule import Rate
from lobench.inner.vmap_periodic import compute_when_due

__all__ = ["psgd_kron"]

# For each axis an upper triangle float32[d, d], or a diagonal float32[d].
_FactorsByAxis: TypeAlias = tuple[jax.Array, ...]
_TINY = 1e-30


class PsgdKronState(NamedTuple):
    """State of `psgd_kron`. `factors` has a Q for each axis of a tensor, whose preconditioner is `Q^T Q`."""

    step: jax.Array  # int32[], updates before this one
    mu: PyTree
    factors: PyTree


@configurable
def psgd_kron(
    learning_rate: Rate = 1e-3,
    b1: float = 0.9,
    weight_decay: float = 0.0,
    preconditioner_rate: float = 0.1,
    initial_scale: float = 1.0,
    max_rms: float | None = 1.1,
    update_interval: int = 1,
    max_preconditioned_dim: int = 8192,
) -> optax.GradientTransformationExtraArgs:
    """PSGD-Kron: gradients whitened by a triangular factor per axis.

    Vectors have a diagonal factor. The noise of a fit is drawn from the `key` of the update.

    Args:
      learning_rate: Learning rate.
      b1: Decay of the average of gradients, with bias correction. 0: no average.
      weight_decay: Decoupled weight decay.
      preconditioner_rate: Rate of the factors' own steps, relative to the norm of the relative gradient.
      initial_scale: Initial scale of the preconditioner's root Q.
      max_rms: Largest root mean square of a tensor's preconditioned gradient, which is scaled down to it. None: no
        limit.
      update_interval: Number of updates between two fits of the factors.
      max_preconditioned_dim: Longest axis with a triangular factor; longer axes have a diagonal one.
    Source: Li 2018, "Preconditioner on Matrix Lie Group for SGD", arXiv 1809.10232 (Kronecker products of triangular
    matrices), with the whitening criterion and the step's norm of Li 2024, "Stochastic Hessian Fittings with Lie
    Groups", arXiv 2402.11858; the norm is bounded by the largest absolute row sum.
    """
    return optax.chain(
        optax.GradientTransformationExtraArgs(
            lambda params: _init(params, initial_scale, max_preconditioned_dim),
            lambda grads, state, params=None, *, key, **extra: _update(
                grads, state, key, b1, preconditioner_rate, max_rms, update_interval
            ),
        ),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def _init(params: PyTree, scale: float, max_dim: int) -> PsgdKronState:
    def factors(leaf: jax.Array) -> _FactorsByAxis:
        dims = leaf.shape or (1,)
        factor_scale = scale ** (1 / len(dims))
        is_full = len(dims) > 1 and leaf.size > 0
        return tuple(factor_scale * (jnp.eye(dim) if is_full and dim <= max_dim else jnp.ones(dim)) for dim in dims)

    return PsgdKronState(
        step=jnp.zeros([], jnp.int32),
        mu=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params),
        factors=jax.tree.map(factors, params),
    )


def _update(
    grads: PyTree,
    state: PsgdKronState,
    key: jax.Array,
    b1: float,
    rate: float,
    max_rms: float | None,
    update_interval: int,
) -> tuple[PyTree, PsgdKronState]:
    mu = jax.tree.map(lambda old, grad: b1 * old + (1 - b1) * grad.astype(jnp.float32), state.mu, grads)
    correction = 1 - b1 ** (state.step + 1)
    corrected_averages = jax.tree.map(lambda average: jnp.atleast_1d(average / correction), mu)

    def fit_factors() -> PyTree:
        keys = iter(jax.random.split(key, len(jax.tree.leaves(corrected_averages))))
        return map_leaves(
            lambda grad, factors: (_fit_factors(grad, factors, next(keys), rate),), corrected_averages, state.factors
        )[0]

    factors = compute_when_due(state.step % update_interval == 0, fit_factors, state.factors)

    def preconditioned(grad: jax.Array, original_shape_leaf: jax.Array, factors: _FactorsByAxis) -> tuple[jax.Array]:
        for axis, factor in enumerate(factors):
            is_triangle = factor.ndim == 2
            grad = (
                multiply_axis(grad, factor.T @ factor, axis)
                if is_triangle
                else grad * reshape_to_axis(factor**2, grad, axis)
            )
        if max_rms is not None:
            grad = grad * jnp.minimum(1, max_rms / (jnp.sqrt(jnp.square(grad).mean()) + _TINY))
        return (grad.reshape(original_shape_leaf.shape),)

    (updates,) = map_leaves(preconditioned, corrected_averages, mu, factors)
    return updates, PsgdKronState(state.step + 1, mu, factors)


def _fit_factors(grad: jax.Array, factors: _FactorsByAxis, key: jax.Array, rate: float) -> _FactorsByAxis:
    """Returns the factors after a step that lowers E[g^T P g + v^T P^-1 v] over P = Q^T Q, with noise v."""
    preconditioned_grad = grad
    preconditioned_noise = jax.random.normal(key, grad.shape)
    for axis, factor in enumerate(factors):
        if factor.ndim == 2:
            preconditioned_grad = multiply_axis(preconditioned_grad, factor, axis)
            preconditioned_noise = _times_inverse_transposed(preconditioned_noise, factor, axis)
        else:
            preconditioned_grad = preconditioned_grad * reshape_to_axis(factor, preconditioned_grad, axis)
            preconditioned_noise = preconditioned_noise / reshape_to_axis(factor, preconditioned_noise, axis)
    return tuple(
        _next_factor(factor, preconditioned_grad, preconditioned_noise, axis, rate)
        for axis, factor in enumerate(factors)
    )


def _times_inverse_transposed(tensor: jax.Array, factor: jax.Array, axis: int) -> jax.Array:
    """Returns a tensor with one axis multiplied by Q^-T."""
    rows = jnp.moveaxis(tensor, axis, 0)
    solved = solve_upper_transposed(factor, rows.reshape(rows.shape[0], -1))
    return jnp.moveaxis(solved.reshape(rows.shape), 0, axis)


def _next_factor(factor: jax.Array, a: jax.Array, b: jax.Array, axis: int, rate: float) -> jax.Array:
    if factor.ndim == 1:
        gram_a = gram_diagonal(a, axis)
        gram_b = gram_diagonal(b, axis)
        return factor - rate / ((gram_a + gram_b).max(initial=0) + _TINY) * (gram_a - gram_b) * factor
    gram_a = gram(a, axis)
    gram_b = gram(b, axis)
    norm = jnp.abs(gram_a + gram_b).sum(axis=1).max() + _TINY
    return factor - rate / norm * jnp.triu(gram_a - gram_b) @ factor
