"""Streams of tasks that rotate the inputs of one data set by different angles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.task import Batch, Index
from lobench.inner.tasks.continual.stream import Stream

__all__ = ["RotatedDigits", "RotatedStream"]


@configurable
@dataclass(kw_only=True, eq=False, repr=False)
class RotatedStream(Stream):
    """Stream of tasks with rotated inputs; task i is rotated by `angles[i]`.

    An image is rotated around its centre, counter-clockwise, and filled with 0. A signal is shifted along a ring: 36
    degrees shift a signal of forty points by four.

    Args:
      task, protocol, groups, memory_size, replay, interleaved: As in `Stream`.
      angles: Angles in degrees, one per task.
    Source: Lopez-Paz and Ranzato 2017 (rotated MNIST).
    """

    num_tasks: int = field(init=False)
    angles: Sequence[float] = (0.0, 36.0, 72.0, 108.0, 144.0)

    def __post_init__(self) -> None:
        name = type(self).__name__
        angles = self.angles
        if not isinstance(angles, list | tuple) or not angles or not all(isinstance(angle, Real) for angle in angles):
            raise ConfigError(f"{name}.angles", got=repr(angles), expected="degrees, one a task: (0.0, 36.0)")
        self.num_tasks = len(angles)
        super().__post_init__()
        kind, shape = self.labelled_data.kind, self.labelled_data.shape
        if kind == "features":
            raise ConfigError(f"{name}.task", got="data of features", expected="images or signals, which can be turned")
        task_maps = [
            _rotation(shape[0], angle) if kind == "image" else _ring_shift(shape[0], angle) for angle in angles
        ]
        self._maps = np.stack(task_maps).astype(np.float32)  # [num_tasks, num_inputs, num_inputs]

    def examples(self, data: Batch, task: Index) -> tuple[jax.Array, jax.Array]:
        return data[self.labelled_data.kind] @ jnp.asarray(self._maps)[task], data["label"]

    def training_inputs(self) -> tuple[jax.Array, np.ndarray]:
        inputs = jnp.asarray(self.labelled_data.splits().train[self.labelled_data.kind])
        rotated_inputs = jnp.concatenate([inputs @ task_map for task_map in self._maps])
        return rotated_inputs, np.repeat(np.arange(self.num_tasks), len(inputs))


@configurable
class RotatedDigits(RotatedStream):
    """`RotatedStream` of the digits, with five angles from 0 to 144 degrees."""


def _rotation(side: int, angle: float) -> np.ndarray:
    """Returns the linear map that rotates images, float64[side * side, side * side], from source to target pixels."""
    centre = (side - 1) / 2
    radians = np.deg2rad(angle)
    rows, columns = np.mgrid[:side, :side] - centre
    # Source position of each pixel; rows count downwards.
    from_row = np.cos(radians) * rows + np.sin(radians) * columns + centre
    from_column = np.cos(radians) * columns - np.sin(radians) * rows + centre
    coordinates = np.arange(side)
    row_weights = np.maximum(1 - np.abs(from_row.reshape(-1, 1) - coordinates), 0)
    column_weights = np.maximum(1 - np.abs(from_column.reshape(-1, 1) - coordinates), 0)
    return (row_weights[:, :, None] * column_weights[:, None, :]).reshape(side * side, -1).T


def _ring_shift(length: int, angle: float) -> np.ndarray:
    """Returns the linear map that shifts signals along a ring, float64[length, length], from source to target."""
    source = np.arange(length)[:, None] - length * angle / 360
    distances = np.abs((source - np.arange(length) + length / 2) % length - length / 2)
    return np.maximum(1 - distances, 0).T
