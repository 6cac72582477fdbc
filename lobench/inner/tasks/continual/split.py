"""Streams of classification tasks, each with a few of the classes: first 0 and 1, then 2 and 3."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.task import SPLITS, ArrayDataset, Batch, Datasets, Index
from lobench.inner.tasks import arguments
from lobench.inner.tasks.continual.stream import Stream
from lobench.inner.tasks.labelled import Labelled

__all__ = ["SplitDigits", "SplitStream"]

_HEADS = ("masked", "partial", "single")
_IMPOSSIBLE = -1e9  # a logit whose exponential is 0


@configurable
@dataclass(kw_only=True, eq=False, repr=False)
class SplitStream(Stream):
    """Stream of tasks with different classes; task i has `classes_per_task` classes from `i * classes_per_task` on.

    Args:
      task, num_tasks, protocol, groups, memory_size, replay, interleaved: As in `Stream`.
      classes_per_task: Number of classes of the data per task.
      head: Logits that count. All tasks share one output layer. "masked": the classes of the task, in training and
        evaluation; "partial": the classes of the task in training, all in evaluation; "single": all classes.
    Source: Zenke et al. 2017 (split MNIST).
    """

    num_tasks: int = 5
    classes_per_task: int = 2
    head: str = "masked"

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments.choice(self.name, "head", self.head, _HEADS)
        num_classes = self.labelled_data.num_classes
        arguments.integer(self.name, "classes_per_task", self.classes_per_task, at_most=num_classes)
        arguments.integer(self.name, "num_tasks", self.num_tasks, at_most=num_classes // self.classes_per_task)
        train = self.classifier.datasets.train
        assert isinstance(train, ArrayDataset)
        self.datasets = _datasets_by_task(self.labelled_data, self.classes_per_task, train.batch_size)

    def examples(self, data: Batch, task: Index) -> tuple[jax.Array, jax.Array]:
        return data[self.labelled_data.kind][:, task], data["label"][:, task]

    def training_inputs(self) -> tuple[jax.Array, np.ndarray]:
        train = self.labelled_data.splits().train
        is_used = train["label"] < self.classes_per_task * self.num_tasks
        return jnp.asarray(train[self.labelled_data.kind][is_used]), train["label"][is_used] // self.classes_per_task

    def mask_logits(self, logits: jax.Array, tasks: jax.Array, *, training: bool) -> jax.Array:
        if self.head == "single" or (self.head == "partial" and not training):
            return logits
        task_of_class = jnp.arange(self.labelled_data.num_classes) // self.classes_per_task
        return jnp.where(task_of_class == tasks[:, None], logits, _IMPOSSIBLE)

    @property
    def num_candidate_classes(self) -> int:
        return self.classes_per_task if self.head == "masked" else self.labelled_data.num_classes


@configurable
class SplitDigits(SplitStream):
    """`SplitStream` of the digits, with five tasks of two classes."""


@functools.cache
def _datasets_by_task(data: Labelled, classes_per_task: int, batch_size: int) -> Datasets:
    """Returns rows with one example of each task, leaves [rows, num_tasks, ...].

    There are as many rows as the largest task has examples. The examples of smaller tasks are repeated from the first.
    """
    splits = data.splits()
    datasets = {}
    for split in SPLITS:
        arrays = getattr(splits, split)
        tasks = arrays["label"] // classes_per_task
        rows_of_tasks = [np.flatnonzero(tasks == task) for task in range(data.num_classes // classes_per_task)]
        rows = np.arange(max(map(len, rows_of_tasks)))
        chosen_rows = np.stack([task_rows[rows % len(task_rows)] for task_rows in rows_of_tasks], axis=1)
        datasets[split] = ArrayDataset({name: array[chosen_rows] for name, array in arrays.items()}, batch_size)
    return Datasets(**datasets)
