"""Optimizer interface of the inner program: optax transformations, which a learned optimizer makes from theta."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import optax

__all__ = [
    "InnerOptimizer",
    "LearnedOptimizer",
    "OptimizerState",
    "PyTree",
    "Theta",
    "Transformation",
    "TransformationWithEvalParams",
]

PyTree: TypeAlias = Any
OptimizerState: TypeAlias = dict[str, Any]  # parts of an optimizer's state by name
Theta: TypeAlias = Any  # a pytree of arrays: the meta-parameters
Transformation: TypeAlias = optax.GradientTransformationExtraArgs


@runtime_checkable
class InnerOptimizer(Protocol):
    """Protocol of optimizers: `optax.GradientTransformationExtraArgs`, with optional attributes.

    `update(grads, state, params, *, value, key, **extra)` receives the batch's loss as `value` (float32[]), a PRNG key,
    the gradient as `grad`, and functions from params to the batch's loss as `value_fn` and `obj_fn`, each only if it
    accepts the name. It returns (updates, state), and the parameters become `params + updates`. Optional attributes:
    `eval_params(state, params) -> params` returns the parameters to evaluate, and `initial_params(params) -> params`
    the initial parameters in place of the task's own. `metrics(state)` returns float32[] by name, recorded with each
    evaluation as `train/NAME`.

    An optional attribute `extra_inputs`, a tuple of names, requests further keyword arguments of `update`:

    - "memory": gradient of the task's `memory_loss`, a tree like params; zeros while the memory is empty.
    - "task_losses": float32[K], values of the task's `losses`. With it comes `weighted_gradient`, a function from
      weights float32[K] to the gradient of the weighted losses, a tree like params, at the price of one backward pass.
    - "task_gradients": gradients of the losses, a tree like params with a leading axis [K].
    - "scale_invariant": the task's `scale_invariant(params)`, axes from 0 up.

    `init` and `initial_params` receive `num_losses` (K) and `scale_invariant` if they accept them. An optimizer made by
    `lobench.with_extra_inputs` receives its inputs inside a wrapper too (`optax.chain`).
    """

    init: Callable[..., PyTree]
    update: Callable[..., tuple[PyTree, PyTree]]


@dataclass(frozen=True)
class TransformationWithEvalParams:
    """An optax transformation with different parameters for evaluation (averaging, schedule-free).

    Attributes:
      init: params -> state.
      update: (grads, state, params, **extra) -> (updates, state).
      eval_params: (state, params) -> the parameters to evaluate.
    """

    init: Callable[..., PyTree]
    update: Callable[..., tuple[PyTree, PyTree]]
    eval_params: Callable[[PyTree, PyTree], PyTree]


class LearnedOptimizer(abc.ABC):
    """A family of optimizers, indexed by theta.

    It has the methods of google/learned_optimization: `init(key)` returns a theta, `opt_fn(theta, num_steps)` an
    optimizer.

    >>> class Scaled(lobench.LearnedOptimizer):
    ...     def init(self, key):
    ...         return {"log_rate": jnp.zeros(())}
    ...
    ...     def opt_fn(self, theta, num_steps=None):
    ...         return optax.sgd(jnp.exp(theta["log_rate"]))
    >>> optimizer = Scaled().opt_fn({"log_rate": 0.0})
    >>> optimizer.update(jnp.ones(2), optimizer.init(jnp.ones(2)))[0]
    Array([-1., -1.], dtype=float32)
    """

    @abc.abstractmethod
    def init(self, key: jax.Array) -> Theta:
        """Returns an initial theta, a pytree of arrays. Checkpoints must match its structure, shapes and dtypes.

        Args:
          key: PRNG key of the initial values.
        """

    @abc.abstractmethod
    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        """Returns the optimizer of a theta.

        Args:
          theta: Theta with the structure of `init`; may be traced.
          num_steps: Length of the inner training, for optimizers with a schedule.
        """
