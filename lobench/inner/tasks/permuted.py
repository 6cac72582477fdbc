"""Families of tasks that permute the inputs and labels of one classifier."""

from __future__ import annotations

import jax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Task, TaskFamily
from lobench.inner.tasks.labelled import Labelled
from lobench.inner.tasks.measured import Aux, LossStateAux
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.tasks.networks import Params
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper

__all__ = ["Permuted"]


@configurable
class Permuted(TaskFamily):
    """Family of classifiers with permuted inputs and labels, for meta-training.

    Args:
      task: Any classifier, also a wrapped one (`Permuted.task = @ConvClassifier()`). None: an MLP 64-16-10 on MNIST at
        8x8.
    """

    def __init__(self, *, task: Task | None = None) -> None:
        self._task = MLPClassifier(hidden_sizes=(16,)) if task is None else task
        data = getattr(self._task, "data", None)
        if not isinstance(data, Labelled):
            expected = "a classifier, such as @MLPClassifier()"
            raise ConfigError(f"{type(self).__name__}.task", got=repr(task), expected=expected)
        self._data, self.datasets = data, self._task.datasets
        self.metric_directions = self._task.metric_directions

    def sample(self, key: jax.Array) -> Params:
        """Returns `pixel_perm` int32[num_inputs] and `label_perm` int32[num_classes]."""
        pixel_key, label_key = jax.random.split(key)
        return {
            "pixel_perm": jax.random.permutation(pixel_key, self._data.num_inputs),
            "label_perm": jax.random.permutation(label_key, self._data.num_classes),
        }

    def task_fn(self, cfg: PyTree) -> Task:
        return _PermutedTask(self._task, self._data, cfg)


class _PermutedTask(TaskWrapper):
    """A permuted task: its input i is input `pixel_perm[i]` of the data, and label l becomes `label_perm[l]`."""

    def __init__(self, task: Task, data: Labelled, cfg: PyTree) -> None:
        super().__init__(task)
        self._data, self._cfg = data, cfg

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        return super().loss_with_state_and_aux(params, state, key, self._permute(data))

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        return super().eval_loss_with_aux(params, state, key, self._permute(data))

    def _permute(self, data: Batch) -> Batch:
        kind = self._data.kind
        return {kind: data[kind][:, self._cfg["pixel_perm"]], "label": self._cfg["label_perm"][data["label"]]}
