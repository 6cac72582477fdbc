"""Building blocks of per-parameter optimizers: accumulators, normalised features, the step embedding.

A narrow network on the features of each parameter needs little arithmetic and much memory traffic. Therefore features
are separate arrays [feature, ...], nothing is concatenated, and sums of products let XLA fuse a tensor's update into
few passes. A layer of more than `_MAX_SUMMED_UNITS` units on a tensor of at most `_CACHE_ELEMENTS` numbers is a matrix
product, which runs as fast and takes a fifth of the time to compile (37 s for the 32 units of ELO, as sums). On larger
tensors the sums take 60% of the time of a product.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

__all__ = [
    "LayerOutputs",
    "feature_layout",
    "from_feature_layout",
    "moving_averages",
    "network_outputs",
    "rms_norm",
    "step_embedding",
    "tanh_scales",
    "weighted_sum",
]

tanh_scales = np.asarray([1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 3e4, 1e5], np.float32)


LayerOutputs = list[jax.Array] | jax.Array  # arrays [...], or one array [width, ...] for a wide layer

_MAX_SUMMED_UNITS = 8  # largest number of units of a layer computed by sums
_CACHE_ELEMENTS = 1 << 14  # elements of a tensor that fits into the nearest cache
_VECTOR_LENGTH = 16  # elements of a vector instruction; loops over a shorter last axis do not use it


def feature_layout(leaf: jax.Array) -> jax.Array:
    """Returns a tensor of rank at least 1, with its longest axis last if the last one is short, for faster loops."""
    tensor = jnp.reshape(leaf, (1,)) if jnp.ndim(leaf) == 0 else jnp.asarray(leaf)
    return jnp.moveaxis(tensor, _longest_axis(tensor.shape), -1)


def from_feature_layout(tensor: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Returns a tensor from the layout of `feature_layout` in its original layout."""
    if len(shape) < 2 or _longest_axis(shape) == len(shape) - 1:
        return tensor.reshape(shape)
    return jnp.moveaxis(_swap_last_axes(tensor), -2, _longest_axis(shape))


@jax.custom_jvp
def _swap_last_axes(tensor: jax.Array) -> jax.Array:
    """Returns [..., short, long] as [..., long, short].

    It multiplies with the identity, which is exact. XLA would fuse a transposition into the loop that computed the
    tensor, which would then run over the short axis.
    """
    return _times_identities(tensor)


@_swap_last_axes.defjvp
def _swap_last_axes_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    return _swap_last_axes(*primals), jnp.swapaxes(tangents[0], -1, -2)  # needed because `custom_vmap` has no gradient


@custom_vmap
def _times_identities(tensor: jax.Array) -> jax.Array:
    *leading, num_rows, _ = tensor.shape
    # One identity per matrix; with a single one XLA would transpose the leading axes after all.
    identities = jnp.broadcast_to(jnp.eye(num_rows, dtype=tensor.dtype), (*leading, num_rows, num_rows))
    return jnp.einsum("...sl,...st->...lt", tensor, identities, precision=jax.lax.Precision.HIGHEST)


@_times_identities.def_vmap
def _(axis_size: int, in_batched: Sequence[bool], tensor: jax.Array) -> tuple[jax.Array, bool]:
    del axis_size, in_batched
    return _times_identities(tensor), True


def _longest_axis(shape: Sequence[int]) -> int:
    last_axis = len(shape) - 1
    return int(np.argsort(shape)[-1]) if shape[last_axis] < _VECTOR_LENGTH else last_axis


def step_embedding(step: jax.Array) -> jax.Array:
    """Returns the step embedding, float32[11]: tanh(t / s - 1) for time scales s."""
    return jnp.tanh(step.astype(jnp.float32) / tanh_scales - 1.0)


def moving_averages(old: jax.Array, new: jax.Array, decays: jax.Array) -> jax.Array:
    """Returns d old + (1-d) new for each decay: float32[num_decays, ...]."""
    decay_factors = decays.reshape((-1,) + (1,) * new.ndim)
    return decay_factors * old + (1 - decay_factors) * new[None]


def rms_norm(feature: jax.Array, axes: Sequence[int] | None = None) -> jax.Array:
    """Divides by the root mean square over all axes (of one channel), with 1e-5 under the root."""
    return feature * jax.lax.rsqrt(1e-5 + jnp.mean(feature * feature, axis=axes, keepdims=True))


def weighted_sum(features: Sequence[jax.Array], weights: jax.Array, other_sums: Sequence[jax.Array]) -> LayerOutputs:
    """First layer of the network: the sum over features of the `rms_norm`ed feature times its weight, per output.

    Args:
      features: Arrays [channels, ...] of the tensor's shape.
      weights: float32[total channels, width].
      other_sums: Further terms, each float32[width, ...] and broadcastable to the tensor.
    Returns:
      `width` arrays [...]; for a wide layer on a small tensor, one array [width, ...].
    """
    # The normalisation is folded into the weights: one small product for all channels.
    scaled_weights = jax.lax.rsqrt(1e-5 + _mean_squares(features))[:, None] * weights
    if weights.shape[1] > _MAX_SUMMED_UNITS and features[0][0].size <= _CACHE_ELEMENTS:
        total = jnp.tensordot(scaled_weights.T, jnp.concatenate(features), 1)
        return functools.reduce(operator.add, other_sums, total)
    channels, added_rows = [
        [jax.lax.unstack(channels_of_feature) for channels_of_feature in channel_lists]
        for channel_lists in (features, other_sums)
    ]
    outputs = []
    for unit, weights_of_unit in enumerate(_unit_weights(scaled_weights)):
        weight = iter(weights_of_unit)
        partials = [functools.reduce(operator.add, [row * next(weight) for row in rows]) for rows in channels]
        outputs.append(functools.reduce(operator.add, [*partials, *(rows[unit] for rows in added_rows)]))
    return outputs


def _unit_weights(weights: jax.Array) -> list[tuple[jax.Array, ...]]:
    """Returns the columns of the weights [inputs, width], one array per unit."""
    return [jax.lax.unstack(column) for column in jax.lax.unstack(weights, axis=1)]


def _mean_squares(features: Sequence[jax.Array]) -> jax.Array:
    """Returns the mean square of each channel, float32[total channels]."""
    if features[0].size > _CACHE_ELEMENTS:
        return jnp.concatenate([_mean_square(feature) for feature in features])
    # Features of one channel are stacked: for a small tensor the number of operations counts, not their traffic.
    single_channel_indices = [index for index, feature in enumerate(features) if feature.shape[0] == 1]
    stacked = _mean_square(jnp.concatenate([features[index] for index in single_channel_indices]))
    mean_of_index = {index: stacked[position : position + 1] for position, index in enumerate(single_channel_indices)}
    return jnp.concatenate(
        [
            mean_of_index[index] if index in mean_of_index else _mean_square(feature)
            for index, feature in enumerate(features)
        ]
    )


def _mean_square(feature: jax.Array) -> jax.Array:
    flat = feature.reshape(feature.shape[0], -1)
    return jnp.mean(flat * flat, axis=1)


def network_outputs(first_layer: LayerOutputs, bias: jax.Array, *layers: tuple[jax.Array, jax.Array]) -> LayerOutputs:
    """Returns the outputs of a network for one tensor. Outputs that are not used are not computed.

    Args:
      first_layer: Sums of the first layer, as returned by `weighted_sum`.
      bias: Bias of the first layer, float32[width].
      layers: Weights float32[inputs, width] and bias of each further layer.
    """
    values = _with_bias(first_layer, bias)
    for weights, other_bias in layers:
        values = _with_bias(_products(jax.tree.map(jax.nn.relu, values), weights), other_bias)
    return values


def _products(inputs: LayerOutputs, weights: jax.Array) -> LayerOutputs:
    if isinstance(inputs, jax.Array):
        return jnp.tensordot(weights.T, inputs, 1)
    # Scalar arithmetic over arrays, which XLA fuses into one pass.
    return [
        functools.reduce(operator.add, [value * weight for value, weight in zip(inputs, unit, strict=True)])
        for unit in _unit_weights(weights)
    ]


def _with_bias(values: LayerOutputs, bias: jax.Array) -> LayerOutputs:
    if isinstance(values, jax.Array):
        return values + bias.reshape(-1, *[1] * (values.ndim - 1))
    return [value + bias_of_unit for value, bias_of_unit in zip(values, jax.lax.unstack(bias), strict=True)]
