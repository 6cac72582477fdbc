"""Weights that do not depend on the losses: constant or random ones, as baselines for the other weighters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.weighters.weighing import LossInputs, WeightingRule, scale_to_sum_k, weighting_optimizer
from lobench.inner.schedules.schedule import Rate
from lobench.inner.schedules.setting_checks import check_numbers

__all__ = ["constant_weights", "noisy", "random_walk"]

_ROUNDED = 1e-3  # tolerance of the sum, so that (.33, .33, 2.34) are valid


@configurable
def constant_weights(
    inner: Any = None, weights: Sequence[float] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Constant weights of the losses.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      weights: One weight per loss; their sum must be their number: `(0.5, 1.5)`. None: 1 each.
    """
    if weights is not None:
        _check_weights(weights)

    def start(num_losses: int) -> tuple[PyTree, jax.Array]:
        if weights is not None and len(weights) != num_losses:
            weights_text = f"{len(weights)} of them"
            expected = f"{num_losses}, one for each loss of the task"
            raise ConfigError("constant_weights.weights", got=weights_text, expected=expected)
        return (), scale_to_sum_k(jnp.asarray(weights or (1.0,) * num_losses, jnp.float32))

    def weigh(rule_state: PyTree, weights: jax.Array, inputs: LossInputs) -> tuple[PyTree, jax.Array]:
        return rule_state, weights

    return weighting_optimizer("constant_weights", inner, WeightingRule(start=start, weigh=weigh))


def _check_weights(weights: object) -> None:
    """Raises ConfigError unless the weights are numbers >= 0 whose sum is their count."""
    where = "constant_weights.weights"
    weights_text = repr(weights)
    weight_list = list(weights) if isinstance(weights, list | tuple) else []
    if not weight_list or not all(
        type(weight) in (int, float) and 0 <= weight < float("inf") for weight in weight_list
    ):
        raise ConfigError(where, got=weights_text, expected="numbers >= 0, one for each loss")
    total = sum(weight_list)
    count = len(weight_list)
    if abs(total - count) > _ROUNDED * count:
        advice = f"multiply them by {count / total:g}" if total else ""
        raise ConfigError(f"{where} sum to {total:g}", got=weights_text, expected=f"the sum {count}", next_step=advice)


@configurable
def noisy(inner: Any = None, std: Rate = 1.0) -> optax.GradientTransformationExtraArgs:
    """Random weights: softmax of 1 plus noise, drawn in each step.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      std: Standard deviation of the normal noise.
    Source: Lin et al. 2022, "Reasonable effectiveness of random weighting" (arXiv 2111.10603).
    """
    check_numbers("noisy", std=std, at_least=0.0)

    def weigh(rule_state: PyTree, weights: jax.Array, inputs: LossInputs) -> tuple[PyTree, jax.Array]:
        return rule_state, _noisy_softmax(jnp.ones_like(weights), std, inputs.key)

    return weighting_optimizer("noisy", inner, WeightingRule(weigh=weigh))


@configurable
def random_walk(inner: Any = None, std: Rate = 1.0) -> optax.GradientTransformationExtraArgs:
    """Random walk of weights: softmax of the previous weights plus noise.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      std: Standard deviation of the normal noise.
    Source: Crawshaw and Kosecka 2021 (arXiv 2109.08218), as a baseline.
    """
    check_numbers("random_walk", std=std, at_least=0.0)

    def weigh(rule_state: PyTree, weights: jax.Array, inputs: LossInputs) -> tuple[PyTree, jax.Array]:
        return rule_state, _noisy_softmax(weights, std, inputs.key)

    return weighting_optimizer("random_walk", inner, WeightingRule(weigh=weigh))


def _noisy_softmax(weights: jax.Array, std: Rate, key: jax.Array) -> jax.Array:
    noise = std * jax.random.normal(key, weights.shape, jnp.float32)
    return len(weights) * jax.nn.softmax(weights + noise)
