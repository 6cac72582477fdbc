"""Checks of extra inputs when a case is bound: a task must provide the inputs that the optimizer needs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lobench.core.case import Case
from lobench.core.errors import ConfigError, with_parts
from lobench.inner.adapters import as_stepper, as_task
from lobench.inner.extra_inputs.optimizer_side import any_with_extra_inputs, declared_extra_inputs
from lobench.inner.extra_inputs.task_side import facts_of
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Task, TaskFamily
from lobench.inner.theta import leaf_paths
from lobench.inner.training.constants import split_constants
from lobench.inner.training.streams import key_of

__all__ = ["refuse_missing_inputs", "trained_parameters"]


def trained_parameters(task: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the shapes of a task's trained parameters by path, as patterns such as `no_decay` match them."""
    shapes: Any = jax.eval_shape(lambda seed: _init_task(task, seed)[1], np.uint32(0))
    return leaf_paths(shapes)


def _init_task(task: Any, seed: jax.Array) -> tuple[Task, PyTree, PyTree]:
    """Returns a task, or one of a family, with its trained parameters and its model state."""
    bound_task = as_task(task)
    if isinstance(bound_task, TaskFamily):
        bound_task = bound_task.task_fn(bound_task.sample(key_of(seed)))
    return bound_task, *split_constants(*bound_task.init_with_state(key_of(seed)))


def refuse_missing_inputs(case: Case, where: str) -> None:
    """Checks that a case's task provides the extra inputs of its optimizers.

    A learned optimizer declares its inputs in an attribute `extra_inputs`. Inputs that only the optimizer returned by
    `opt_fn` requests are checked when `opt_fn` is called.

    Raises:
      ConfigError: The task, or a task of the family, does not provide an input.
    """
    phases: Any = case.phases or (case,)
    optimizers = [phase.learned_optimizer if phase.optimizer is None else phase.optimizer for phase in phases]
    optimizers = [
        optimizer for optimizer in optimizers if any_with_extra_inputs() or hasattr(optimizer, "extra_inputs")
    ]

    def check_inputs(seed: jax.Array) -> jax.Array:
        task, params, state = _init_task(case.task, seed)
        for optimizer in optimizers:
            if callable(getattr(optimizer, "opt_fn", None)):
                facts_of(declared_extra_inputs(optimizer), lambda: task, params)
            elif extra_inputs := (stepper := as_stepper(optimizer, 1)).extra_inputs(params):
                stepper.init(params, state, key_of(seed), facts_of(extra_inputs, lambda: task, params))
        return seed

    if not optimizers:
        return
    try:
        jax.eval_shape(check_inputs, np.uint32(0))
    except ConfigError as error:
        raise with_parts(error, ConfigError, where=where) from error
