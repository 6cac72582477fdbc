"""optax transformation of a learned optimizer, for trainings outside lobench."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import optax

from lobench.core.errors import UsageError
from lobench.inner.adapters.stepper import as_stepper
from lobench.inner.optimizer import PyTree, Transformation

__all__ = ["as_transformation"]


def as_transformation(optimizer: Any, num_steps: int, *, name: str) -> Transformation:
    """Returns an optimizer as an optax transformation, whose schedules run over `num_steps` updates.

    Args:
      optimizer: Optimizer, as in `as_stepper`. The updates of an object with google/learned_optimization's methods are
        its new parameters minus the old ones, so that they are rounded once more.
      num_steps: Number of updates of the training.
      name: Name of the optimizer in error messages.
    Returns:
      A transformation with `update(grads, state, params, *, value, key, **extra)`. `key` is a PRNG key for optimizers
      that draw random numbers.
    """
    stepper = as_stepper(optimizer, num_steps, result=lambda params, updates: updates)
    needs_loss = _needs_loss(optimizer)

    def init(params: PyTree) -> PyTree:
        return stepper.init(params, None, jax.random.key(0))

    def update(
        grads: PyTree,
        state: PyTree,
        params: PyTree = None,
        *,
        value: jax.Array | None = None,
        key: jax.Array | None = None,
        value_fn: Any = None,
        **extra: Any,
    ) -> tuple[PyTree, PyTree]:
        if params is None:
            raise UsageError(
                f"{name} reads the parameters", got="update(grads, state)", expected="update(grads, state, params)"
            )
        if value is None and needs_loss:
            raise UsageError(
                f"{name} reads the loss of the batch",
                got="update(grads, state, params)",
                expected="update(grads, state, params, value=loss)",
            )
        key = jax.random.key(0) if key is None else key
        state, updates, _ = stepper.step(state, params, None, grads, value, key, value_fn, extra)
        return updates, state

    return optax.GradientTransformationExtraArgs(init, update)


def _needs_loss(optimizer: Any) -> bool:
    parameters = inspect.signature(optimizer.update).parameters
    loss_parameters = [parameters[name] for name in ("value", "loss") if name in parameters]
    return any(parameter.default is inspect.Parameter.empty for parameter in loss_parameters)
