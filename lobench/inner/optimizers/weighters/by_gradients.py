"""Weighters that use the gradients of the losses: their norms, and conflicts between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.weighters.weighing import (
    LossInputs,
    WeightingRule,
    inverse_weights,
    scale_to_sum_k,
    weighting_optimizer,
)
from lobench.inner.schedules.schedule import Rate
from lobench.inner.schedules.setting_checks import check_numbers

__all__ = ["gradnorm", "pcgrad", "slw"]

_ROUNDING = 1e-5  # relative to the mean length; smaller differences count as equal
_LEAST_WEIGHT = 1e-6  # because a step of Adam might make a weight negative


class _GradNormState(NamedTuple):
    is_begun: jax.Array  # bool[]
    first: jax.Array  # float32[K], the losses of the first step
    adam: PyTree  # state of the Adam that changes the weights


@configurable
def gradnorm(
    inner: Any = None, alpha: Rate = 1.5, weight_rate: Rate = 0.025, shared: str = ""
) -> optax.GradientTransformationExtraArgs:
    """GradNorm: weights that balance the norms of the losses' gradients by how slowly each loss falls.

    Adam minimizes the sum of abs(w_i G_i - mean(w G) r_i^alpha). G_i is the norm of loss i's gradient. r_i is the ratio
    of loss i to its first value, divided by the mean of this ratio over all losses. The target mean(w G) r_i^alpha is
    treated as a constant. Norms that differ from it by rounding only do not change a weight.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      alpha: Strength with which slow losses are favoured. 0: gradients of equal norms.
      weight_rate: Adam's learning rate for the weights.
      shared: Part of the parameters whose gradients are used, "trunk" for lobench's tasks. "": all parameters.
    Source: Chen et al. 2018 (arXiv 1711.02257), algorithm 1.
    """
    check_numbers("gradnorm", alpha=alpha, at_least=0.0)
    check_numbers("gradnorm", weight_rate=weight_rate, above=0.0)
    adam = optax.scale_by_adam()

    def start(num_losses: int) -> tuple[_GradNormState, jax.Array]:
        ones = jnp.ones(num_losses, jnp.float32)
        return _GradNormState(jnp.bool_(False), ones, adam.init(ones)), ones

    def weigh(rule_state: _GradNormState, weights: jax.Array, inputs: LossInputs) -> tuple[_GradNormState, jax.Array]:
        first_losses = jnp.where(rule_state.is_begun, rule_state.first, inputs.losses)
        loss_ratios = jnp.where(first_losses == 0, 1.0, inputs.losses / jnp.where(first_losses == 0, 1.0, first_losses))
        norms = _gradient_norms(inputs)
        weighted_norms = weights * norms
        target = weighted_norms.mean() * (loss_ratios / loss_ratios.mean()) ** alpha
        excess = weighted_norms - target
        sign = jnp.where(jnp.abs(excess) <= _ROUNDING * weighted_norms.mean(), 0.0, jnp.sign(excess))
        step, state = adam.update(sign * norms, rule_state.adam)
        new_weights = jnp.maximum(weights - weight_rate * step, _LEAST_WEIGHT)
        return _GradNormState(jnp.bool_(True), first_losses, state), scale_to_sum_k(new_weights)

    return weighting_optimizer(
        "gradnorm", inner, WeightingRule(start=start, weigh=weigh, uses_gradients=True, shared=shared)
    )


@configurable
def slw(inner: Any = None, shared: str = "") -> optax.GradientTransformationExtraArgs:
    """Scaled loss weighting: weights inversely proportional to the norm of each loss's gradient.

    Args:
      inner: Optimizer that steps. None: `adam()`.
      shared: Part of the parameters whose gradients are used, "trunk" for lobench's tasks. "": all parameters.
    Source: Crawshaw and Kosecka 2021 (arXiv 2109.08218), which approximates these norms; see `slaw`.
    """

    def weigh(rule_state: PyTree, weights: jax.Array, inputs: LossInputs) -> tuple[PyTree, jax.Array]:
        return rule_state, inverse_weights(_gradient_norms(inputs))

    return weighting_optimizer(
        "slw", inner, WeightingRule(weigh=weigh, uses_current_losses=True, uses_gradients=True, shared=shared)
    )


@configurable
def pcgrad(inner: Any = None) -> optax.GradientTransformationExtraArgs:
    """PCGrad (gradient surgery): removes from each loss's gradient what conflicts with the others.

    For each g_j in random order, the component of g_i along g_j is removed if their inner product is negative. The step
    uses the mean of the resulting gradients; without conflicts, it equals the inner optimizer's step. Each resulting
    gradient is a weighted sum of all g_j, so the step is one with weighted losses. Weights are at least 1, and their
    sum is not K.

    Args:
      inner: Optimizer that steps. None: `adam()`.
    Source: Yu et al. 2020 (arXiv 2001.06782), algorithm 1.
    """

    def weigh(rule_state: PyTree, weights: jax.Array, inputs: LossInputs) -> tuple[PyTree, jax.Array]:
        assert inputs.gram is not None
        gram = inputs.gram
        num_losses = len(weights)

        def projection(index: jax.Array, key: jax.Array) -> jax.Array:
            """Returns the projected gradient of one loss, as weights of all gradients."""
            order = jax.random.permutation(key, num_losses)

            def project(position: jax.Array, projection: jax.Array) -> jax.Array:
                other_index = order[position]
                product = jnp.dot(projection, gram[other_index], precision="highest")
                square = gram[other_index, other_index]
                is_conflict = (product < 0) & (square > 0) & (other_index != index)
                share = jnp.where(is_conflict, product / jnp.where(square > 0, square, 1.0), 0.0)
                return projection - share * jax.nn.one_hot(other_index, num_losses, dtype=gram.dtype)

            unit_weights = jax.nn.one_hot(index, num_losses, dtype=gram.dtype)
            return jax.lax.fori_loop(0, num_losses, project, unit_weights)

        projected = jax.vmap(projection)(jnp.arange(num_losses), jax.random.split(inputs.key, num_losses))
        return rule_state, projected.sum(axis=0)

    return weighting_optimizer(
        "pcgrad", inner, WeightingRule(weigh=weigh, uses_current_losses=True, uses_gradients=True)
    )


def _gradient_norms(inputs: LossInputs) -> jax.Array:
    """Returns the norms of the losses' gradients, float32[K]."""
    assert inputs.gram is not None
    return jnp.sqrt(jnp.diagonal(inputs.gram))
