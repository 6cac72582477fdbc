"""Extra inputs for optimizer tests: losses that are linear in the parameters, outside a training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lobench.inner.adapters import Stepper
from lobench.inner.extra_inputs.task_side import BatchLosses, ExtraValues, Facts, extra_values_at, facts_of
from lobench.inner.task import Task

__all__ = ["extra_values_for", "facts_for"]


class _Giving(Task):
    """Task that provides every extra input. Neurons are along the last axis of leaves with two or more axes."""

    num_losses = 2

    def __init__(self, grads: Any) -> None:
        self.grads = grads

    def losses(self, params: Any, state: Any, key: Any, data: Any) -> jax.Array:
        total = self.memory_loss(params, state, key)
        return jnp.stack([total, 2 * total])

    def memory_loss(self, params: Any, state: Any, key: Any) -> jax.Array:
        leaves = zip(jax.tree.leaves(params), jax.tree.leaves(self.grads), strict=True)
        total: jax.Array = sum((jnp.sum(leaf * grad, dtype=jnp.float32) for leaf, grad in leaves), jnp.float32(0))
        return total

    def scale_invariant(self, params: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim - 1 if leaf.ndim > 1 else None, params)


def facts_for(stepper: Stepper, params: Any) -> Facts:
    """Returns the facts that a task with every extra input passes once to the optimizer."""
    return facts_of(stepper.extra_inputs(params), lambda: _Giving(params), params)


def extra_values_for(stepper: Stepper, params: Any, grads: Any) -> ExtraValues:
    """Returns the extra inputs of a step with given gradients: memories and losses consistent with them."""
    task = _Giving(grads)
    batch = BatchLosses(
        loss=lambda at: (task.memory_loss(at, None, None), (None, {})),
        task=lambda: task,
        memory=lambda at: task.memory_loss(at, None, None),
        each=lambda at: task.losses(at, None, None, None),
    )
    return extra_values_at(stepper.extra_inputs(params), batch, params)
