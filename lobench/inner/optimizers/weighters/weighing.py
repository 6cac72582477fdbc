"""Weighting of losses, shared by all weighters: an inner optimizer steps by the gradient of the weighted mean.

With weights w of the K losses L, the gradient of a step is that of `(w_1 L_1 + ... + w_K L_K) / K`. Weights sum to K.
If all are 1, it is the gradient of the task's own loss, and learning rates mean the same for all methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lobench.core.errors import ConfigError
from lobench.inner.extra_inputs.calling import call_with_accepted
from lobench.inner.extra_inputs.optimizer_side import with_extra_inputs
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.baselines import adam

__all__ = [
    "LossInputs",
    "WeighterState",
    "WeightingRule",
    "as_inner_optimizer",
    "inverse_weights",
    "require_several",
    "scale_to_sum_k",
    "weight_metrics",
    "weighting_optimizer",
]

_TASK_INPUTS = ("task_losses", "task_gradients")


class LossInputs(NamedTuple):
    """Properties of the losses in one step.

    Attributes:
      losses: Values, float32[K].
      gram: Inner products of their gradients, float32[K, K]; None for a rule that does not use them.
      key: PRNG key of the step.
    """

    losses: jax.Array
    gram: jax.Array | None
    key: jax.Array


class WeighterState(NamedTuple):
    """Optimizer state of a loss weighter.

    Attributes:
      weights: Weights of the next step, float32[K]; of the last step for rules with `uses_current_losses`.
      memory: State of the rule.
      inner: State of the inner optimizer.
    """

    weights: jax.Array
    memory: PyTree
    inner: PyTree


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightingRule:
    """Rule that weights losses.

    Attributes:
      weigh: Function of (state of the rule, weights, inputs) that returns the new state and weights, float32[K].
      start: Function of K that returns the state of the rule and the weights before the first step.
      uses_current_losses: Whether the weights of a step depend on its own losses, instead of those of earlier steps.
      uses_gradients: Whether the rule uses the inner products of the losses' gradients.
      shared: Part of the parameters whose gradients are used, "trunk". "": all parameters.
    """

    weigh: Callable[[PyTree, jax.Array, LossInputs], tuple[PyTree, jax.Array]]
    start: Callable[[int], tuple[PyTree, jax.Array]] = lambda count: ((), jnp.ones(count, jnp.float32))
    uses_current_losses: bool = False
    uses_gradients: bool = False
    shared: str = ""


def weighting_optimizer(name: str, inner: Any, rule: WeightingRule) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer that steps an inner optimizer with the losses weighted by a rule.

    Args:
      name: Name of the weighter.
      inner: optax transformation. None: `adam()`.
      rule: Weighting rule.
    """
    inner = as_inner_optimizer(name, inner)

    def init(params: PyTree, num_losses: int) -> WeighterState:
        memory, weights = rule.start(require_several(name, num_losses))
        return WeighterState(weights, memory, inner.init(params))

    def update(
        grads: PyTree,
        state: WeighterState,
        params: PyTree,
        *,
        task_losses: jax.Array,
        weighted_gradient: Callable[[jax.Array], PyTree],
        key: jax.Array,
        task_gradients: PyTree = None,
    ) -> tuple[PyTree, WeighterState]:
        rule_key, inner_key = jax.random.split(key)
        gram = _gram(name, task_gradients, rule.shared) if rule.uses_gradients else None
        memory, weights = rule.weigh(state.memory, state.weights, LossInputs(task_losses, gram, rule_key))
        mean_weights = (weights if rule.uses_current_losses else state.weights) / len(task_losses)
        gradient = (
            _weighted_sum(mean_weights, task_gradients) if rule.uses_gradients else weighted_gradient(mean_weights)
        )
        value = jnp.sum(mean_weights * task_losses)
        updates, inner_state = call_with_accepted(
            inner.update, gradient, state.inner, params, value=value, key=inner_key
        )
        return updates, WeighterState(weights, memory, inner_state)

    def eval_params(state: WeighterState, params: PyTree) -> PyTree:
        inner_eval_params = getattr(inner, "eval_params", None)
        return params if inner_eval_params is None else inner_eval_params(state.inner, params)

    extra_inputs = _TASK_INPUTS if rule.uses_gradients else _TASK_INPUTS[:1]
    return with_extra_inputs(
        init, update, extra_inputs, name=name, inner=inner, eval_params=eval_params, metrics=weight_metrics
    )


def as_inner_optimizer(name: str, inner: Any) -> Any:
    """Returns the inner optimizer of a weighter, `adam()` for None.

    Raises:
      ConfigError: It is not an optax transformation, or weights losses itself.
    """
    if inner is None:
        return adam()
    if not callable(getattr(inner, "init", None)) or not callable(getattr(inner, "update", None)):
        advice = "does gin bind `@adam` where `@adam()` is meant?"
        raise ConfigError(f"{name}.inner", got=repr(inner), expected="an optax transformation", next_step=advice)
    if set(_TASK_INPUTS) & set(getattr(inner, "extra_inputs", ())):
        advice = "bind the optimizer inside of that one"
        raise ConfigError(f"{name}.inner weighs losses itself", expected="one that does not", next_step=advice)
    return inner


def require_several(name: str, num_losses: int) -> int:
    """Returns the number of losses. Raises ConfigError if there are fewer than two."""
    if num_losses < 2:
        advice = f"bind a task with more, or the optimizer inside of {name}"
        raise ConfigError(
            f"{name} weighs several losses", got=f"a task with {num_losses}", expected="2 or more", next_step=advice
        )
    return num_losses


def scale_to_sum_k(weights: jax.Array) -> jax.Array:
    """Returns weights float32[K] >= 0, scaled so that they sum to K; all 1 if they sum to 0."""
    weight_sum = weights.sum()
    scaled_weights = len(weights) * weights / jnp.where(weight_sum == 0, 1, weight_sum)
    return jnp.where(weight_sum == 0, jnp.ones_like(weights), scaled_weights)


def inverse_weights(lengths: jax.Array) -> jax.Array:
    """Returns weights proportional to 1 / lengths, float32[K], that sum to K.

    Lengths of 0 become the least positive one.
    """
    min_length = jnp.min(lengths, initial=jnp.inf, where=lengths > 0)
    return scale_to_sum_k(jnp.where(lengths > 0, min_length / jnp.where(lengths > 0, lengths, 1.0), 1.0))


def weight_metrics(state: WeighterState) -> dict[str, jax.Array]:
    """Returns the weights as metrics, `weight_task_1` and so on."""
    return {f"weight_task_{index + 1}": state.weights[index] for index in range(len(state.weights))}


def _gram(name: str, gradients: PyTree, shared: str) -> jax.Array:
    """Returns the inner products of gradients, leaves [K, ...], float32[K, K]."""
    if shared:
        if not isinstance(gradients, dict) or shared not in gradients:
            part_names = ", ".join(map(repr, gradients)) if isinstance(gradients, dict) else "none that has a name"
            raise ConfigError(f"{name}.shared is not a part of the parameters", got=repr(shared), expected=part_names)
        gradients = gradients[shared]
    rows = [leaf.reshape(len(leaf), math.prod(leaf.shape[1:])) for leaf in jax.tree.leaves(gradients)]
    rows = [row.astype(jnp.float32) for row in rows]
    gram: jax.Array = sum(jnp.matmul(row, row.T, precision="highest") for row in rows)  # type: ignore[assignment]
    return gram


def _weighted_sum(mean_weights: jax.Array, gradients: PyTree) -> PyTree:
    """Returns the weighted sum of gradients, leaves [K, ...]."""
    return jax.tree.map(
        lambda leaf: jnp.tensordot(mean_weights.astype(leaf.dtype), leaf, 1, precision="highest"), gradients
    )
