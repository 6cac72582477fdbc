"""SGD-G and Adam-G: the weights of each neuron are a point on the sphere and move along geodesics."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizers.baselines import adam
from lobench.inner.optimizers.baselines import momentum as heavy_ball
from lobench.inner.optimizers.neurons import neuron_dot, neuron_optimizer, normalized_neurons, safe_norm
from lobench.inner.schedules.schedule import Rate, rate_at

__all__ = ["adam_g", "sgd_g"]


class AdamGState(NamedTuple):
    """State of `adam_g` for one leaf."""

    mu: jax.Array  # like the weights
    nu: jax.Array  # a number for each neuron, all other axes of size 1


@configurable
def sgd_g(
    learning_rate: Rate = 0.2, momentum: Rate = 0.9, clip: Rate = 0.1, rest: Any = None
) -> optax.GradientTransformationExtraArgs:
    """SGD-G: SGD with momentum on the sphere, for incoming weights of neurons followed by batch norm.

    With y = w / |w|: h <- g - y (y'g), shortened to `clip`; d <- momentum d - learning_rate h;
    w <- y cos|d| + d/|d| sin|d|, and d is transported along. Training starts at weights of norm 1 and keeps that norm.
    The task declares the weights (`Task.scale_invariant`). The paper's penalty on similar neurons is omitted.

    Args:
      learning_rate: Learning rate on the sphere.
      momentum: Decay of d.
      clip: Largest norm of a neuron's gradient.
      rest: Optimizer of all other parameters. None: SGD with rate 0.01 and momentum 0.9.
    Source: Cho and Lee 2017, "Riemannian approach to batch normalization", arXiv 1709.09603, algorithm 3.
    """

    def step_leaf(
        grad: jax.Array, weights: jax.Array, momentum_before: jax.Array, axis: int, count: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        point = normalized_neurons(weights, axis)
        step = momentum * momentum_before - rate_at(learning_rate, count) * _tangent_component(grad, point, clip, axis)
        end_point, length, direction = _move_along_geodesic(step, point, axis)
        momentum_after = length * (direction * jnp.cos(length) - point * jnp.sin(length))
        return end_point - weights, momentum_after

    rest = heavy_ball() if rest is None else rest
    return neuron_optimizer(
        "sgd_g", lambda leaf, axis: jnp.zeros(leaf.shape, jnp.float32), step_leaf, rest, starts_at_one=True
    )


@configurable
def adam_g(
    learning_rate: Rate = 0.05,
    b1: Rate = 0.9,
    b2: Rate = 0.99,
    eps: Rate = 1e-8,
    clip: Rate = 0.1,
    rest: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Adam-G: Adam on the sphere, with one second moment per neuron; otherwise as `sgd_g`.

    m <- b1 m + (1 - b1) h; v <- b2 v + (1 - b2) h'h; d = -learning_rate sqrt(1 - b2^t) / (1 - b1^t) m / sqrt(v + eps);
    w is moved along d, and m is transported along it.

    Args:
      learning_rate: Learning rate on the sphere.
      b1, b2, eps: Decays of the moments, and the number added to v.
      clip: Largest norm of a neuron's gradient.
      rest: Optimizer of all other parameters. None: Adam with rate 0.001.
    Source: Cho and Lee 2017, "Riemannian approach to batch normalization", arXiv 1709.09603, algorithm 4.
    """

    def init_leaf(leaf: jax.Array, axis: int) -> AdamGState:
        shape = tuple(size if tensor_axis == axis else 1 for tensor_axis, size in enumerate(leaf.shape))
        return AdamGState(jnp.zeros(leaf.shape, jnp.float32), jnp.zeros(shape, jnp.float32))

    def step_leaf(
        grad: jax.Array, weights: jax.Array, moments: AdamGState, axis: int, count: jax.Array
    ) -> tuple[jax.Array, AdamGState]:
        point = normalized_neurons(weights, axis)
        grad = _tangent_component(grad, point, clip, axis)
        mu = b1 * moments.mu + (1 - b1) * grad
        nu = b2 * moments.nu + (1 - b2) * neuron_dot(grad, grad, axis)
        num_updates = count + 1
        rate = rate_at(learning_rate, count) * jnp.sqrt(1 - b2**num_updates) / (1 - b1**num_updates)
        end_point, length, direction = _move_along_geodesic(-rate * mu / jnp.sqrt(nu + eps), point, axis)
        component = neuron_dot(direction, mu, axis)
        mu = mu - component * (jnp.sin(length) * point + (1 - jnp.cos(length)) * direction)
        return end_point - weights, AdamGState(mu, nu)

    return neuron_optimizer("adam_g", init_leaf, step_leaf, adam() if rest is None else rest, starts_at_one=True)


def _tangent_component(grad: jax.Array, point: jax.Array, clip: Rate, axis: int) -> jax.Array:
    """Returns the component of a gradient tangent to the sphere, scaled down to norm `clip`."""
    grad = grad - point * neuron_dot(point, grad, axis)
    return grad * jnp.minimum(1.0, clip / safe_norm(grad, axis))


def _move_along_geodesic(step: jax.Array, point: jax.Array, axis: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Moves points along geodesics. Returns the end points, the distances, and the initial directions."""
    length = jnp.sqrt(neuron_dot(step, step, axis))
    direction = normalized_neurons(step, axis)
    return point * jnp.cos(length) + direction * jnp.sin(length), length, direction
