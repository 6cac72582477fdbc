"""Families of one classifier whose inputs and labels each task permutes."""

from __future__ import annotations

import jax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets, Task, TaskFamily
from lobench.inner.tasks.classifier import Classifier
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.tasks.networks import Params

__all__ = ["Permuted"]


@configurable
class Permuted(TaskFamily):
    """A classifier with the inputs and the labels of each task permuted: a family to meta-train on.

    Args:
      task: Any classifier (`Permuted.task = @ConvClassifier()`); None: an MLP 64-16-10 on MNIST at 8x8.
    """

    datasets: Datasets

    def __init__(self, *, task: Classifier | None = None) -> None:
        task = MLPClassifier(hidden_sizes=(16,)) if task is None else task
        if not isinstance(task, Classifier):
            raise ConfigError(
                f"{type(self).__name__}.task", got=repr(task), expected="a classifier, such as @MLPClassifier()"
            )
        self._task = task
        self.datasets = task.datasets

    def sample(self, key: jax.Array) -> Params:
        """Returns `pixel_perm` int32[num_inputs] and `label_perm` int32[num_classes]."""
        pixel_key, label_key = jax.random.split(key)
        return {
            "pixel_perm": jax.random.permutation(pixel_key, self._task.data.num_inputs),
            "label_perm": jax.random.permutation(label_key, self._task.data.num_classes),
        }

    def task_fn(self, cfg: PyTree) -> Task:
        return _PermutedTask(self._task, cfg)


class _PermutedTask(Task):
    """Input i of a task is input `pixel_perm[i]` of the data; label l becomes `label_perm[l]`."""

    def __init__(self, task: Classifier, cfg: PyTree) -> None:
        self._task, self._cfg = task, cfg
        self.datasets = task.datasets

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        return self._task.init_with_state(key)

    def loss_with_state(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, PyTree]:
        return self._task.loss_with_state(params, state, key, self._permuted(data))

    def loss_with_state_and_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, PyTree, Params]:
        return self._task.loss_with_state_and_aux(params, state, key, self._permuted(data))

    def eval_loss_with_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, Params]:
        return self._task.eval_loss_with_aux(params, state, key, self._permuted(data))

    def normalizer(self, loss: jax.Array) -> jax.Array:
        return self._task.normalizer(loss)

    def _permuted(self, data: Batch) -> Batch:
        kind = self._task.data.kind
        return {
            kind: data[kind][:, self._cfg["pixel_perm"]],
            "label": self._cfg["label_perm"][data["label"]],
        }
