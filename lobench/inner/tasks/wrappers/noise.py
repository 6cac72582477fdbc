"""Wrappers for wrong labels and for gradient noise."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import ArrayDataset, Batch, Dataset, Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.measured import LossStateAux
from lobench.inner.tasks.objectives import gradient_noise
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper, batch_field, map_batches, map_splits, wrap_task_or_family

__all__ = ["GradientNoise", "LabelNoise"]

_STREAM = 0x6E01  # folded into the key of a loss, so that the task's own draws do not change


@configurable
def LabelNoise(
    *, task: Any, rate: float = 0.2, field: str = "label", num_classes: int | None = None, problem_seed: int = 0
) -> Task | TaskFamily:
    """Wrapper that gives a fraction of the training examples wrong labels; other splits stay clean.

    A wrong label is drawn uniformly from the other classes. For arrays in memory, the same examples are wrong in all
    epochs and for all seeds, so that a network can memorize them. For generated batches, wrong labels are drawn for
    each batch.

    Args:
      task: Task or family with integer labels.
      rate: Fraction of wrong labels, 0 to 1.
      field: Name of the labels in a batch.
      num_classes: Number of classes. None: the largest label of the training arrays plus one.
      problem_seed: Seed of the wrong labels.
    Source: Zhang et al. 2017, "Understanding deep learning requires rethinking generalization".
    """
    rate = arguments.number("LabelNoise", "rate", rate)
    if rate > 1:
        raise ConfigError("LabelNoise.rate", got=repr(rate), expected="a share, 0 to 1")
    if num_classes is not None:
        arguments.integer("LabelNoise", "num_classes", num_classes, at_least=2)
    seed = arguments.integer("LabelNoise", "problem_seed", problem_seed, at_least=0)
    return wrap_task_or_family("LabelNoise", task, lambda inner: _WrongLabels(inner, rate, field, num_classes, seed))


class _WrongLabels(TaskWrapper):
    def __init__(self, task: Task, rate: float, field: str, num_classes: int | None, problem_seed: int) -> None:
        super().__init__(task)
        self._rate = rate
        self._field = field
        self._num_classes = num_classes
        self._problem_seed = problem_seed
        self.datasets = map_splits("LabelNoise", task.datasets, self._with_noise)

    def _with_noise(self, split: str, dataset: Dataset) -> Dataset:
        if split != "train":
            return dataset
        if not isinstance(dataset, ArrayDataset):
            if self._num_classes is None:
                raise ConfigError("LabelNoise.num_classes: the task's data are generated", expected="their number")
            return map_batches(dataset, self._corrupt_batch)
        labels = np.asarray(batch_field("LabelNoise", dataset.arrays, self._field))
        if not np.issubdtype(labels.dtype, np.integer):
            raise ConfigError("LabelNoise.field", got=f"{self._field!r} of {labels.dtype}", expected="integer labels")
        num_classes = self._num_classes or int(labels.max()) + 1
        rng = np.random.default_rng(self._problem_seed)
        is_wrong = rng.random(labels.shape) < self._rate
        wrong_labels = (labels + rng.integers(1, num_classes, labels.shape, labels.dtype)) % num_classes
        noisy_labels = np.where(is_wrong, wrong_labels, labels)
        return dataclasses.replace(dataset, arrays={**dataset.arrays, self._field: noisy_labels})

    def _corrupt_batch(self, key: jax.Array, batch: Batch) -> Batch:
        assert self._num_classes is not None
        labels = batch_field("LabelNoise", batch, self._field)
        wrong_key, shift_key = jax.random.split(key)
        is_wrong = jax.random.uniform(wrong_key, labels.shape) < self._rate
        shifts = jax.random.randint(shift_key, labels.shape, 1, self._num_classes, labels.dtype)
        return {**batch, self._field: jnp.where(is_wrong, (labels + shifts) % self._num_classes, labels)}


@configurable
def GradientNoise(*, task: Any, std: float = 0.01) -> Task | TaskFamily:
    """Wrapper that adds normal noise to each component of a task's training gradient; losses stay exact.

    Args:
      task: Task or family.
      std: Standard deviation of the noise.
    """
    std = arguments.number("GradientNoise", "std", std)
    return wrap_task_or_family("GradientNoise", task, lambda inner: _NoisyGradient(inner, std))


class _NoisyGradient(TaskWrapper):
    def __init__(self, task: Task, std: float) -> None:
        super().__init__(task)
        self._std = std

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        loss, state, aux = super().loss_with_state_and_aux(params, state, key, data)
        return loss + gradient_noise(params, jax.random.fold_in(key, _STREAM), self._std), state, aux
