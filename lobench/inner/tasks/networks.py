"""Small pieces of networks as plain functions on dicts of parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from lobench.inner.optimizer import PyTree

__all__ = [
    "ACTIVATIONS",
    "NORMS",
    "Params",
    "batch_norm_inference",
    "batch_norm_training",
    "convolution1d",
    "convolution3x3",
    "dense_init",
    "init_gain",
    "layer_norm",
    "layers_init",
    "norm_init",
    "normalized",
    "through_layers",
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
NORMS = (None, "layer", "batch")


def init_gain(activation: str) -> float:
    """Returns the factor on 1/fan_in that a layer's weight variance gets before this activation: 2 for ReLU's kin.

    Source: He et al. 2015, section 2.2.
    """
    return 2.0 if activation in ("relu", "gelu", "silu") else 1.0


def dense_init(key: jax.Array, fan_in: int, fan_out: int, *, gain: float = 1.0) -> jax.Array:
    """Returns normal weights float32[fan_in, fan_out] of variance gain / fan_in."""
    return math.sqrt(gain / fan_in) * jax.random.normal(key, (fan_in, fan_out), jnp.float32)


def layers_init(key: jax.Array, widths: tuple[int, ...], gain: float) -> Params:
    """Returns weights `w0`, `w1`, ... and zero biases `b0`, ... between the widths; `gain` is of all but the last."""
    params: Params = {}
    for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
        is_last = layer == len(widths) - 2
        layer_key = jax.random.fold_in(key, layer)
        params[f"w{layer}"] = dense_init(layer_key, fan_in, fan_out, gain=1.0 if is_last else gain)
        params[f"b{layer}"] = jnp.zeros(fan_out, jnp.float32)
    return params


def through_layers(params: Params, x: jax.Array, activation: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Returns the output of the layers of `layers_init` for x float32[..., width]; the last one is linear."""
    last = len(params) // 2 - 1
    for layer in range(last):
        x = activation(x @ params[f"w{layer}"] + params[f"b{layer}"])
    return x @ params[f"w{last}"] + params[f"b{last}"]


def convolution3x3(images: jax.Array, weights: jax.Array, *, stride: int) -> jax.Array:
    """Convolves with a 3x3 kernel, zero padding of one pixel on each side.

    Args:
      images: float32[batch, height, width, channels_in].
      weights: float32[9 * channels_in, channels_out]: the kernel's pixels row by row, channels within.
    Returns:
      float32[batch, height / stride, width / stride, channels_out], rounded up.
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


def convolution1d(signals: jax.Array, weights: jax.Array, *, stride: int) -> jax.Array:
    """Convolves with a kernel of any width, zero padding of one point on each side.

    Args:
      signals: float32[batch, length, channels_in].
      weights: float32[width * channels_in, channels_out]: the kernel's points in order, channels within.
    Returns:
      float32[batch, (length + 2 - width) // stride + 1, channels_out].
    """
    # As one matrix product, for the reason given above.
    padded = jnp.pad(signals, ((0, 0), (1, 1), (0, 0)))
    width = weights.shape[0] // signals.shape[2]
    end = padded.shape[1] - width + 1
    shifted = [padded[:, point : point + end : stride] for point in range(width)]
    return jnp.concatenate(shifted, axis=-1) @ weights


def layer_norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Normalizes each example over its features; x float32[..., features], scale and shift float32[features].

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


def norm_init(norm: str | None, layer: str, size: int) -> tuple[Params, Params]:
    """Returns a layer's `scale` and `shift`, and as the model state of batch norm its running `mean` and `variance`.

    Args:
      norm: One of NORMS; None has neither.
      layer: What their names end in.
      size: Features of the layer.
    """
    if norm is None:
        return {}, {}
    zeros, ones = jnp.zeros(size, jnp.float32), jnp.ones(size, jnp.float32)
    state = {f"mean{layer}": zeros, f"variance{layer}": ones} if norm == "batch" else {}
    return {f"scale{layer}": ones, f"shift{layer}": zeros}, state


def normalized(
    norm: str | None, x: jax.Array, layer: str, params: Params, state: PyTree, *, training: bool
) -> tuple[jax.Array, PyTree]:
    """Returns a layer's features, x float32[..., features], after its norm, and the model state after them."""
    if norm is None:
        return x, state
    scale, shift = params[f"scale{layer}"], params[f"shift{layer}"]
    if norm == "layer":
        return layer_norm(x, scale, shift), state
    mean, variance = state[f"mean{layer}"], state[f"variance{layer}"]
    if not training:
        return batch_norm_inference(x, scale, shift, mean, variance), state
    rows = x.reshape(-1, x.shape[-1])
    rows, mean, variance = batch_norm_training(rows, scale, shift, mean, variance)
    return rows.reshape(x.shape), {**state, f"mean{layer}": mean, f"variance{layer}": variance}
