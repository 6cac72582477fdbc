"""Weights that are trained with the parameters, as inverse variances of the losses' likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.extra_inputs.calling import call_with_accepted
from lobench.inner.extra_inputs.optimizer_side import with_extra_inputs
from lobench.inner.optimizer import PyTree
from lobench.inner.optimizers.weighters.weighing import (
    WeighterState,
    as_inner_optimizer,
    require_several,
    weight_metrics,
)

__all__ = ["uncertainty"]


@configurable
def uncertainty(inner: Any = None) -> optax.GradientTransformationExtraArgs:
    """Uncertainty weighting: w_i = exp(-s_i) / 2, with trained log variances s_i.

    The s_i minimize exp(-s_i) L_i / 2 + s_i / 2, whose minimum for a constant loss is s_i = log L_i. The inner
    optimizer steps them together with the parameters. The weights of the parameters' loss are scaled so that they sum
    to K.

    Args:
      inner: Optimizer that steps. None: `adam()`.
    Source: Kendall et al. 2018 (arXiv 1705.07115).
    """
    inner = as_inner_optimizer("uncertainty", inner)
    if extra_inputs := getattr(inner, "extra_inputs", ()):
        raise ConfigError(f"uncertainty.inner requests {extra_inputs[0]!r}, which the log variances have none of")

    def init(params: PyTree, num_losses: int) -> WeighterState:
        variances = jnp.zeros(require_several("uncertainty", num_losses), jnp.float32)
        return WeighterState(_weights_of_variances(variances), variances, inner.init((params, variances)))

    def update(
        grads: PyTree,
        state: WeighterState,
        params: PyTree,
        *,
        task_losses: jax.Array,
        weighted_gradient: Callable[[jax.Array], PyTree],
        key: jax.Array,
    ) -> tuple[PyTree, WeighterState]:
        variances = state.memory
        mean_weights = state.weights / len(task_losses)
        joint_grads = weighted_gradient(mean_weights), (1 - jnp.exp(-variances) * task_losses) / 2
        value = jnp.sum(mean_weights * task_losses)
        (updates, variance_updates), inner_state = call_with_accepted(
            inner.update, joint_grads, state.inner, (params, variances), value=value, key=key
        )
        variances = variances + variance_updates
        return updates, WeighterState(_weights_of_variances(variances), variances, inner_state)

    def eval_params(state: WeighterState, params: PyTree) -> PyTree:
        inner_eval_params = getattr(inner, "eval_params", None)
        return params if inner_eval_params is None else inner_eval_params(state.inner, (params, state.memory))[0]

    return with_extra_inputs(
        init,
        update,
        ("task_losses",),
        name="uncertainty",
        inner=inner,
        eval_params=eval_params,
        metrics=weight_metrics,
    )


def _weights_of_variances(variances: jax.Array) -> jax.Array:
    """Returns exp(-s_i), scaled so that they sum to K."""
    return len(variances) * jax.nn.softmax(-variances)
