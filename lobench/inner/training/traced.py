"""Traced functions of a training: initial state, inner steps, evaluations."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.case import Case
from lobench.core.errors import ConfigError
from lobench.inner.adapters.stepper import Stepper
from lobench.inner.extra_inputs.task_side import BatchLosses, facts_of
from lobench.inner.optimizer import PyTree
from lobench.inner.task import ArrayDataset, Task, TaskFamily
from lobench.inner.training.constants import merged, split_constants, with_state
from lobench.inner.training.parallel_sessions import inner_step, members, num_replicas, with_copies
from lobench.inner.training.phase_transitions import Handover, PhasePlace, handed_over
from lobench.inner.training.program_arguments import Given
from lobench.inner.training.recorder import MOST_STEPS, Recorder, named_values
from lobench.inner.training.seed_block import Carry
from lobench.inner.training.streams import (
    INIT,
    LOSS,
    MEMORY,
    OPTIMIZER,
    Replica,
    draw_ahead,
    draw_evaluation,
    fits_ahead,
    per_replica,
    steps_ahead,
    stream,
    task_of,
    train_batch,
)

__all__ = ["Traced"]


class Traced:
    """One phase of a training, to be compiled by `Program`.

    Args:
      case: Case with its task (or family).
      task: `case.task` as a `Task` or `TaskFamily`.
      datasets: Data sets by split; only those that have been read.
      recorder: Recorder of the whole training.
      make_stepper: Function of (theta, *settings) that returns a `Stepper`. Theta and settings may be traced.
      place: Position of the phase.
      handover: State taken over from the previous phase; None for the first phase.
      is_any: Whether this program is shared by all phases, which differ only in positions passed as arguments.
    """

    def __init__(
        self,
        case: Case,
        task: Task | TaskFamily,
        datasets: Mapping[str, Any],
        recorder: Recorder,
        make_stepper: Callable[..., Stepper],
        place: PhasePlace,
        handover: Handover | None = None,
        *,
        is_any: bool = False,
    ) -> None:
        self._case, self._task, self._datasets, self._recorder = case, task, dict(datasets), recorder
        self._make_stepper = make_stepper
        self._phase_place = place
        self._handover = handover
        self._is_shared = is_any
        # Jitted functions are traced once: for their shapes and for the program, and, if they do not depend on the
        # optimizer, for all variants of the program that differ in which settings are arguments.
        self.initial = jax.jit(self._initial, inline=True)
        self._evaluation_batches = jax.jit(self._draw_evaluations, inline=True)
        self._task_metrics = jax.jit(self._metrics_of_task, inline=True)
        self._indices_ahead = jax.jit(self._draw_ahead, inline=True, static_argnums=2)

    def _task_of(self, replica: Replica) -> Task:
        return task_of(self._task, replica)

    def _stepper(self, theta_and_settings: Given) -> Stepper:
        theta, settings = theta_and_settings
        return with_copies(self._make_stepper(theta, *settings.values), self._case)

    def _initial(self, given: Given, replicas: Replica, arrays: PyTree, eval_batches: PyTree, chunk: PyTree) -> Carry:
        stepper = self._stepper(given)

        def init_replica(replica: Replica) -> tuple[PyTree, PyTree, PyTree]:
            task = self._task_of(replica)
            params, model_state = split_constants(*task.init_with_state(stream(replica, INIT)))
            facts = facts_of(stepper.extra_inputs(params), lambda: task, params)
            params = stepper.initial_params(params, facts)
            return stepper.init(params, model_state, stream(replica, OPTIMIZER), facts), params, model_state

        opt_state, params, model_state = per_replica(init_replica, replicas)(replicas)

        def batch_values() -> PyTree:
            def replica_batch_values(
                replica: Replica, batch_source: PyTree, opt_state: PyTree, params: PyTree, state: PyTree
            ) -> Any:
                values_of_batch = self._batch_losses(replica, arrays, batch_source, jnp.int32(0), state).loss(params)[
                    1
                ][1]
                return {**_metrics_of(stepper, opt_state), **values_of_batch}

            return per_replica(replica_batch_values, replicas)(
                replicas, self._first_batch_source(replicas, chunk), opt_state, params, model_state
            )

        def evaluation_values() -> PyTree:
            evaluation = self._evaluation_batches(replicas, arrays, eval_batches)
            return self._evaluate(stepper, replicas, evaluation, opt_state, params, model_state)

        return Carry(
            opt_state=opt_state,
            params=params,
            model_state=model_state,
            diverged_at=jnp.full(replicas.seed.shape, -1, jnp.int32),
            step=jnp.int32(0),
            num_evals=jnp.int32(0),
            **self._recorder.empty(replicas.seed.shape, batch_values, evaluation_values),
        )

    def enter(self, given: Given, replicas: Replica, old_carry: Carry, place: PhasePlace | None = None) -> Carry:
        """Returns the initial carry of a later phase: the previous phase's carry with the new optimizer state."""
        stepper = self._stepper(given)
        handover = self._handover
        phase_place = place or self._phase_place
        assert handover is not None

        def enter_replica(
            replica: Replica, opt_state: PyTree, params: PyTree, model_state: PyTree
        ) -> tuple[PyTree, PyTree, PyTree]:
            task = self._task_of(replica)
            params, model_state = split_constants(*task.enter_phase(*merged(params, model_state), phase_place.number))
            # The keys of the steps are folded with 1 and higher, so 0 is unused.
            key = jax.random.fold_in(jax.random.fold_in(stream(replica, OPTIMIZER), 0), phase_place.start)
            facts = facts_of(stepper.extra_inputs(params), lambda: task, params)
            opt_state = handed_over(opt_state, stepper.init(params, model_state, key, facts), handover)
            return opt_state, params, model_state

        opt_state, params, model_state = per_replica(enter_replica, replicas)(
            replicas, old_carry.opt_state, old_carry.params, old_carry.model_state
        )
        return old_carry._replace(opt_state=opt_state, params=params, model_state=model_state)

    def _draw_evaluations(self, replicas: Replica, arrays: PyTree, eval_batches: PyTree) -> PyTree:
        """Returns the batches of every evaluation, by split, leaves [(num_replicas,) num_splits, num_batches, ...]."""

        def draw_replica(replica: Replica, fed: PyTree) -> PyTree:
            return draw_evaluation(self._datasets, arrays, fed, replica, self._case.eval_batches)

        return per_replica(draw_replica, replicas)(replicas, eval_batches)

    def _draw_ahead(self, replicas: Replica, first_step: jax.Array, count: int) -> jax.Array:
        return draw_ahead(self._datasets["train"], replicas, first_step, count)

    def _evaluate(
        self,
        stepper: Stepper,
        replicas: Replica,
        evaluation: PyTree,
        opt_state: PyTree,
        params: PyTree,
        model_state: PyTree,
    ) -> dict[str, jax.Array]:
        """Returns the metrics, float32[(num_replicas)], as means over the evaluation's batches."""

        def evaluate_replica(
            replica: Replica, evaluation: PyTree, opt_state: PyTree, params: PyTree, model_state: PyTree
        ) -> dict[str, Any]:
            metrics = self._task_metrics(replica, evaluation, stepper.eval_params(opt_state, params), model_state)
            return {**{f"train/{name}": value for name, value in _metrics_of(stepper, opt_state).items()}, **metrics}

        return per_replica(evaluate_replica, replicas)(replicas, evaluation, opt_state, params, model_state)

    def _metrics_of_task(
        self, replica: Replica, evaluation: PyTree, params: PyTree, model_state: PyTree
    ) -> dict[str, jax.Array]:
        """Returns the task's metrics of one replica."""
        task = self._task_of(replica)
        task_params, task_state = merged(params, model_state)

        def batch_metrics(key: jax.Array, data: PyTree) -> dict[str, jax.Array]:
            loss, aux = task.eval_loss_with_aux(task_params, task_state, key, data)
            values_by_name = named_values(task, loss, aux)
            return {name: jnp.asarray(value, jnp.float32) for name, value in values_by_name.items()}

        metrics: dict[str, jax.Array] = {}
        for splits, (keys, batches) in evaluation.items():
            values = jax.vmap(jax.vmap(batch_metrics))(keys, batches)
            for index, split in enumerate(splits.split(",")):
                metrics.update({f"{split}/{name}": value[index].mean() for name, value in values.items()})
        return metrics

    def advance(
        self,
        given: Given,
        replicas: Replica,
        arrays: PyTree,
        eval_batches: PyTree,
        chunk: PyTree,
        carry: Carry,
        start: jax.Array,
        stop: jax.Array,
        place: PhasePlace | None = None,
    ) -> Carry:
        """Runs inner steps `start` to `stop - 1` of the phase, and the evaluations in between and at its end."""
        case = self._case
        stepper = self._stepper(given)
        dataset = self._datasets["train"]
        phase_place = place or self._phase_place
        arguments = (given, replicas, arrays, eval_batches, chunk)
        if self._is_shared or phase_place.start == 0:
            carry = jax.lax.cond(start == 0, lambda: self.initial(*arguments), lambda: carry)
        draw = functools.partial(self._evaluation_batches, replicas, arrays, eval_batches)
        evaluation_batches = draw() if case.eval_batches and fits_ahead(jax.eval_shape(draw)) else None

        def evaluate(carry: Carry, begin: Carry) -> Carry:
            def evaluation_values() -> dict[str, jax.Array]:
                evaluation = draw() if evaluation_batches is None else evaluation_batches
                return self._evaluate(stepper, replicas, evaluation, carry.opt_state, carry.params, carry.model_state)

            return self._recorder.evaluated(carry, evaluation_values, begin)

        def run_step(index: jax.Array, carry: Carry, batch_source: PyTree, begin: Carry) -> Carry:
            opt_state, params, model_state, step_values = self._step(
                stepper, replicas, arrays, batch_source, index, carry
            )
            carry = carry._replace(opt_state=opt_state, params=params, model_state=model_state)
            return self._recorder.stepped(carry, index, step_values, begin)

        def run_segment(
            carry: Carry, batch_source: PyTree, first_drawn_step: jax.Array, segment_stop: jax.Array, begin: Carry
        ) -> Carry:
            is_due = (carry.step % case.eval_every == 0) | (carry.step == case.num_inner_steps)
            if self._recorder.evaluates_ends:
                is_due |= carry.step == phase_place.stop
            if self._is_shared:
                is_due &= (carry.step > phase_place.start) | (phase_place.start == 0)
            elif phase_place.start:
                is_due &= carry.step > phase_place.start  # the evaluation at `start` belongs to the previous phase
            carry = jax.lax.cond(is_due, lambda carry: evaluate(carry, begin), lambda carry: carry, carry)
            next_stop = jnp.minimum(segment_stop, (carry.step // case.eval_every + 1) * case.eval_every)

            def body(index: jax.Array, carry: Carry) -> Carry:
                return run_step(
                    index, carry, jax.tree.map(lambda leaf: leaf[index - first_drawn_step], batch_source), begin
                )

            return jax.lax.fori_loop(carry.step, next_stop, body, carry)._replace(step=next_stop)

        def has_more(carry: Carry, next_stop: jax.Array) -> jax.Array:
            last_eval_due = (carry.step == phase_place.stop) & (carry.num_evals < phase_place.num_evals)
            return (carry.step < next_stop) | last_eval_due

        batch_replicas = members(replicas, num_replicas(case))
        num_ahead = MOST_STEPS
        if isinstance(dataset, ArrayDataset):
            num_ahead = min(num_ahead, steps_ahead(dataset, batch_replicas.seed.size))

        def run_stretch(begin: Carry) -> Carry:
            batch_source, first_drawn_step = chunk, start
            if isinstance(dataset, ArrayDataset):
                batch_source = self._indices_ahead(batch_replicas, begin.step, num_ahead)
                first_drawn_step = begin.step
            next_stop = jnp.minimum(stop, begin.step + num_ahead)
            end_carry = jax.lax.while_loop(
                lambda carry: has_more(carry, next_stop),
                lambda carry: run_segment(carry, batch_source, first_drawn_step, next_stop, begin),
                self._recorder.begun(begin),
            )
            return self._recorder.ended(begin, end_carry)

        return jax.lax.while_loop(lambda carry: has_more(carry, stop), run_stretch, carry)

    def observe(
        self,
        given: Given,
        replica: Replica,
        arrays: PyTree,
        chunk: PyTree,
        index: jax.Array,
        state: tuple[Any, Any, Any],
    ) -> dict[str, Any]:
        """Recomputes an inner step of one replica, and returns values that the program does not keep.

        Args:
          given: First argument of the program.
          replica: Replica to observe.
          arrays: Arrays of the data sets.
          chunk: The replica's first batch from an iterator, or None.
          index: Number of the step.
          state: Optimizer state, parameters and model state before the step.
        Returns:
          The batch, its loss, the gradient, and the input ranges of a learned rule. Empty if several replicas train one
          set of parameters.
        """
        if num_replicas(self._case) > 1:
            return {}
        from lobench.inner.training.rule_inputs import rule_inputs  # only needed by replays

        stepper = self._stepper(given)
        dataset = self._datasets["train"]
        observed_values = dict[str, Any]()
        batch_source = draw_ahead(dataset, replica, index, 1)[0] if isinstance(dataset, ArrayDataset) else chunk
        observed_values["batch"] = train_batch(dataset, arrays.get("train"), replica, index, batch_source)

        def step(*arguments: Any, **step_options: Any) -> Any:
            observed_values["gradient"], observed_values["loss"] = arguments[3:5]
            theta, settings = given

            def rule(theta: PyTree) -> Any:
                return self._stepper((theta, settings)).step(*arguments, **step_options)

            observed_values["inputs"] = rule_inputs(rule, theta) if jax.tree.leaves(theta) else {}
            return stepper.step(*arguments, **step_options)

        def losses_of(replica: Replica, batch_source: PyTree, model_state: PyTree) -> BatchLosses:
            return self._batch_losses(replica, arrays, batch_source, index, model_state)

        recording_stepper = dataclasses.replace(stepper, step=step)
        inner_step(self._case, recording_stepper, losses_of, replica, batch_source, index, state)
        return observed_values

    def _step(
        self, stepper: Stepper, replicas: Replica, arrays: PyTree, batch_source: PyTree, index: jax.Array, carry: Carry
    ) -> tuple[PyTree, PyTree, PyTree, dict[str, jax.Array]]:
        """Computes one inner step of every replica.

        Values are those of the batch before the update, float32[(num_replicas)].
        """

        def losses_of(replica: Replica, batch_source: PyTree, model_state: PyTree) -> BatchLosses:
            return self._batch_losses(replica, arrays, batch_source, index, model_state)

        def step_replica(
            replica: Replica, batch_source: PyTree, *state: PyTree
        ) -> tuple[PyTree, PyTree, PyTree, dict[str, jax.Array]]:
            metrics = _metrics_of(stepper, state[0]) if self._recorder.keeps_batches else {}
            *new_state, values = inner_step(
                self._case, stepper, losses_of, replica, batch_source, index, (state[0], state[1], state[2])
            )
            return *new_state, {**metrics, **values}

        return per_replica(step_replica, replicas)(
            replicas, batch_source, carry.opt_state, carry.params, carry.model_state
        )

    def _batch_losses(
        self, replica: Replica, arrays: PyTree, batch_source: PyTree, index: jax.Array, model_state: PyTree
    ) -> BatchLosses:
        """Returns the loss on the batch of a step, and its metrics if they are recorded."""
        task = self._task_of(replica)
        data = train_batch(self._datasets["train"], arrays.get("train"), replica, index, batch_source)

        def step_key(stream_number: int) -> jax.Array:
            return jax.random.fold_in(stream(replica, stream_number), index)

        def loss_fn(params: PyTree) -> tuple[jax.Array, tuple[PyTree, dict[str, jax.Array]]]:
            loss, state, aux = task.loss_with_state_and_aux(*merged(params, model_state), step_key(LOSS), data)
            if shape := jnp.shape(loss):
                raise ConfigError(f"the loss of {type(task).__name__} has the shape {shape}", expected="a scalar")
            state = with_state(model_state, state)
            if not self._recorder.keeps_batches:
                return loss, (state, {})
            values_by_name = named_values(task, loss, aux if isinstance(aux, Mapping) else {})
            return loss, (
                state,
                {name: jnp.asarray(value, jnp.float32).mean() for name, value in values_by_name.items()},
            )

        task_with_methods: Any = task  # the methods called below exist if they are requested
        return BatchLosses(
            loss=loss_fn,
            task=lambda: task,
            memory=lambda params: task_with_methods.memory_loss(*merged(params, model_state), step_key(MEMORY)),
            each=lambda params: task_with_methods.losses(*merged(params, model_state), step_key(LOSS), data),
        )

    def _first_batch_source(self, replicas: Replica, chunk: PyTree) -> PyTree:
        """Returns the draws for the batches of step 0."""
        dataset = self._datasets["train"]
        if isinstance(dataset, ArrayDataset):
            return self._indices_ahead(replicas, jnp.int32(0), 1)[0]
        # The first batch and, if a round has several replicas, the first replica.
        first_index = (0,) + (slice(None),) * replicas.seed.ndim + (0,) * (num_replicas(self._case) > 1)
        return jax.tree.map(lambda leaf: leaf[first_index], chunk)


def _metrics_of(stepper: Stepper, opt_state: PyTree) -> dict[str, jax.Array]:
    """Returns the metrics that an optimizer reports, float32[] by name."""
    return {name: jnp.asarray(value, jnp.float32) for name, value in stepper.metrics(opt_state).items()}
