"""`LearnedInit`: theta is the initial parameters of a task, which an ordinary optimizer then trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import optax

from lobench import LearnedOptimizer, TaskFamily, configurable
from lobench.extend import as_stepper, as_task

__all__ = ["LearnedInit"]


@dataclass(frozen=True)
class _OptimizerFromTheta:
    """An optimizer with initial parameters, with the methods that lobench calls."""

    init: Callable[..., Any]
    update: Callable[..., tuple[Any, Any]]
    initial_params: Callable[[Any], Any]
    eval_params: Callable[[Any, Any], Any] | None


@configurable
class LearnedInit(LearnedOptimizer):
    """Learned initial parameters (as MAML): `optimizer` trains from theta.

    Args:
      task: Task or family. Theta has the structure of its parameters, and starts as its initial parameters.
      optimizer: optax transformation, such as `@sgd()`.
    """

    def __init__(self, task: Any = None, optimizer: Any = None) -> None:
        self._task = as_task(task)
        self._optimizer = optimizer
        as_stepper(optimizer, 1)  # raises early if it is not an optimizer

    def init(self, key: jax.Array) -> Any:
        task_key, init_key = jax.random.split(key)
        task = self._task
        if isinstance(task, TaskFamily):
            task = task.task_fn(task.sample(task_key))
        return task.init_with_state(init_key)[0]

    def opt_fn(self, theta: Any, num_steps: int | None = None) -> Any:
        optimizer = self._optimizer
        if type(optimizer) is optax.GradientTransformation:
            optimizer = optax.with_extra_args_support(optimizer)
        eval_params = getattr(optimizer, "eval_params", None)
        return _OptimizerFromTheta(optimizer.init, optimizer.update, lambda params: theta, eval_params)
