"""Normalization of a network's layers: per example, per batch, and both combined."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.tasks import arguments
from lobench.inner.tasks.networks import Params

__all__ = [
    "NORMS",
    "RUNNING_DECAY",
    "Norm",
    "batch_norm_inference",
    "batch_norm_training",
    "group_norm",
    "layer_norm",
    "norm_init",
    "norm_of",
    "normalized",
]

NORMS = (None, "layer", "batch")
RUNNING_DECAY = 0.9  # decay of running statistics per batch
_EPSILON = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """Normalization of a network's layers.

    Attributes:
      kind: One of NORMS.
      epsilon: Number added to a variance. With 0, constant features become 0, and multiplying the weights by eight
        changes no bit of the output.
      groups: Number of groups in which the features of an example are normalized before batch norm (continual
        normalization). 0: no groups.
    """

    kind: str | None = None
    epsilon: float = _EPSILON
    groups: int = 0


def norm_of(task: object, kind: str | None, epsilon: float) -> Norm:
    """Returns the norm for a task's arguments `norm` and `norm_epsilon`.

    Args:
      task: Task, or its name, for error messages.
      kind: One of NORMS.
      epsilon: Number added to a variance.
    Raises:
      ConfigError: The norm is unknown, or epsilon is not a number >= 0.
    """
    arguments.choice(task, "norm", kind, NORMS)
    return Norm(kind=kind, epsilon=arguments.number(task, "norm_epsilon", epsilon))


def layer_norm(x: jax.Array, scale: jax.Array, shift: jax.Array, *, epsilon: float = _EPSILON) -> jax.Array:
    """Normalizes each example over its features; x float32[..., features], scale and shift float32[features].

    Source: Ba et al. 2016.
    """
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * _inverse_root(variance, epsilon) * scale + shift


def group_norm(x: jax.Array, groups: int, *, epsilon: float = _EPSILON) -> jax.Array:
    """Normalizes each example to mean 0 and variance 1 in each group of features, over all positions.

    Args:
      x: float32[batch, ..., features].
      groups: Number of groups, a divisor of the number of features.
      epsilon: Number added to the variance.
    Source: Wu and He 2018, without an affine map.
    """
    grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    centred = grouped - jnp.mean(grouped, axis=(1, 3), keepdims=True)
    variance = jnp.mean(centred * centred, axis=(1, 3), keepdims=True)
    return (centred * _inverse_root(variance, epsilon)).reshape(x.shape)


def batch_norm_training(
    x: jax.Array,
    scale: jax.Array,
    shift: jax.Array,
    running_mean: jax.Array,
    running_variance: jax.Array,
    *,
    epsilon: float = _EPSILON,
    row_weights: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalizes each feature over the batch and moves the running statistics a tenth of the way to the batch's.

    Args:
      x: float32[batch, features]; all others float32[features].
      row_weights: float32[batch], how much each row counts in the statistics; None: all the same.
    Returns:
      The normalized batch, the new running mean, the new running variance.
    Source: Ioffe and Szegedy 2015.
    """
    if row_weights is None:
        mean = jnp.mean(x, axis=0)
        variance = jnp.mean((x - mean) ** 2, axis=0)
    else:
        mean = jnp.average(x, axis=0, weights=row_weights)
        variance = jnp.average((x - mean) ** 2, axis=0, weights=row_weights)
    outputs = (x - mean) * _inverse_root(variance, epsilon) * scale + shift
    # Constants to the gradient: the state is carried to the next step, not differentiated.
    mean, variance = jax.lax.stop_gradient((mean, variance))
    running_mean = RUNNING_DECAY * running_mean + (1 - RUNNING_DECAY) * mean
    running_variance = RUNNING_DECAY * running_variance + (1 - RUNNING_DECAY) * variance
    return outputs, running_mean, running_variance


def batch_norm_inference(
    x: jax.Array,
    scale: jax.Array,
    shift: jax.Array,
    running_mean: jax.Array,
    running_variance: jax.Array,
    *,
    epsilon: float = _EPSILON,
) -> jax.Array:
    """Normalizes with the running statistics; x float32[batch, features], all others float32[features]."""
    return (x - running_mean) * _inverse_root(running_variance, epsilon) * scale + shift


def norm_init(norm: Norm, layer: str, size: int) -> tuple[Params, Params]:
    """Returns a layer's `scale` and `shift`, and the initial `mean` and `variance` of batch norm as model state.

    Args:
      norm: Norm. With the kind None both are empty.
      layer: Suffix of the names.
      size: Number of features of the layer.
    Raises:
      ConfigError: The number of features is not divisible by the number of groups.
    """
    if norm.kind is None:
        return {}, {}
    if norm.groups and size % norm.groups:
        raise ConfigError(
            f"a layer of {size} features does not make {norm.groups} groups",
            expected="groups that divide the widths of all normalized layers",
        )
    zeros = jnp.zeros(size, jnp.float32)
    ones = jnp.ones(size, jnp.float32)
    state = {f"mean{layer}": zeros, f"variance{layer}": ones} if norm.kind == "batch" else {}
    return {f"scale{layer}": ones, f"shift{layer}": zeros}, state


def normalized(
    norm: Norm, x: jax.Array, layer: str, params: Params, state: PyTree, *, training: bool
) -> tuple[jax.Array, PyTree]:
    """Normalizes a layer's features x, float32[batch, ..., features]. Returns them and the new model state.

    If the state has `row_weights` float32[batch], they weight the examples in the statistics of batch norm.
    """
    if norm.kind is None:
        return x, state
    scale = params[f"scale{layer}"]
    shift = params[f"shift{layer}"]
    if norm.kind == "layer":
        return layer_norm(x, scale, shift, epsilon=norm.epsilon), state
    if norm.groups:
        x = group_norm(x, norm.groups, epsilon=norm.epsilon)
    mean = state[f"mean{layer}"]
    variance = state[f"variance{layer}"]
    if not training:
        return batch_norm_inference(x, scale, shift, mean, variance, epsilon=norm.epsilon), state
    rows = x.reshape(-1, x.shape[-1])
    weights = state.get("row_weights")
    if weights is not None:
        weights = jnp.repeat(weights, len(rows) // len(x))
    rows, mean, variance = batch_norm_training(
        rows, scale, shift, mean, variance, epsilon=norm.epsilon, row_weights=weights
    )
    return rows.reshape(x.shape), {**state, f"mean{layer}": mean, f"variance{layer}": variance}


def _inverse_root(variance: jax.Array, epsilon: float) -> jax.Array:
    """Returns 1 / sqrt(variance + epsilon). With epsilon 0, a variance of 0 is replaced by 1."""
    if epsilon:
        return jax.lax.rsqrt(variance + epsilon)
    return jax.lax.rsqrt(jnp.where(variance > 0, variance, 1.0))
