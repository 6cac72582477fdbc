"""Bases of tasks: with metrics besides the loss, and with a reference for it."""

from __future__ import annotations

from typing import TypeAlias

import jax

from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Task
from lobench.inner.tasks.objectives import relative_loss

__all__ = ["Aux", "LossStateAux", "MeasuredTask", "ReferencedTask"]

Aux: TypeAlias = dict[str, jax.Array]  # metrics by name, float32[]
LossStateAux: TypeAlias = tuple[jax.Array, PyTree, Aux]  # loss, model state after it, metrics


class MeasuredTask(Task):
    """Base of tasks with metrics: defines `loss_with_state` through `loss_with_state_and_aux`."""

    def loss_with_state(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, PyTree]:
        loss, state, _ = self.loss_with_state_and_aux(params, state, key, data)
        return loss, state


class ReferencedTask(Task):
    """Base of tasks whose losses are compared with the loss of a guess.

    Attributes:
      reference_loss: Loss of a uniform guess, of an output of zeros, or of the mean. An untrained network has about
        this loss.
    """

    reference_loss: float

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss relative to `reference_loss`, at most 2; a non-finite loss counts as 2."""
        return relative_loss(loss, self.reference_loss)
