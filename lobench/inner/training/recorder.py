"""Training recorder: evaluations, batch logs, and means of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.case import Case
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Task
from lobench.inner.training.seed_block import Carry

__all__ = ["MOST_STEPS", "Recorder", "eval_steps", "named_values"]

MOST_STEPS = 64  # largest number of steps whose values are collected before they are written

Values = Mapping[str, jax.Array]  # float32[(num_replicas)] by name


def eval_steps(num_inner_steps: int, eval_every: int, ends: Sequence[int] = ()) -> list[int]:
    """Returns the steps of evaluations: 0, every `eval_every`, the last step, and the ends of a stream's phases."""
    return sorted({*range(0, num_inner_steps + 1, eval_every), *ends, num_inner_steps})


def named_values(task: Task, loss: jax.Array, aux: Any) -> dict[str, Any]:
    """Returns the loss, the task's further metrics, and the normalized loss if the task defines `normalizer`."""
    values = {"loss": loss, **aux}
    if type(task).normalizer is not Task.normalizer:
        values["normalized_loss"] = task.normalizer(loss)
    return values


class Recorder:
    """Writes the values of steps and evaluations into a block's carry. After a seed has diverged, its values are NaN.

    With `Case.eval_batches = 0` nothing is evaluated. Instead, `train/NAME` is the mean of the training
    batches' NAME over the last `eval_every` steps (over all steps of a shorter training). At step 0 it is NAME of
    the first batch, before the first update. A training of 10 steps with `eval_every = 4` has `train/loss` at 0, 4, 8
    and 10: the loss of batch 0, and the means of the batches 0-3, 4-7 and 6-9.

    Args:
      case: Case of the training.
      ends: Steps at which phases end. If given, there is an evaluation at each of them, in addition to `eval_every`.
    Attributes:
      case: Case of the training.
      eval_steps: Inner steps at which the metrics are written.
      log_steps: Inner steps whose batches are logged.
      evaluates_ends: Whether the last step of each phase is one of `eval_steps`.
      keeps_batches: Whether metrics of training batches besides the loss are recorded.
    """

    def __init__(self, case: Case, ends: Sequence[int] = ()) -> None:
        self.case, self.evaluates_ends = case, bool(ends)
        self._window_size = 0 if case.eval_batches else min(case.eval_every, case.num_inner_steps)
        self.eval_steps = eval_steps(case.num_inner_steps, case.eval_every, ends)
        self.log_steps = list(range(0, case.num_inner_steps, case.log_every)) if case.log_every else []
        self.keeps_batches = bool(case.log_every or self._window_size)
        # Rows of a stretch's own log. If not all steps are logged, the last row receives the others.
        self._rows_of_log = MOST_STEPS if case.log_every == 1 else 1 + -(-MOST_STEPS // max(case.log_every, 1))
        self._rows_of_metrics = 0 if self._window_size else MOST_STEPS // case.eval_every + 2

    # Traced functions:

    def empty(
        self, replicas: tuple[int, ...], batch_values: Callable[[], PyTree], evaluation_values: Callable[[], PyTree]
    ) -> Any:
        """Returns the fields of a carry that this class fills.

        Args:
          replicas: Shape of a value, with one element per replica.
          batch_values, evaluation_values: Functions that return the values of a training batch and of an evaluation.
            They are only traced, to get the names.
        """
        batch_shapes = jax.eval_shape(batch_values) if self.keeps_batches else {"loss": None}
        names = (
            [f"train/{name}" for name in batch_shapes] if self._window_size else list(jax.eval_shape(evaluation_values))
        )

        def empty_rows(names: Any, count: int) -> dict[str, jax.Array]:
            return {name: jnp.zeros((count, *replicas), jnp.float32) for name in names}

        return {
            "metrics": empty_rows(names, len(self.eval_steps) + self._rows_of_metrics),
            "log": empty_rows(batch_shapes, len(self.log_steps) + self._rows_of_log) if self.log_steps else {},
            "window": empty_rows(batch_shapes, self._window_size) if self._window_size else {},
        }

    def evaluated(self, carry: Carry, evaluate: Callable[[], Values], begin: Carry) -> Carry:
        """Writes the metrics of the carry's step. `evaluate` is not called if the case has no evaluations.

        Args:
          carry: Carry at the step.
          evaluate: Function that returns the metrics.
          begin: Carry before the stretch.
        """
        if self._window_size:
            return self._write_averages(carry)
        values = evaluate()
        diverges_now = (carry.diverged_at < 0) & ~jnp.isfinite(values["train/loss"])
        diverged_at = jnp.where(diverges_now, carry.step, carry.diverged_at)
        metrics = {
            name: _with_row(
                carry.metrics[name], carry.num_evals - begin.num_evals, jnp.where(diverged_at >= 0, jnp.nan, value)
            )
            for name, value in values.items()
        }
        return carry._replace(diverged_at=diverged_at, metrics=metrics, num_evals=carry.num_evals + 1)

    def _write_averages(self, carry: Carry) -> Carry:
        metrics = {}
        for name, window in carry.window.items():
            rows = _with_row(carry.metrics[f"train/{name}"], carry.num_evals, window.mean(axis=0))
            # The value of the first batch is known after its step, so its row is written with the next one.
            first_value = jnp.where(carry.num_evals == 1, window[0], rows[0])
            metrics[f"train/{name}"] = _with_row(rows, 0, first_value)
        return carry._replace(metrics=metrics, num_evals=carry.num_evals + 1)

    def begun(self, carry: Carry) -> Carry:
        """Returns a carry whose rows hold the values of one stretch of steps only.

        Rows for the whole training would slow down each step.
        """
        log = {name: jnp.zeros_like(rows[: self._rows_of_log]) for name, rows in carry.log.items()}
        if self._window_size:
            return carry._replace(log=log)
        metrics = {name: jnp.zeros_like(rows[: self._rows_of_metrics]) for name, rows in carry.metrics.items()}
        return carry._replace(metrics=metrics, log=log)

    def ended(self, begin: Carry, carry: Carry) -> Carry:
        """Returns the carry after a stretch, with the rows of all stretches.

        There may be padding after the last row, which the next stretch overwrites.

        Args:
          begin: Carry before the stretch.
          carry: Carry of the stretch.
        """
        log = _put_rows(begin.log, carry.log, _rows_before(begin.step, self.case.log_every))
        if self._window_size:
            return carry._replace(log=log)
        return carry._replace(metrics=_put_rows(begin.metrics, carry.metrics, begin.num_evals), log=log)

    def stepped(self, carry: Carry, index: jax.Array, values: Values, begin: Carry) -> Carry:
        """Writes the values of a step's training batch, before its update.

        A replica has diverged if its loss is not finite.

        Args:
          carry: Carry of the stretch.
          index: int32[], index of the step.
          values: Values by name, one per replica.
          begin: Carry before the stretch.
        """
        diverges_now = (carry.diverged_at < 0) & ~jnp.isfinite(values["loss"])
        diverged_at = jnp.where(diverges_now, index, carry.diverged_at)
        log, window = carry.log, carry.window
        if self.keeps_batches:
            logged_values = {name: jnp.where(diverged_at >= 0, jnp.nan, value) for name, value in values.items()}
        if self.log_steps:
            log_every = self.case.log_every
            row = index // log_every - _rows_before(begin.step, log_every)
            if log_every > 1:
                row = jnp.where(index % log_every == 0, row, self._rows_of_log - 1)
            log = {name: _with_row(log[name], row, value) for name, value in logged_values.items()}
        if self._window_size:
            window = {
                name: _with_row(window[name], index % self._window_size, value) for name, value in logged_values.items()
            }
        return carry._replace(diverged_at=diverged_at, log=log, window=window)


def _rows_before(step: jax.Array, log_every: int) -> jax.Array:
    """Returns the number of log rows of the steps before `step`."""
    return (step + (log_every - 1)) // max(log_every, 1)


def _put_rows(
    rows: Mapping[str, jax.Array], new_rows: Mapping[str, jax.Array], first_row: jax.Array
) -> dict[str, jax.Array]:
    return {name: jax.lax.dynamic_update_slice_in_dim(rows[name], new_rows[name], first_row, 0) for name in rows}


def _with_row(rows: jax.Array, index: jax.Array | int, row: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(rows, row, index, 0)
