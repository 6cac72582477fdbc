"""Building blocks of networks, as functions on dicts of parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

__all__ = [
    "ACTIVATIONS",
    "Params",
    "convolution1d",
    "convolution3x3",
    "dense_init",
    "init_gain",
    "layers_init",
    "through_layers",
    "two_layers_init",
]

Params = dict[str, jax.Array]

ACTIVATIONS: Mapping[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
}


def init_gain(activation: str) -> float:
    """Returns the factor on 1/fan_in in the variance of a layer's weights before an activation: 2 for ReLU and similar.

    Source: He et al. 2015, section 2.2.
    """
    return 2.0 if activation in ("relu", "gelu", "silu") else 1.0


def dense_init(key: jax.Array, fan_in: int, fan_out: int, *, gain: float = 1.0) -> jax.Array:
    """Returns normal weights float32[fan_in, fan_out] of variance gain / fan_in."""
    return math.sqrt(gain / fan_in) * jax.random.normal(key, (fan_in, fan_out), jnp.float32)


def layers_init(key: jax.Array, widths: tuple[int, ...], gain: float) -> Params:
    """Returns weights `w0`, ... and zero biases `b0`, ...; `gain` applies to all layers but the last."""
    params: Params = {}
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        is_last = layer == len(widths) - 2
        layer_key = jax.random.fold_in(key, layer)
        params[f"w{layer}"] = dense_init(layer_key, fan_in, fan_out, gain=1.0 if is_last else gain)
        params[f"b{layer}"] = jnp.zeros(fan_out, jnp.float32)
    return params


def two_layers_init(key: jax.Array, num_inputs: int, width: int, num_outputs: int) -> Params:
    """Returns parameters in the structure of `layers_init`, of a ReLU layer and a linear one."""
    hidden_key, out_key = jax.random.split(key)
    return {
        "w0": dense_init(hidden_key, num_inputs, width, gain=2.0),
        "b0": jnp.zeros(width, jnp.float32),
        "w1": dense_init(out_key, width, num_outputs),
        "b1": jnp.zeros(num_outputs, jnp.float32),
    }


def through_layers(params: Params, x: jax.Array, activation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Returns the output of the layers of `layers_init` for x float32[..., width]; the last one is linear."""
    last_layer = len(params) // 2 - 1
    for layer in range(last_layer):
        x = activation(x @ params[f"w{layer}"] + params[f"b{layer}"])
    return x @ params[f"w{last_layer}"] + params[f"b{last_layer}"]


def convolution3x3(images: jax.Array, weights: jax.Array, *, stride: int) -> jax.Array:
    """Convolves with a 3x3 kernel, zero padding of one pixel on each side.

    Args:
      images: float32[batch, height, width, channels_in].
      weights: float32[9 * channels_in, channels_out]: the kernel's pixels row by row, channels within.
    Returns:
      float32[batch, height / stride, width / stride, channels_out], rounded up.
    """
    # Computed as one matrix product: under vmap, a convolution whose kernel differs between replicas becomes a grouped
    # convolution, for which XLA has no fast path on a CPU.
    height, width = images.shape[1:3]
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        padded[:, row : row + height : stride, column : column + width : stride]
        for row in range(3)
        for column in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1) @ weights


def convolution1d(signals: jax.Array, weights: jax.Array, *, stride: int) -> jax.Array:
    """Convolves with a kernel of any width, zero padding of one point on each side.

    Args:
      signals: float32[batch, length, channels_in].
      weights: float32[width * channels_in, channels_out]: the kernel's points in order, channels within.
    Returns:
      float32[batch, (length + 2 - width) // stride + 1, channels_out].
    """
    # Computed as one matrix product, as in `convolution3x3`.
    padded = jnp.pad(signals, ((0, 0), (1, 1), (0, 0)))
    width = weights.shape[0] // signals.shape[2]
    end = padded.shape[1] - width + 1
    shifted = [padded[:, point : point + end : stride] for point in range(width)]
    return jnp.concatenate(shifted, axis=-1) @ weights
