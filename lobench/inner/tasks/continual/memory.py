"""Episodic memory: a few examples of each task, stored during its first pass."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["Examples", "Memory"]


class Examples(NamedTuple):
    """Examples of several tasks; `tasks` is the index of the task of each example."""

    inputs: jax.Array  # float32[b, num_inputs]
    labels: jax.Array  # int32[b]
    tasks: jax.Array  # int32[b]


class Memory(NamedTuple):
    """A fixed number of slots per task, which are filled in order."""

    inputs: jax.Array  # float32[num_tasks, size, num_inputs]
    labels: jax.Array  # int32[num_tasks, size]
    filled: jax.Array  # int32[num_tasks]

    @classmethod
    def empty(cls, num_tasks: int, size: int, num_inputs: int) -> Memory:
        return cls(
            jnp.zeros((num_tasks, size, num_inputs), jnp.float32),
            jnp.zeros((num_tasks, size), jnp.int32),
            jnp.zeros(num_tasks, jnp.int32),
        )

    def after_step(self, batch: Examples, task: jax.Array, step: jax.Array, num_steps: int) -> Memory:
        """Returns the memory after a step on a task.

        Example: with 4 slots and a pass of 8 steps, slots are filled at steps 0, 2, 4 and 6, with the first, second,
        third and fourth example of the batch at that step.

        Args:
          batch: Batch of the task.
          task: int32[], index of the task.
          step: int32[], step of the training on the task, from 0.
          num_steps: Number of steps of the first pass over the task.
        """
        num_tasks, size = self.labels.shape
        slots = jnp.arange(size)
        fills_at = slots * num_steps // size
        is_due = (jnp.arange(num_tasks)[:, None] == task) & (
            fills_at == step
        )  # a mask, since a scatter is slow on a CPU
        examples = slots % batch.labels.shape[0]
        return Memory(
            jnp.where(is_due[:, :, None], batch.inputs[examples], self.inputs),
            jnp.where(is_due, batch.labels[examples], self.labels),
            jnp.where(jnp.arange(num_tasks) == task, jnp.sum(fills_at <= step), self.filled).astype(jnp.int32),
        )

    def draw(self, key: jax.Array, task: jax.Array, num_examples: int) -> tuple[Examples, jax.Array]:
        """Draws examples of the tasks before a given one, uniformly from all filled slots.

        Args:
          key: PRNG key.
          task: int32[], index of the given task.
          num_examples: Number of examples.
        Returns:
          The examples, and whether the memory has any, bool[]. The examples of an empty memory are unfilled slots.
        """
        num_filled = jnp.where(jnp.arange(len(self.filled)) < task, self.filled, 0)
        slot_ends = jnp.cumsum(num_filled)
        positions = jax.random.randint(key, (num_examples,), 0, jnp.maximum(slot_ends[-1], 1))
        tasks = jnp.minimum(jnp.searchsorted(slot_ends, positions, side="right"), len(self.filled) - 1).astype(
            jnp.int32
        )
        slots = positions - (slot_ends - num_filled)[tasks]
        return Examples(self.inputs[tasks, slots], self.labels[tasks, slots], tasks), slot_ends[-1] > 0
