"""What a training writes down as it goes: evaluations, the log of its batches, and means of batches in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.case import Case
from lobench.inner.block import Carry
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Task

__all__ = ["Recorder", "eval_steps", "named_values"]

Values = Mapping[str, jax.Array]  # float32[(num_lanes)] by name


def eval_steps(num_inner_steps: int, eval_every: int) -> list[int]:
    """Returns 0, every `eval_every`, and the last step always."""
    return sorted({*range(0, num_inner_steps + 1, eval_every), num_inner_steps})


def named_values(task: Task, loss: jax.Array, aux: Any) -> dict[str, Any]:
    """Returns the loss, what the task says beside it, and the normalized loss of a task that normalizes."""
    named = {"loss": loss, **aux}
    if type(task).normalizer is not Task.normalizer:
        named["normalized_loss"] = task.normalizer(loss)
    return named


class Recorder:
    """Writes into a block's carry what steps and evaluations give; a seed that diverged has NaN from there on.

    With `Case.eval_batches = 0` there are no evaluations. Where one would be, `train/NAME` is the mean of the training
    batches' NAME over the last `eval_every` steps (all of them, where the training is shorter). At step 0 it is NAME of
    the first batch, before the first update. A training of 10 steps with `eval_every = 4` has `train/loss` at 0, 4, 8
    and 10: the loss of batch 0, and the means of the batches 0-3, 4-7 and 6-9.

    Attributes:
      eval_steps: Inner steps at which the metrics are written.
      log_steps: Inner steps whose batches are logged.
      keeps_batches: Whether anything beside the loss is wanted of a training batch.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._window = 0 if case.eval_batches else min(case.eval_every, case.num_inner_steps)
        self.eval_steps = eval_steps(case.num_inner_steps, case.eval_every)
        self.log_steps = list(range(0, case.num_inner_steps, case.log_every)) if case.log_every else []
        self.keeps_batches = bool(case.log_every or self._window)

    # What follows is traced.

    def empty(self, lanes: tuple[int, ...], of_batch: Callable[[], PyTree], of_evaluation: Callable[[], PyTree]) -> Any:
        """Returns the fields of a carry that this class fills.

        Args:
          lanes: Shape of a value: one a lane.
          of_batch, of_evaluation: What a training batch and an evaluation give; called for the names, where needed.
        """
        batch = jax.eval_shape(of_batch) if self.keeps_batches else {"loss": None}
        names = [f"train/{name}" for name in batch] if self._window else list(jax.eval_shape(of_evaluation))

        def rows(names: Any, count: int) -> dict[str, jax.Array]:
            return {name: jnp.zeros((count, *lanes), jnp.float32) for name in names}

        return {
            "metrics": rows(names, len(self.eval_steps)),
            "log": rows(batch, len(self.log_steps) + 1),
            "window": rows(batch, self._window) if self._window else {},
        }

    def evaluated(self, carry: Carry, evaluate: Callable[[], Values]) -> Carry:
        """Writes the metrics of the carry's step; `evaluate` is not called where nothing is evaluated."""
        if self._window:
            return self._averaged(carry)
        values = evaluate()
        diverged = (carry.diverged_at < 0) & ~jnp.isfinite(values["train/loss"])
        diverged_at = jnp.where(diverged, carry.step, carry.diverged_at)
        metrics = {
            name: _put(carry.metrics[name], carry.num_evals, jnp.where(diverged_at >= 0, jnp.nan, value))
            for name, value in values.items()
        }
        return carry._replace(diverged_at=diverged_at, metrics=metrics, num_evals=carry.num_evals + 1)

    def _averaged(self, carry: Carry) -> Carry:
        metrics = {}
        for name, window in carry.window.items():
            rows = _put(carry.metrics[f"train/{name}"], carry.num_evals, window.mean(axis=0))
            # The first batch is known once it has run: its row is written beside the next one, from the window's start.
            first = jnp.where(carry.num_evals == 1, window[0], rows[0])
            metrics[f"train/{name}"] = _put(rows, 0, first)
        return carry._replace(metrics=metrics, num_evals=carry.num_evals + 1)

    def stepped(self, carry: Carry, index: jax.Array, values: Values) -> Carry:
        """Writes what the training batch of a step gave, before its update; its loss says whether a lane diverged."""
        newly = (carry.diverged_at < 0) & ~jnp.isfinite(values["loss"])
        diverged_at = jnp.where(newly, index, carry.diverged_at)
        log, window = carry.log, carry.window
        if self.keeps_batches:
            shown = {name: jnp.where(diverged_at >= 0, jnp.nan, value) for name, value in values.items()}
        if self.log_steps:
            # Steps that are not logged go to a last row, which nobody reads.
            every = self._case.log_every
            row = jnp.where(index % every == 0, index // every, len(self.log_steps))
            log = {name: _put(log[name], row, value) for name, value in shown.items()}
        if self._window:
            window = {name: _put(window[name], index % self._window, value) for name, value in shown.items()}
        return carry._replace(diverged_at=diverged_at, log=log, window=window)


def _put(rows: jax.Array, index: jax.Array | int, row: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(rows, row, index, 0)
