"""Wrapper that changes the batch size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.task import ArrayDataset, Batch, Dataset, IteratorDataset, SampledDataset, Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper, map_splits, wrap_task_or_family

__all__ = ["BatchSize"]

_NAME = "BatchSize"


@configurable
def BatchSize(*, task: Any, batch_size: int = 1) -> Task | TaskFamily:
    """Wrapper that sets the batch size of a task, from 1 to thousands of examples.

    An evaluation averages `Case.eval_batches` batches of this size, so increase it for small batches. Batches of a
    generator are concatenated or cut; those of an iterator are regrouped in order.

    Args:
      task: Task or family. Each leaf of its batches has the examples as the leading axis.
      batch_size: Examples per batch, in all splits.
    """
    size = arguments.integer(_NAME, "batch_size", batch_size)
    return wrap_task_or_family(_NAME, task, lambda inner: _ResizedTask(inner, size))


class _ResizedTask(TaskWrapper):
    def __init__(self, task: Task, batch_size: int) -> None:
        super().__init__(task)
        self.datasets = map_splits(_NAME, task.datasets, lambda split, dataset: _resize(dataset, batch_size))


def _resize(dataset: Dataset, batch_size: int) -> Dataset:
    if isinstance(dataset, ArrayDataset):
        return dataclasses.replace(dataset, batch_size=batch_size)
    if isinstance(dataset, IteratorDataset):
        return IteratorDataset(lambda seed: _regroup(dataset.batches(seed), batch_size))
    sample = dataset.sample

    def draw(key: jax.Array) -> Batch:
        size = jax.tree.leaves(jax.eval_shape(sample, key))[0].shape[0]
        num_draws = -(-batch_size // size)
        batches = jax.vmap(sample)(jax.random.split(key, num_draws))
        return jax.tree.map(lambda leaf: leaf.reshape(num_draws * size, *leaf.shape[2:])[:batch_size], batches)

    return SampledDataset(draw)


def _regroup(batches: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    """Yields all examples in order, in batches of another size."""
    unused_examples: Batch = None
    for batch in batches:
        unused_examples = (
            batch
            if unused_examples is None
            else jax.tree.map(lambda *leaves: np.concatenate(leaves), unused_examples, batch)
        )
        while jax.tree.leaves(unused_examples)[0].shape[0] >= batch_size:
            yield jax.tree.map(lambda leaf: np.asarray(leaf[:batch_size]), unused_examples)
            unused_examples = jax.tree.map(lambda leaf: leaf[batch_size:], unused_examples)
