"""Optimizer interface of the inner program: optax transformations, made from theta by a learned optimizer."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax

__all__ = ["InnerOptimizer", "LearnedOptimizer", "PyTree", "Theta", "TransformationWithEvalParams"]

PyTree: TypeAlias = Any
Theta: TypeAlias = Any  # a pytree of arrays: the meta-parameters


@runtime_checkable
class InnerOptimizer(Protocol):
    """`optax.GradientTransformationExtraArgs`, by shape.

    `update(grads, state, params, *, value, key, **extra)` gets the batch's loss as `value` (float32[]) and a PRNG key,
    and further `grad` (the gradient), `value_fn` and `obj_fn` (params -> the batch's loss): what it takes of these. It
    returns (updates, state), and parameters become `params + updates`. An optional attribute
    `eval_params(state, params) -> params` says where the optimizer wants to be evaluated, and
    `initial_params(params) -> params` where it starts from instead of the task's own initial parameters. What
    `metrics(state)` gives, float32[] by name, is written down with the evaluations, as `train/NAME`.

    An optional attribute `extra_inputs`, a tuple of names, says what more `update` gets, by keyword, and what is
    computed for it alone:

    - "memory": the gradient of the task's `memory_loss`, a tree like params; zeros while the memory is empty.
    - "task_losses": float32[K], the values of its `losses`; with it comes `weighted_gradient`, a function: weights
      float32[K] -> the gradient of the losses so weighted, a tree like params, for one backward pass.
    - "task_gradients": their gradients, a tree like params with a leading axis [K].
    - "scale_invariant": its `scale_invariant(params)`, axes from 0 up.

    `init`, and `initial_params`, get what they take of `num_losses` (K) and `scale_invariant`. An optimizer that
    `lobench.with_extra_inputs` makes has its inputs inside of whatever wraps it too (`optax.chain`).
    """

    init: Callable[..., PyTree]
    update: Callable[..., tuple[PyTree, PyTree]]


@dataclass(frozen=True)
class TransformationWithEvalParams:
    """An optax transformation that is evaluated elsewhere than at its parameters (averaging, schedule-free).

    Attributes:
      init: params -> state.
      update: (grads, state, params, **extra) -> (updates, state).
      eval_params: (state, params) -> the parameters to evaluate.
    """

    init: Callable[..., PyTree]
    update: Callable[..., tuple[PyTree, PyTree]]
    eval_params: Callable[[PyTree, PyTree], PyTree]


class LearnedOptimizer(abc.ABC):
    """A family of optimizers indexed by theta.

    The vocabulary of google/learned_optimization: `init(key)` makes theta, `opt_fn(theta, num_steps)` an optimizer.
    """

    @abc.abstractmethod
    def init(self, key: jax.Array) -> Theta:
        """Returns an initial theta: a pytree of arrays whose structure, shapes and dtypes checkpoints must match."""

    @abc.abstractmethod
    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        """Returns the optimizer of this theta.

        Args:
          theta: As `init` returns it; may be traced.
          num_steps: Length of the inner training, for optimizers that schedule by it.
        """
