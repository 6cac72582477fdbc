"""Streams of tasks that permute the inputs of one data set."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.task import Batch, Index
from lobench.inner.tasks.continual.stream import Stream

__all__ = ["PermutedDigitsStream", "PermutedStream"]

_SEED = 0x9E37


@configurable
@dataclass(kw_only=True, eq=False, repr=False)
class PermutedStream(Stream):
    """Stream of tasks with permuted inputs; task 0 has them unpermuted. All seeds have the same permutations.

    Args:
      task, num_tasks, protocol, groups, memory_size, replay, interleaved: As in `Stream`.
    Source: Goodfellow et al. 2013 (permuted MNIST).
    """

    num_tasks: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.labelled_data.num_inputs
        permutations = [np.random.default_rng([_SEED, index]).permutation(size) for index in range(1, self.num_tasks)]
        self._orders = np.stack([np.arange(size), *permutations]).astype(np.int32)

    def examples(self, data: Batch, task: Index) -> tuple[jax.Array, jax.Array]:
        return data[self.labelled_data.kind][:, jnp.asarray(self._orders)[task]], data["label"]

    def training_inputs(self) -> tuple[jax.Array, np.ndarray]:
        inputs = jnp.asarray(self.labelled_data.splits().train[self.labelled_data.kind])
        permuted_inputs = jnp.concatenate([inputs[:, order] for order in self._orders])
        return permuted_inputs, np.repeat(np.arange(self.num_tasks), len(inputs))


@configurable
class PermutedDigitsStream(PermutedStream):
    """`PermutedStream` of the digits, with ten tasks."""
