"""Wrapper that computes in bfloat16."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.measured import Aux, LossStateAux
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper, wrap_task_or_family

__all__ = ["Bfloat16"]

_PARAM_TYPES = ("float32", "bfloat16")


@configurable
def Bfloat16(*, task: Any, params: str = "float32") -> Task | TaskFamily:
    """Wrapper that computes losses and gradients of a task in bfloat16. The loss is returned as float32.

    Parameters, model state and the floats of a batch are rounded before the loss, in training and evaluation.

    Args:
      task: Task or family.
      params: dtype of the optimizer's parameters. "float32": master weights, as in mixed-precision training.
        "bfloat16": small updates are lost, and optimizers that create their state like the parameters have it in
        bfloat16.
    """
    arguments.choice("Bfloat16", "params", params, _PARAM_TYPES)
    return wrap_task_or_family("Bfloat16", task, lambda inner: _Bfloat16Task(inner, params))


class _Bfloat16Task(TaskWrapper):
    def __init__(self, task: Task, dtype: str) -> None:
        super().__init__(task)
        self._param_type = jnp.dtype(dtype)

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        params, state = self.task.init_with_state(key)
        return _cast(params, self._param_type), state

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        loss, new_state, aux = self.task.loss_with_state_and_aux(
            _to_bfloat16(params), _to_bfloat16(state), key, _to_bfloat16(data)
        )
        return _to_float32(loss), _to_types_of(new_state, state), _to_float32(dict(aux))

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        loss, aux = self.task.eval_loss_with_aux(_to_bfloat16(params), _to_bfloat16(state), key, _to_bfloat16(data))
        return _to_float32(loss), _to_float32(dict(aux))


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    """Returns a tree with floats cast to another type; other leaves are unchanged."""

    def cast(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)


def _to_bfloat16(tree: PyTree) -> PyTree:
    return _cast(tree, jnp.bfloat16)


def _to_float32(tree: PyTree) -> PyTree:
    return _cast(tree, jnp.float32)


def _to_types_of(tree: PyTree, example: PyTree) -> PyTree:
    """Returns a state converted to the types of an earlier one."""
    return jax.tree.map(lambda leaf, earlier_leaf: leaf.astype(jnp.asarray(earlier_leaf).dtype), tree, example)
