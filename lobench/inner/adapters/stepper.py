"""Steppers of optax transformations, also averaging ones, and of google/learned_optimization's objects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from lobench.core.errors import ConfigError
from lobench.inner.adapters.scheduled import Stepper, with_schedules
from lobench.inner.extra_inputs.calling import call_with_accepted
from lobench.inner.extra_inputs.optimizer_side import (
    bind_requested_inputs,
    declared_extra_inputs,
    extra_inputs_of,
    initial_params_functions,
    provide_inputs,
)
from lobench.inner.extra_inputs.task_side import NOTHING, ExtraValues, Facts
from lobench.inner.lookahead import is_lookahead, refuse_lookahead_inside, synced_lookahead
from lobench.inner.optimizer import PyTree
from lobench.inner.schedules.schedule import note_horizon_read

__all__ = ["Stepper", "as_stepper"]

ValueFn: TypeAlias = Callable[[PyTree], jax.Array]  # params -> float32[]
_Result: TypeAlias = Callable[[PyTree, PyTree], PyTree]  # (params, updates) -> params of the next step


def _apply_updates(params: PyTree, updates: PyTree) -> PyTree:
    return optax.apply_updates(params, updates)


def as_stepper(optimizer: Any, num_steps: int, first_step: int = 0, *, result: _Result = _apply_updates) -> Stepper:
    """Wraps an optimizer. Schedules used as its rates run over `num_steps` updates.

    Args:
      optimizer: optax transformation (with or without extra arguments, with optional `eval_params`,
        `initial_params` and `metrics`), or an object with google/learned_optimization's `init`, `update`,
        `get_params` and `get_state`.
      num_steps: Number of updates of the inner training.
      first_step: Number of updates that its state has already made. Schedules start after them.
      result: Function of (params, updates) for the parameters that `step` returns.
    Raises:
      ConfigError: The object is neither.

    >>> stepper = as_stepper(optax.sgd(0.1), num_steps=10)
    >>> callable(stepper.init)
    True
    """
    if callable(getattr(optimizer, "get_params", None)) and callable(getattr(optimizer, "update", None)):
        return with_schedules(_google_stepper(optimizer, num_steps, result), num_steps, first_step)
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return with_schedules(_optax_stepper(optimizer, result), num_steps, first_step)
    raise ConfigError(
        "not an optimizer",
        got=type(optimizer).__name__,
        expected="an optax transformation, or an object with init, update, get_params and get_state",
        next_step="does gin bind `@name` where `@name()` is meant?",
    )


def _optax_stepper(optimizer: Any, result: _Result) -> Stepper:
    if is_lookahead(optimizer):
        optimizer = synced_lookahead(optimizer)
    eval_params = getattr(optimizer, "eval_params", None)
    metrics = getattr(optimizer, "metrics", None)
    extra_inputs = functools.partial(extra_inputs_of, optimizer)
    declared_inputs = declared_extra_inputs(optimizer)

    def initial_params(params: PyTree, facts: Facts = NOTHING) -> PyTree:
        for start in initial_params_functions(optimizer, params):
            params = call_with_accepted(start, params, **facts)
        return params

    if type(optimizer) is optax.GradientTransformation:
        optimizer = optax.with_extra_args_support(optimizer)

    def init(params: PyTree, model_state: PyTree, key: jax.Array, facts: Facts = NOTHING) -> PyTree:
        with provide_inputs(facts, NOTHING):
            return call_with_accepted(optimizer.init, params, **facts)

    def step(
        opt_state: PyTree,
        params: PyTree,
        model_state: PyTree,
        grads: PyTree,
        loss: jax.Array,
        key: jax.Array,
        value_fn: ValueFn | None = None,
        extra_values: ExtraValues = NOTHING,
    ) -> tuple[PyTree, PyTree, PyTree]:
        refuse_lookahead_inside(opt_state)
        loss_functions = _loss_functions(value_fn, grads) if value_fn is not None else {}
        available = {"value": loss, "key": key, **loss_functions, **extra_values}
        with provide_inputs(NOTHING, extra_values):
            update = bind_requested_inputs(optimizer.update, declared_inputs, available)
            updates, opt_state = call_with_accepted(update, grads, opt_state, params, **available)
        return opt_state, result(params, updates), model_state

    return Stepper(
        init=init,
        step=step,
        eval_params=eval_params or (lambda opt_state, params: params),
        initial_params=initial_params,
        extra_inputs=extra_inputs,
        metrics=metrics or (lambda opt_state: NOTHING),
    )


def _loss_functions(value_fn: ValueFn, grads: PyTree) -> dict[str, Any]:
    """Returns the arguments that optax's line searches and second-order methods use, by name."""

    # optax's line searches raise an error for extra arguments that `value_fn` does not accept, so it accepts these.
    def value_at(params: PyTree, key: Any = None, obj_fn: Any = None) -> jax.Array:
        return value_fn(params)

    return {"grad": grads, "value_fn": value_at, "obj_fn": value_fn}


def _google_stepper(optimizer: Any, num_steps: int, result: _Result) -> Stepper:
    declared_inputs = declared_extra_inputs(optimizer)

    def init(params: PyTree, model_state: PyTree, key: jax.Array, facts: Facts = NOTHING) -> PyTree:
        note_horizon_read()
        return call_with_accepted(optimizer.init, params, model_state, num_steps=num_steps, key=key, **facts)

    def step(
        opt_state: PyTree,
        params: PyTree,
        model_state: PyTree,
        grads: PyTree,
        loss: jax.Array,
        key: jax.Array,
        value_fn: ValueFn | None = None,
        extra_values: ExtraValues = NOTHING,
    ) -> tuple[PyTree, PyTree, PyTree]:
        # As its own trainer calls it: by keyword, since its classes order the arguments differently, and without
        # `is_valid`, which would say that the loss is a validation loss and the gradient is not to be used.
        available = {"loss": loss, "model_state": model_state, "key": key, **extra_values}
        update = bind_requested_inputs(optimizer.update, declared_inputs, available)
        opt_state = call_with_accepted(update, opt_state, grads, **available)
        new_params = optimizer.get_params(opt_state)
        if result is not _apply_updates:
            new_params = result(params, jax.tree.map(jnp.subtract, new_params, params))
        return opt_state, new_params, optimizer.get_state(opt_state)

    return Stepper(init=init, step=step, extra_inputs=lambda params: declared_inputs)
