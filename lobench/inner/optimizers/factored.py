"""Adafactor's factored second moments of all tensors of a network, and their use by networks.

Factors are short vectors, so the number of operations determines the cost, and not their length. The factors of all
tensors are concatenated in one vector and cost as much as the factors of a single tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.optimizer import OptimizerState, PyTree
from lobench.inner.optimizers.features import feature_layout, from_feature_layout, moving_averages

__all__ = ["Accumulators", "FactoredMoments", "FactoredValues", "TensorValues", "factored_axes"]

_NORM_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class _Segment:
    """A factor of one tensor: its position in the vector, and its shape relative to the tensor."""

    tensor: int
    start: int
    shape: tuple[int, ...]  # broadcastable to the tensor's
    mean_axis: int  # axis of the tensor that the factor is the mean over; -1 if the moment is not factored
    row_and_column_use: tuple[float, float]  # 1 where it serves as (row, column)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class FactoredValues:
    """Values of factored moments for all tensors of a step.

    Attributes:
      factor_scales: Per tensor, two factors broadcastable to float32[num_decays, ...] whose product scales a gradient.
      unfactored: Per tensor, the moment float32[num_decays, ...] if the tensor's rank is below 2, else None.
      factor_sums: Per tensor, arrays to add to a layer's sums, float32[width, ...] and broadcastable to the tensor.
    """

    factor_scales: list[tuple[jax.Array, jax.Array]]
    unfactored: list[jax.Array | None]
    factor_sums: list[list[jax.Array]]


def factored_axes(shape: Sequence[int]) -> tuple[int, int] | None:
    """Returns (axis of the largest size, axis of the second largest); None below rank 2."""
    if len(shape) < 2:
        return None
    order = np.argsort(shape)
    return int(order[-1]), int(order[-2])


class FactoredMoments:
    """Factored second moments of several tensors.

    Args:
      shapes: Shapes of the tensors, each of rank 1 or more.
    Source: Shazeer and Stern 2018 (arXiv 1804.04235), with the axes of Metz et al. 2022 (arXiv 2203.11860).
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = [tuple(shape) for shape in shapes]
        self._segments: list[_Segment] = []
        self._size = 0
        for tensor, shape in enumerate(self._shapes):
            axes = factored_axes(shape)
            if axes is None:
                self._add_segment(tensor, shape, -1, (1.0, 1.0))
                continue
            for axis, row_and_column in zip(axes, ((1.0, 0.0), (0.0, 1.0)), strict=True):
                self._add_segment(
                    tensor,
                    tuple(1 if shape_axis == axis else size for shape_axis, size in enumerate(shape)),
                    axis,
                    row_and_column,
                )

    def _add_segment(self, tensor: int, shape: tuple[int, ...], axis: int, row_and_column: tuple[float, float]) -> None:
        segment = _Segment(tensor, self._size, shape, axis, row_and_column)
        self._segments.append(segment)
        self._size += segment.size

    def init(self, num_decays: int) -> jax.Array:
        """Returns zero moments, float32[num_decays, size]."""
        return jnp.zeros((num_decays, self._size))

    def update(
        self, state: jax.Array, grads: Sequence[jax.Array], decays: jax.Array, weights: jax.Array
    ) -> tuple[jax.Array, FactoredValues]:
        """Updates the moments with the gradients of a step. Returns the new state and the values for all tensors.

        Args:
          state: Moments, float32[num_decays, size].
          grads: Gradients by tensor.
          decays: float32[num_decays].
          weights: float32[4 num_decays, width] of a network's first layer, for the normalised features row, column,
            rsqrt(row), rsqrt(column); [num_tensors, 4 num_decays, width] if each tensor has its own network.
        """
        squares = [grad * grad + 1e-30 for grad in grads]
        means = [
            squares[s.tensor] if s.mean_axis < 0 else squares[s.tensor].mean(axis=s.mean_axis) for s in self._segments
        ]
        state = moving_averages(state, jnp.concatenate([mean.ravel() for mean in means]), decays)
        scales = self._scales(state)
        unfactored: list[jax.Array | None] = [None] * len(self._shapes)
        scale_lists: list[list[jax.Array]] = [[] for _ in self._shapes]
        for segment in self._segments:
            scale_lists[segment.tensor].append(self._segment_values(scales, segment))
            if segment.mean_axis < 0:
                unfactored[segment.tensor] = self._segment_values(state, segment)
        factor_scales = [
            (tensor_scales[0], tensor_scales[1] if len(tensor_scales) > 1 else jnp.ones(()))
            for tensor_scales in scale_lists
        ]
        return state, FactoredValues(
            factor_scales=factor_scales, unfactored=unfactored, factor_sums=self._sums(state, weights)
        )

    def moments_by_tensor(self, state: jax.Array) -> list[tuple[jax.Array, ...]]:
        """Returns the row and column moments of each tensor, broadcastable to it; below rank 2 the moment itself."""
        factors_by_tensor: list[list[jax.Array]] = [[] for _ in self._shapes]
        for segment in self._segments:
            factors_by_tensor[segment.tensor].append(self._segment_values(state, segment))
        return [tuple(factors) for factors in factors_by_tensor]

    def _segment_values(self, rows: jax.Array, segment: _Segment) -> jax.Array:
        return rows[:, segment.start : segment.start + segment.size].reshape(rows.shape[0], *segment.shape)

    def _scales(self, state: jax.Array) -> jax.Array:
        """Returns float32[num_decays, size]: rsqrt(row / mean row) and rsqrt(column); rsqrt of unfactored moments."""
        divisors = []
        offsets = np.zeros(self._size, np.float32)
        for segment in self._segments:
            shape = (state.shape[0], *segment.shape)
            divisor = jnp.ones(())
            if segment.mean_axis < 0:
                offsets[segment.start : segment.start + segment.size] = 1e-9
            elif segment.row_and_column_use[0]:
                axes = factored_axes(self._shapes[segment.tensor])
                assert axes is not None
                divisor = self._segment_values(state, segment).mean(axis=axes[1] + 1, keepdims=True) + 1e-9
            divisors.append(jnp.broadcast_to(divisor, shape).reshape(state.shape[0], -1))
        ratio = state / jnp.concatenate(divisors, axis=1) + offsets
        return jax.lax.rsqrt(jnp.maximum(ratio, 1e-9))

    def _sums(self, state: jax.Array, weights: jax.Array) -> list[list[jax.Array]]:
        num_decays, width = state.shape[0], weights.shape[-1]
        split_weights = weights.reshape(*weights.shape[:-2], 2, 2, num_decays, width)  # (plain, rsqrt), (row, column)
        segment_uses = jnp.asarray([segment.row_and_column_use for segment in self._segments])
        if split_weights.ndim == 4:
            segment_weights = jnp.einsum("pucw,su->swpc", split_weights, segment_uses)
        else:
            tensors = np.asarray([segment.tensor for segment in self._segments])
            segment_weights = jnp.einsum("spucw,su->swpc", split_weights[tensors], segment_uses)
        segment_weights = segment_weights.reshape(len(segment_uses), width, 2 * num_decays)
        channels = jnp.concatenate([state, jax.lax.rsqrt(state + 1e-8)])  # [2 num_decays, size]
        squares = channels * channels
        means = jnp.stack([squares[:, s.start : s.start + s.size].mean(axis=1) for s in self._segments])
        scaled_weights = segment_weights * jax.lax.rsqrt(_NORM_EPSILON + means)[:, None]
        if len(self._segments) == 1:
            # The factor is as long as the tensor, so XLA fuses the sums into the loop over it.
            rows = [
                self._segment_values(channels[channel][None], self._segments[0]) for channel in range(2 * num_decays)
            ]
            return [
                [
                    row * scaled_weights[0, :, channel].reshape(-1, *[1] * (row.ndim - 1))
                    for channel, row in enumerate(rows)
                ]
            ]
        # One matrix product with the weights of all segments, then cut. XLA would fuse sums into the loop over the
        # tensor and recompute them for each element; a product is computed once.
        product = scaled_weights.reshape(-1, 2 * num_decays) @ channels
        sums_by_tensor: list[list[jax.Array]] = [[] for _ in self._shapes]
        for index, segment in enumerate(self._segments):
            sums_by_tensor[segment.tensor].append(
                self._segment_values(product[index * width : (index + 1) * width], segment)
            )
        return sums_by_tensor


class TensorValues(NamedTuple):
    """Values of one tensor in a step, in the layout of the features.

    Attributes:
      grad, param: The gradient and the tensor.
      momenta, second_moments: Momenta and second moments after the gradient, each with a leading axis over decays.
      factor_scales, unfactored, factor_sums: Entries of the tensor in `FactoredValues`.
    """

    grad: jax.Array
    param: jax.Array
    momenta: jax.Array
    second_moments: jax.Array
    factor_scales: tuple[jax.Array, jax.Array]
    unfactored: jax.Array | None
    factor_sums: list[jax.Array]


@dataclass(frozen=True, slots=True)
class Accumulators:
    """Momenta, second moments and factored second moments of all tensors.

    Attributes:
      momentum_decays, rms_decays, factored_decays: Decays of the momenta, the second moments and the factored second
        moments, float32[num_decays] each.
      layout: Function that returns a tensor in the layout of the features.
    """

    momentum_decays: jax.Array
    rms_decays: jax.Array
    factored_decays: jax.Array
    layout: Callable[[jax.Array], jax.Array] = feature_layout

    def init(self, params: PyTree) -> OptimizerState:
        """Returns zero accumulators."""
        shapes = [feature_layout(leaf).shape for leaf in jax.tree.leaves(params)]
        return {
            "momentum": [jnp.zeros((len(self.momentum_decays), *shape)) for shape in shapes],
            "rms": [jnp.zeros((len(self.rms_decays), *shape)) for shape in shapes],
            "factored": FactoredMoments(shapes).init(len(self.factored_decays)),
        }

    def update(
        self,
        state: OptimizerState,
        grads: Sequence[jax.Array],
        params: PyTree,
        weights: jax.Array,
        step: Callable[[int, TensorValues], jax.Array],
    ) -> tuple[PyTree, OptimizerState]:
        """Returns the updates, a tree like params, and the accumulators after the gradients.

        Args:
          state: Accumulators before the gradients; further entries are ignored.
          grads: Gradients by tensor, in the layout of the features.
          params: Parameters.
          weights: Weights of the network for the factored moments; see `FactoredMoments.update`.
          step: Function of (index of the tensor, its values) that returns its update, in the layout of the features.
        """
        moments = FactoredMoments([grad.shape for grad in grads])
        factored_state, factored = moments.update(state["factored"], grads, self.factored_decays, weights)
        leaves, structure = jax.tree.flatten(params)
        updates, momenta, squares = [], [], []
        for index, (grad, leaf) in enumerate(zip(grads, leaves, strict=True)):
            param = self.layout(leaf)
            momentum = moving_averages(state["momentum"][index], grad, self.momentum_decays)
            rms = moving_averages(state["rms"][index], grad * grad, self.rms_decays)
            factored_values = factored.factor_scales[index], factored.unfactored[index], factored.factor_sums[index]
            updates.append(
                from_feature_layout(
                    step(index, TensorValues(grad, param, momentum, rms, *factored_values)), jnp.shape(leaf)
                )
            )
            momenta.append(momentum)
            squares.append(rms)
        return jax.tree.unflatten(structure, updates), {"momentum": momenta, "rms": squares, "factored": factored_state}
