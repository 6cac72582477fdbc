"""Small pieces of networks as plain functions on dicts of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

__all__ = [
    "ACTIVATIONS",
    "Params",
    "batch_norm_inference",
    "batch_norm_training",
    "convolution3x3",
    "dense_init",
    "init_gain",
    "layer_norm",
]

Params = dict[str, jax.Array]

_NORM_EPSILON = 1e-5
_RUNNING_DECAY = 0.9

ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
}


def init_gain(activation: str) -> float:
    """Returns the factor on 1/fan_in that a layer's weight variance gets before this activation: 2 for ReLU's kin.

    Source: He et al. 2015, section 2.2.
    """
    return 2.0 if activation in ("relu", "gelu", "silu") else 1.0


def dense_init(key: jax.Array, fan_in: int, fan_out: int, *, gain: float = 1.0) -> jax.Array:
    """Returns normal weights float32[fan_in, fan_out] of variance gain / fan_in."""
    return math.sqrt(gain / fan_in) * jax.random.normal(key, (fan_in, fan_out), jnp.float32)


def convolution3x3(images: jax.Array, weights: jax.Array, *, stride: int) -> jax.Array:
    """Convolves with a 3x3 kernel, zero padding of one pixel on each side.

    Args:
      images: float32[batch, height, width, channels_in]; height and width divisible by `stride`.
      weights: float32[9 * channels_in, channels_out]: the kernel's pixels row by row, channels within.
    Returns:
      float32[batch, height / stride, width / stride, channels_out].
    """
    # As one matrix product: a convolution whose kernel differs from lane to lane of a vmap becomes a grouped one, for
    # which XLA has no fast path on a CPU.
    height, width = images.shape[1:3]
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        padded[:, row : row + height : stride, column : column + width : stride]
        for row in range(3)
        for column in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1) @ weights


def layer_norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Normalizes each example over its features; x float32[batch, features], scale and shift float32[features].

    Source: Ba et al. 2016.
    """
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + _NORM_EPSILON) * scale + shift


def batch_norm_training(
    x: jax.Array, scale: jax.Array, shift: jax.Array, running_mean: jax.Array, running_variance: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalizes each feature over the batch and moves the running statistics a tenth of the way to the batch's.

    Args:
      x: float32[batch, features]; all others float32[features].
    Returns:
      The normalized batch, the new running mean, the new running variance.
    Source: Ioffe and Szegedy 2015.
    """
    mean = jnp.mean(x, axis=0)
    variance = jnp.mean((x - mean) ** 2, axis=0)
    out = (x - mean) * jax.lax.rsqrt(variance + _NORM_EPSILON) * scale + shift
    # Constants to the gradient: the state is carried to the next step, not differentiated.
    mean, variance = jax.lax.stop_gradient((mean, variance))
    running_mean = _RUNNING_DECAY * running_mean + (1 - _RUNNING_DECAY) * mean
    running_variance = _RUNNING_DECAY * running_variance + (1 - _RUNNING_DECAY) * variance
    return out, running_mean, running_variance


def batch_norm_inference(
    x: jax.Array, scale: jax.Array, shift: jax.Array, running_mean: jax.Array, running_variance: jax.Array
) -> jax.Array:
    """Normalizes with the running statistics; x float32[batch, features], all others float32[features]."""
    return (x - running_mean) * jax.lax.rsqrt(running_variance + _NORM_EPSILON) * scale + shift
