"""Checks of extra inputs when a case is bound: a task without what the optimizer needs is refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lobench.core.case import Case
from lobench.core.errors import ConfigError
from lobench.inner.adapters import as_stepper, as_task
from lobench.inner.extra_inputs.optimizer_side import any_wanting, declared_wants
from lobench.inner.extra_inputs.task_side import facts_of
from lobench.inner.task import TaskFamily
from lobench.inner.training.streams import key_of

__all__ = ["refuse_missing_inputs"]


def refuse_missing_inputs(case: Case, where: str) -> None:
    """Looks at what the optimizers of a case want, and begins with what the task says, which they may not take.

    What a learned optimizer wants, this one says by an attribute `wants` of its own; one that only what its `opt_fn`
    returns says is refused when that is called.

    Raises:
      ConfigError: the task, or a task of the family, does not give it.
    """
    parts: Any = case.phases or (case,)
    made = [each.learned_optimizer if each.optimizer is None else each.optimizer for each in parts]
    made = [each for each in made if any_wanting() or hasattr(each, "wants")]

    def look(seed: jax.Array) -> jax.Array:
        task = as_task(case.task)
        if isinstance(task, TaskFamily):
            task = task.task_fn(task.sample(key_of(seed)))
        params, state = task.init_with_state(key_of(seed))
        for each in made:
            if callable(getattr(each, "opt_fn", None)):
                facts_of(declared_wants(each), lambda: task, params)
            elif wants := (stepper := as_stepper(each, 1)).wants(params):
                stepper.init(params, state, key_of(seed), facts_of(wants, lambda: task, params))
        return seed

    if not made:
        return
    try:
        jax.eval_shape(look, np.uint32(0))
    except ConfigError as error:
        raise ConfigError(
            error.what, where=where, got=error.got, expected=error.expected, next_step=error.next_step
        ) from error
