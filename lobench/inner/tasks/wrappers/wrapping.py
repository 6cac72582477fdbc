"""Base of wrappers: tasks and families that call another task or family with changed batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lobench.core.case import Case
from lobench.core.errors import ConfigError
from lobench.inner.adapters import as_task
from lobench.inner.optimizer import PyTree
from lobench.inner.task import (
    OPTIONAL,
    SPLITS,
    Batch,
    Dataset,
    Datasets,
    Index,
    IteratorDataset,
    SampledDataset,
    Task,
    TaskFamily,
)
from lobench.inner.tasks.measured import Aux, LossStateAux, MeasuredTask

__all__ = ["TaskWrapper", "batch_field", "map_batches", "map_splits", "wrap_task_or_family"]


class TaskWrapper(MeasuredTask):
    """Base of wrappers.

    A wrapper has all attributes and methods of the wrapped task, except those that its class overrides.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.datasets = task.datasets
        self.metric_directions = task.metric_directions
        self.num_phases = task.num_phases
        self.gives_if = task.gives_if

    def __getattr__(self, name: str) -> Any:
        if name == "task":  # not set yet, for example during a copy
            raise AttributeError(name)
        if name in OPTIONAL and type(self).loss_with_state_and_aux is not TaskWrapper.loss_with_state_and_aux:
            raise AttributeError(name)  # the wrapped task's attribute belongs to another loss
        attribute = getattr(self.task, name)
        if name in ("memory_loss", "losses"):
            return lambda params, *arguments: attribute(self.wrapped_params(params), *arguments)
        return attribute

    def wrapped_params(self, params: PyTree) -> PyTree:
        """Returns the parameters of the wrapped task when the optimizer has `params`."""
        return params

    def init(self, key: jax.Array) -> PyTree:
        return self.init_with_state(key)[0]

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        return self.task.init_with_state(key)

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        return self.loss_with_state_and_aux(params, None, key, data)[0]

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        loss, state, aux = self.task.loss_with_state_and_aux(self.wrapped_params(params), state, key, data)
        return loss, state, dict(aux)

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        loss, aux = self.task.eval_loss_with_aux(self.wrapped_params(params), state, key, data)
        return loss, dict(aux)

    def normalizer(self, loss: jax.Array) -> jax.Array:
        return self.task.normalizer(loss)

    def enter_phase(self, params: PyTree, state: PyTree, index: Index) -> tuple[PyTree, PyTree]:
        return self.task.enter_phase(params, state, index)

    def metrics_over_phases(
        self, metrics: Mapping[str, np.ndarray], steps: Sequence[int], ends: Sequence[int]
    ) -> Mapping[str, np.ndarray]:
        return self.task.metrics_over_phases(metrics, steps, ends)

    def check_case(self, case: Case) -> None:
        self.task.check_case(case)

    def scale_invariant(self, params: PyTree) -> PyTree:
        return self.task.scale_invariant(params)


class _WrappedFamily(TaskFamily):
    """Family whose tasks are wrapped tasks of another family."""

    def __init__(self, family: TaskFamily, wrap: Callable[[Task], Task]) -> None:
        self._family = family
        self._wrap = wrap
        self.metric_directions = family.metric_directions
        self.datasets = wrap(_DatasetsOnly(family.datasets)).datasets

    def __getattr__(self, name: str) -> Any:
        if name == "_family":
            raise AttributeError(name)
        return getattr(self._family, name)

    def sample(self, key: jax.Array) -> PyTree:
        return self._family.sample(key)

    def task_fn(self, cfg: PyTree) -> Task:
        task = self._family.task_fn(cfg)
        if task.datasets is None:
            task.datasets = self._family.datasets
        return self._wrap(task)


class _DatasetsOnly(Task):
    def __init__(self, datasets: Datasets | None) -> None:
        self.datasets = datasets


def wrap_task_or_family(name: str, task: Any, wrap: Callable[[Task], Task]) -> Task | TaskFamily:
    """Returns a wrapped task, or a family of wrapped tasks.

    Args:
      name: Name of the wrapper, for error messages.
      task: Task or family, of lobench or adaptable to it.
      wrap: Function that wraps a task.
    Raises:
      ConfigError: `task` is neither a task nor a family.
    """
    try:
        inner = as_task(task)
    except ConfigError as error:
        expected = "a task or a family"
        advice = f"bind `{name}.task = @DigitsMLP()`, say"
        raise ConfigError(
            f"{name}.task is not a task", got=type(task).__name__, expected=expected, next_step=advice
        ) from error
    return _WrappedFamily(inner, wrap) if isinstance(inner, TaskFamily) else wrap(inner)


def map_splits(name: str, datasets: Datasets | None, change_dataset: Callable[[str, Dataset], Dataset]) -> Datasets:
    """Returns datasets with `change_dataset` applied to each split.

    Raises:
      ConfigError: The task has no data.
    """
    if datasets is None:
        raise ConfigError(f"{name}: the wrapped task has no data", next_step="wrap a task that has datasets")
    splits = {split: getattr(datasets, split) for split in SPLITS}
    return Datasets(
        **{split: change_dataset(split, dataset) for split, dataset in splits.items() if dataset is not None}
    )


def map_batches(dataset: Dataset, change_batch: Callable[[Any, Batch], Batch]) -> Dataset:
    """Returns a dataset that applies `change_batch(key, batch)`, pure and traced, to each batch when it is drawn.

    The arrays of an `ArrayDataset` are drawn as before. For an iterator, the key depends on the number of the batch.
    """
    if isinstance(dataset, IteratorDataset):
        return IteratorDataset(lambda seed: _changed_batches(dataset.batches(seed), seed, change_batch))
    sample = dataset.sample

    def draw(key: jax.Array) -> Batch:
        data_key, change_key = jax.random.split(key)
        return change_batch(change_key, sample(data_key))

    return SampledDataset(draw)


def _changed_batches(
    batches: Iterator[Batch], seed: int, change_batch: Callable[[Any, Batch], Batch]
) -> Iterator[Batch]:
    compiled_change_batch = jax.jit(change_batch)
    key = jax.random.key(seed, impl="threefry2x32")
    for index, batch in enumerate(batches):
        yield jax.tree.map(np.asarray, compiled_change_batch(jax.random.fold_in(key, index), batch))


def batch_field(name: str, batch: Batch, field: str) -> Any:
    """Returns a field of a batch, or of the arrays of a dataset.

    Raises:
      ConfigError: The batch lacks the field.
    """
    if not isinstance(batch, dict) or field not in batch:
        fields_text = ", ".join(map(repr, batch)) if isinstance(batch, dict) else type(batch).__name__
        raise ConfigError(
            f"{name}.field", got=repr(field), expected=f"a part of the wrapped task's batches: {fields_text}"
        )
    return batch[field]
