"""Base of tasks with metrics besides the loss."""

from __future__ import annotations

import jax

from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Task

__all__ = ["Aux", "MeasuredTask"]

Aux = dict[str, jax.Array]  # metrics by name, float32[]


class MeasuredTask(Task):
    """Base of tasks with metrics: defines `loss_with_state` through `loss_with_state_and_aux`."""

    def loss_with_state(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, PyTree]:
        loss, state, _ = self.loss_with_state_and_aux(params, state, key, data)
        return loss, state
