"""Weighters that use the changes of the losses: their decrease over windows of steps, or their deviation."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizers.weighters.weighing import (
    LossInputs,
    WeightingRule,
    inverse_weights,
    scale_to_sum_k,
    weighting_optimizer,
)
from lobench.inner.schedules.schedule import Rate
from lobench.inner.schedules.setting_checks import check_integers, check_numbers

__all__ = ["dwa", "lbtw", "mldw", "slaw"]

_LEAST_SPREAD = 1e-6  # relative to the mean loss; smaller deviations are rounding errors in 32 bits


def _ratio(losses: jax.Array, earlier_losses: jax.Array) -> jax.Array:
    """Returns `losses / earlier_losses`; 1 for losses that were 0 earlier."""
    return jnp.where(earlier_losses == 0, 1.0, losses / jnp.where(earlier_losses == 0, 1.0, earlier_losses))


class _Windows(NamedTuple):
    """Mean losses of the last two complete windows, float32[K], and the sum of the open one.

    Attributes:
      num_steps: int32[], number of steps so far.
    """

    num_steps: jax.Array
    total: jax.Array
    last: jax.Array
    before: jax.Array


@configurable
def dwa(inner: Any = None, temperature: Rate = 2.0, window: int = 25) -> optax.GradientTransformationExtraArgs:
    """Dynamic weight average: softmax of how slowly each loss falls from window to window.

    Losses are averaged over windows. Weights are 1 in the first two windows, and change at the end of each later
    window.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      temperature: Temperature of the softmax. High temperatures give nearly equal weights.
      window: Number of steps in a window; an epoch in the source.
    Source: Liu et al. 2019 (arXiv 1803.10704), section 3.2.
    """
    check_numbers("dwa", temperature=temperature, above=0.0)
    check_integers("dwa", window=window, at_least=1)

    def start(num_losses: int) -> tuple[_Windows, jax.Array]:
        zeros = jnp.zeros(num_losses, jnp.float32)
        return _Windows(jnp.int32(0), zeros, zeros, zeros), jnp.ones(num_losses, jnp.float32)

    def weigh(rule_state: _Windows, weights: jax.Array, inputs: LossInputs) -> tuple[_Windows, jax.Array]:
        num_steps = rule_state.num_steps + 1
        total = rule_state.total + inputs.losses
        is_end = num_steps % window == 0
        last_mean = jnp.where(is_end, total / window, rule_state.last)
        mean_before = jnp.where(is_end, rule_state.last, rule_state.before)
        new_weights = len(weights) * jax.nn.softmax(_ratio(last_mean, mean_before) / temperature)
        weights = jnp.where(is_end & (num_steps >= 2 * window), new_weights, weights)
        return _Windows(num_steps, jnp.where(is_end, 0.0, total), last_mean, mean_before), weights

    return weighting_optimizer("dwa", inner, WeightingRule(start=start, weigh=weigh))


class _LossHistory(NamedTuple):
    num_steps: jax.Array  # int32[], steps so far
    losses: jax.Array  # float32[K], losses that the present ones are compared with


def _empty_history(num_losses: int) -> tuple[_LossHistory, jax.Array]:
    return _LossHistory(jnp.int32(0), jnp.zeros(num_losses, jnp.float32)), jnp.ones(num_losses, jnp.float32)


@configurable
def lbtw(inner: Any = None, alpha: Rate = 0.5, window: int = 100) -> optax.GradientTransformationExtraArgs:
    """Loss-balanced task weighting: a power of each loss relative to its value at the start of the window.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      alpha: Exponent. 0: equal weights.
      window: Number of steps in a window; an epoch in the source.
    Source: Liu et al. 2019, "Loss-balanced task weighting to reduce negative transfer", AAAI.
    """
    check_numbers("lbtw", alpha=alpha, at_least=0.0)
    check_integers("lbtw", window=window, at_least=1)

    def weigh(rule_state: _LossHistory, weights: jax.Array, inputs: LossInputs) -> tuple[_LossHistory, jax.Array]:
        start_losses = jnp.where(rule_state.num_steps % window == 0, inputs.losses, rule_state.losses)
        loss_ratios = jnp.maximum(_ratio(inputs.losses, start_losses), 0.0)
        return _LossHistory(rule_state.num_steps + 1, start_losses), scale_to_sum_k(loss_ratios**alpha)

    return weighting_optimizer("lbtw", inner, WeightingRule(start=_empty_history, weigh=weigh))


@configurable
def mldw(inner: Any = None, decay: Rate = 0.9, gamma: Rate = 2.0) -> optax.GradientTransformationExtraArgs:
    """Multi-loss dynamic weights: -(1 - p)^gamma log p, where p is the relative decrease of a loss's moving average.

    A loss that falls fast has a larger weight, and a loss that rose has weight 0. If all losses rose, all weights are
    1.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      decay: Decay of the moving average.
      gamma: Exponent. 0: the logarithm only.
    Source: Zheng et al. 2018 (arXiv 1810.12193).
    """
    check_numbers("mldw", decay=decay, at_least=0.0, at_most=1.0)
    check_numbers("mldw", gamma=gamma, at_least=0.0)

    def weigh(rule_state: _LossHistory, weights: jax.Array, inputs: LossInputs) -> tuple[_LossHistory, jax.Array]:
        average = jnp.where(rule_state.num_steps == 0, inputs.losses, rule_state.losses)
        # 1 - p without cancellation, since the average changes by (1 - decay) times the difference.
        fall = jnp.maximum((1 - decay) * (1 - _ratio(inputs.losses, average)), 0.0)
        new_weights = scale_to_sum_k(fall**gamma * -jnp.log1p(-fall))
        return _LossHistory(rule_state.num_steps + 1, average + (1 - decay) * (inputs.losses - average)), new_weights

    return weighting_optimizer("mldw", inner, WeightingRule(start=_empty_history, weigh=weigh))


class _Spread(NamedTuple):
    num_steps: jax.Array  # int32[]
    mean: jax.Array  # float32[K], moving
    variance: jax.Array  # float32[K], around it


@configurable
def slaw(inner: Any = None, decay: Rate = 0.99) -> optax.GradientTransformationExtraArgs:
    """Scaled loss approximate weighting: weights inversely proportional to each loss's standard deviation.

    The deviation is the root of E[L^2] - E[L]^2, with moving averages that start at the first loss. It is at least a
    millionth of the mean, so that the weights of the first step are inversely proportional to the losses.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      decay: Decay of the moving averages.
    Source: Crawshaw and Kosecka 2021 (arXiv 2109.08218).
    """
    check_numbers("slaw", decay=decay, at_least=0.0, at_most=1.0)

    def start(num_losses: int) -> tuple[_Spread, jax.Array]:
        zeros = jnp.zeros(num_losses, jnp.float32)
        return _Spread(jnp.int32(0), zeros, zeros), jnp.ones(num_losses, jnp.float32)

    def weigh(rule_state: _Spread, weights: jax.Array, inputs: LossInputs) -> tuple[_Spread, jax.Array]:
        mean = jnp.where(rule_state.num_steps == 0, inputs.losses, rule_state.mean)
        difference = inputs.losses - mean
        # This equals E[L^2] - E[L]^2, without the difference of two large numbers.
        variance = decay * (rule_state.variance + (1 - decay) * difference**2)
        mean = mean + (1 - decay) * difference
        deviation = jnp.maximum(jnp.sqrt(variance), _LEAST_SPREAD * jnp.abs(mean))
        new_weights = inverse_weights(deviation)
        return _Spread(rule_state.num_steps + 1, mean, variance), new_weights

    return weighting_optimizer("slaw", inner, WeightingRule(start=start, weigh=weigh, uses_current_losses=True))
