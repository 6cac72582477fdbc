"""Pieces that per-parameter optimizers share: accumulators, normalised features, the step embedding.

A network on the features of each parameter is cheap in arithmetic and dear in memory traffic. So features stay separate
arrays [feature, ...], nothing is concatenated, and sums of products let XLA fuse a tensor's update into few passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "Factored",
    "at_least_1d",
    "decayed",
    "dense",
    "factored_axes",
    "init_factored",
    "rms_norm",
    "step_embedding",
    "tanh_scales",
    "update_factored",
    "weighted_sum",
]

tanh_scales = np.asarray([1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 3e4, 1e5], np.float32)


def at_least_1d(leaf: jax.Array) -> jax.Array:
    """Scalars are tensors of shape [1]."""
    return jnp.reshape(leaf, (1,)) if jnp.ndim(leaf) == 0 else jnp.asarray(leaf)


def step_embedding(step: jax.Array) -> jax.Array:
    """Returns float32[11]: tanh(t / s - 1) over time scales s."""
    return jnp.tanh(step.astype(jnp.float32) / tanh_scales - 1.0)


def decayed(old: jax.Array, new: jax.Array, decays: jax.Array) -> jax.Array:
    """Returns d old + (1-d) new for each decay: float32[num_decays, ...]."""
    d = decays.reshape((-1,) + (1,) * new.ndim)
    return d * old + (1 - d) * new[None]


def rms_norm(feature: jax.Array, axes: Sequence[int] | None = None) -> jax.Array:
    """Divides by the root mean square over all axes (of one channel), with 1e-5 under the root."""
    return feature * jax.lax.rsqrt(1e-5 + jnp.mean(feature * feature, axis=axes, keepdims=True))


@dataclass(frozen=True)
class Factored:
    """What the factored second moment gives for one tensor.

    Attributes:
      row, col: The accumulators, broadcastable against [num_decays, ...]; for rank < 2 both are the full moment.
      scale: What multiplies a gradient, [num_decays, ...] as a product of two broadcastable factors.
      full: For rank < 2 the full moment, [num_decays, ...]; else None.
    """

    row: jax.Array
    col: jax.Array
    scale: tuple[jax.Array, jax.Array]
    full: jax.Array | None


def _safe_rsqrt(x: jax.Array) -> jax.Array:
    return jax.lax.rsqrt(jnp.maximum(x, 1e-9))


def factored_axes(shape: Sequence[int]) -> tuple[int, int] | None:
    """Returns (axis of the largest size, axis of the second largest); None below rank 2."""
    if len(shape) < 2:
        return None
    order = np.argsort(shape)
    return int(order[-1]), int(order[-2])


def init_factored(shape: Sequence[int], num_decays: int) -> tuple[jax.Array, jax.Array]:
    """Returns zero accumulators (row, col); for rank < 2 the first holds the full moment and the second nothing."""
    axes = factored_axes(shape)
    if axes is None:
        return jnp.zeros((num_decays, *shape)), jnp.zeros((num_decays, 0))
    d0, d1 = axes
    row = tuple(size for axis, size in enumerate(shape) if axis != d0)
    col = tuple(size for axis, size in enumerate(shape) if axis != d1)
    return jnp.zeros((num_decays, *row)), jnp.zeros((num_decays, *col))


def update_factored(
    state: tuple[jax.Array, jax.Array], grad: jax.Array, decays: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], Factored]:
    """Updates the accumulators of one tensor with its gradient."""
    squares = grad * grad + 1e-30
    axes = factored_axes(grad.shape)
    if axes is None:
        full = decayed(state[0], squares, decays)
        return (full, state[1]), Factored(row=full, col=full, scale=(_safe_rsqrt(full + 1e-9), jnp.ones(())), full=full)
    d0, d1 = axes
    row = decayed(state[0], squares.mean(axis=d0), decays)
    col = decayed(state[1], squares.mean(axis=d1), decays)
    # In `row`, which lost the axis d0 (and gained the axis of decays in front), d1 is one to the left behind it.
    d1_in_row = (d1 - 1 if d1 > d0 else d1) + 1
    row_scale = _safe_rsqrt(row / (row.mean(axis=d1_in_row, keepdims=True) + 1e-9))
    wide_row, wide_col = jnp.expand_dims(row, d0 + 1), jnp.expand_dims(col, d1 + 1)
    scale = (jnp.expand_dims(row_scale, d0 + 1), _safe_rsqrt(wide_col))
    return (row, col), Factored(row=wide_row, col=wide_col, scale=scale, full=None)


def weighted_sum(features: Sequence[jax.Array], weights: jax.Array) -> list[jax.Array]:
    """First layer of the network: sum over features of `rms_norm`ed feature times weight, output by output.

    Args:
      features: Each [channels, ...], broadcastable over the tensor; what is constant along an axis stays narrow.
      weights: float32[total channels, width].
    Returns:
      `width` arrays [...].
    """
    outputs: list[jax.Array] = []
    scaled = []
    for feature in features:
        axes = tuple(range(1, feature.ndim))
        scaled.append(jax.lax.rsqrt(1e-5 + jnp.mean(feature * feature, axis=axes)))
    for unit in range(weights.shape[1]):
        total: jax.Array | None = None
        channel = 0
        for feature, factor in zip(features, scaled, strict=True):
            partial: jax.Array | None = None
            for index in range(feature.shape[0]):
                term = feature[index] * (factor[index] * weights[channel, unit])
                partial = term if partial is None else partial + term
                channel += 1
            assert partial is not None
            total = partial if total is None else total + partial
        assert total is not None
        outputs.append(total)
    return outputs


def dense(inputs: Sequence[jax.Array], weights: jax.Array, bias: jax.Array) -> list[jax.Array]:
    """A small dense layer as scalar arithmetic over arrays, which XLA fuses into one pass."""
    outputs = []
    for unit in range(weights.shape[1]):
        total = inputs[0] * weights[0, unit]
        for index in range(1, len(inputs)):
            total = total + inputs[index] * weights[index, unit]
        outputs.append(total + bias[unit])
    return outputs
