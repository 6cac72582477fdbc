"""Stepper: an optimizer as the inner program calls it, with schedules that know the length of the training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.extra_inputs.task_side import NOTHING, ExtraInputs, ExtraValues, Facts, zero_extra_values
from lobench.inner.optimizer import PyTree
from lobench.inner.schedules.schedule import Horizon, LossSchedule, ScheduleReads, active_horizon, any_schedules

__all__ = ["ScheduledState", "Stepper", "with_schedules"]


@dataclass(frozen=True)
class Stepper:
    """Optimizer in the form that the inner program calls.

    Attributes:
      init: Function of (params, model_state, key, facts={}) that returns opt_state; `facts` are properties of the task.
      step: Function of (opt_state, params, model_state, grads, loss, key, value_fn=None, extra_values={}) that returns
        (opt_state, params, model_state). `model_state` is the one after the loss, `value_fn` the loss of the same batch
        as a function of parameters, and `extra_values` the extra inputs.
      eval_params: Function of (opt_state, params) that returns the parameters to evaluate.
      initial_params: Function of the task's initial parameters and facts that returns those of the training.
      extra_inputs: Function of params that returns the names of extra inputs.
      metrics: Function of opt_state that returns the optimizer's metrics, float32[] by name.
    """

    init: Callable[..., PyTree]
    step: Callable[..., tuple[PyTree, PyTree, PyTree]]
    eval_params: Callable[[PyTree, PyTree], PyTree] = lambda opt_state, params: params
    initial_params: Callable[..., PyTree] = lambda params, facts=NOTHING: params
    extra_inputs: Callable[[PyTree], ExtraInputs] = lambda params: NOTHING
    metrics: Callable[[PyTree], Mapping[str, jax.Array]] = lambda opt_state: NOTHING


class ScheduledState(NamedTuple):
    """State of an optimizer and of its schedules, if schedules depend on more than the optimizer's own count.

    Attributes:
      opt_state: State of the optimizer itself.
      num_updates: Number of updates since the state was made, int32[].
      states: States of the schedules that observe losses, in the order in which the optimizer calls them.
    """

    opt_state: PyTree
    num_updates: jax.Array
    states: tuple[PyTree, ...]


def with_schedules(stepper: Stepper, num_steps: int, first_step: int) -> Stepper:
    """Returns a stepper whose schedules know the length of the training.

    Args:
      stepper: Stepper of the optimizer.
      num_steps: Number of updates over which schedules run.
      first_step: Number of updates that the optimizer's state has seen before.
    """
    scheduled_stepper = _ScheduledStepper(stepper, num_steps, first_step)
    return dataclasses.replace(
        stepper,
        init=scheduled_stepper.init,
        step=scheduled_stepper.step,
        eval_params=scheduled_stepper.eval_params,
        extra_inputs=scheduled_stepper.extra_inputs,
        metrics=lambda opt_state: stepper.metrics(_optimizer_state(opt_state)),
    )


def _optimizer_state(opt_state: PyTree) -> PyTree:
    """Returns the state of the optimizer itself."""
    return opt_state.opt_state if isinstance(opt_state, ScheduledState) else opt_state


class _ScheduledStepper:
    """Functions of the stepper that `with_schedules` returns.

    Only an update shows whether the optimizer's schedules observe losses. So if the process has any schedules, an
    update is traced once to find out.
    """

    def __init__(self, stepper: Stepper, num_steps: int, first_step: int) -> None:
        self._stepper = stepper
        self._num_steps, self._first_step = num_steps, first_step

    def init(self, params: PyTree, model_state: PyTree, key: jax.Array, facts: Facts = NOTHING) -> PyTree:
        with active_horizon(self._horizon(ScheduleReads())):
            opt_state = self._stepper.init(params, model_state, key, facts)
        needed_reads = self._needed_reads(
            opt_state, params, model_state, key, zero_extra_values(self.extra_inputs(params), facts, params)
        )
        if not needed_reads.loss_schedules and not needed_reads.used_as_number:
            return opt_state
        return ScheduledState(
            opt_state, jnp.int32(0), tuple(schedule.init() for schedule, _ in needed_reads.loss_schedules)
        )

    def step(
        self,
        opt_state: PyTree,
        params: PyTree,
        model_state: PyTree,
        grads: PyTree,
        loss: jax.Array,
        key: jax.Array,
        value_fn: Any = None,
        extra_values: ExtraValues = NOTHING,
    ) -> tuple[PyTree, PyTree, PyTree]:
        if not isinstance(opt_state, ScheduledState):
            reads = ScheduleReads()
            with active_horizon(self._horizon(reads)):
                result = self._stepper.step(opt_state, params, model_state, grads, loss, key, value_fn, extra_values)
            if reads.loss_schedules or reads.used_as_number:
                raise ConfigError(
                    "a schedule looks at what this optimizer's state does not hold",
                    got="a state that another optimizer has left",
                    next_step="begin with a new state of the optimizer",
                )
            return result
        needed_reads = self._needed_reads(opt_state.opt_state, params, model_state, key, extra_values)
        schedule_states = [
            self._state_after_loss(*schedule_and_origin, opt_state, index, loss)
            for index, schedule_and_origin in enumerate(needed_reads.loss_schedules)
        ]
        reads = ScheduleReads(
            opt_state.num_updates, dict(zip(needed_reads.loss_schedules, schedule_states, strict=True))
        )
        with active_horizon(self._horizon(reads)):
            new_state, params, model_state = self._stepper.step(
                opt_state.opt_state, params, model_state, grads, loss, key, value_fn, extra_values
            )
        return ScheduledState(new_state, opt_state.num_updates + 1, tuple(schedule_states)), params, model_state

    def eval_params(self, opt_state: PyTree, params: PyTree) -> PyTree:
        with active_horizon(self._horizon(ScheduleReads())):
            return self._stepper.eval_params(_optimizer_state(opt_state), params)

    def extra_inputs(self, params: PyTree) -> ExtraInputs:
        with active_horizon(self._horizon(ScheduleReads())):
            return self._stepper.extra_inputs(params)

    def _horizon(self, reads: ScheduleReads) -> Horizon:
        return Horizon(self._num_steps, self._first_step, self._first_step, reads)

    def _needed_reads(
        self, opt_state: PyTree, params: PyTree, model_state: PyTree, key: jax.Array, extra_values: ExtraValues
    ) -> ScheduleReads:
        """Returns the losses and counts that schedules read in an update."""
        reads = ScheduleReads()
        if not any_schedules():
            return reads

        def update(opt_state: PyTree, params: PyTree, model_state: PyTree, key: jax.Array) -> Any:
            value_fn = lambda params_at: sum((0 * leaf.sum() for leaf in jax.tree.leaves(params_at)), jnp.float32(0))  # noqa: E731
            with active_horizon(self._horizon(reads)):
                return self._stepper.step(
                    opt_state, params, model_state, params, jnp.float32(0), key, value_fn, extra_values
                )

        try:
            jax.eval_shape(update, opt_state, params, model_state, key)
        except ValueError as error:
            if "__jax_array__" not in str(error):  # jax's error for a schedule passed to a compiled function
                raise
            raise ConfigError(
                "the optimizer passes this number to a compiled function, which cannot take a schedule",
                next_step="schedules are for rates; `optax.inject_hyperparams` makes other settings such",
            ) from error
        return reads

    def _state_after_loss(
        self, schedule: LossSchedule, start_count: int, opt_state: ScheduledState, index: int, loss: jax.Array
    ) -> PyTree:
        """Returns the state of a schedule after a loss.

        The state is initialized at the start of the schedule's horizon.
        """
        initial_state = schedule.init()
        is_new = opt_state.num_updates <= start_count
        state = jax.tree.map(lambda new, old: jnp.where(is_new, new, old), initial_state, opt_state.states[index])
        after_loss = schedule.observe(state, loss)
        return jax.tree.map(
            lambda new, old: jnp.where(opt_state.num_updates >= start_count, new, old), after_loss, state
        )
