"""Celo: a per-parameter MLP, with learning rates per tensor from an LSTM on loss and progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, OptimizerState, PyTree, Theta
from lobench.inner.optimizers.factored import Accumulators, TensorValues
from lobench.inner.optimizers.features import feature_layout, network_outputs, weighted_sum
from lobench.inner.optimizers.tensor_lstm import (
    initial_lstm_states,
    linear,
    loss_features,
    mixed_lstm,
    new_loss_buffer,
    progress_features,
    zero_lstm_theta,
)

__all__ = [
    "BLOCK_CHANNELS",
    "FACTORED_ROWS",
    "Celo",
    "block_accumulators",
    "block_features",
    "initial_schedule_state",
    "require_horizon",
    "schedule_step",
]

_DECAYS = np.asarray([0.9, 0.99, 0.999], np.float32)
_RMS = np.asarray([0.999], np.float32)
BLOCK_CHANNELS = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)  # channels of each block of features
FACTORED_ROWS = slice(15, 27)  # rows of the first layer for the factored moments
_LSTM = 64
_INPUTS = 18


@configurable
class Celo(LearnedOptimizer):
    """Celo: per-parameter MLP optimizer with learning rates per tensor from an LSTM.

    Source: Moudgil et al. 2025 (arXiv 2501.12670).
    """

    def init(self, key: jax.Array) -> Theta:
        """Returns scaled normal weights and zero biases, in the structure of the published checkpoint."""
        keys = iter(jax.random.split(key, 32))

        def weights(*shape: int) -> jax.Array:
            return jax.random.normal(next(keys), shape) / np.sqrt(shape[-2])

        def linear(inputs: int, outputs: int) -> dict[str, jax.Array]:
            return {"w": weights(inputs, outputs), "b": jnp.zeros(outputs)}

        network = {f"w0__{index}": weights(1, channels, 4) for index, channels in enumerate(BLOCK_CHANNELS)}
        network |= {"w1": weights(1, 4, 4), "w2": weights(1, 4, 3)}
        network |= {"b0": jnp.zeros((1, 4)), "b1": jnp.zeros((1, 4)), "b2": jnp.zeros((1, 3))}
        recurrent = {name: linear(_INPUTS, _LSTM) for name in ("linear", "linear_1", "linear_2")}
        recurrent["rnn/linear"] = linear(2 * _LSTM, 4 * _LSTM)
        recurrent |= {name: linear(_LSTM, 1) for name in ("rnn_to_controls", "step_size")}
        return {
            "ff_mod_stack": {"~": network},
            "lstm_init_state": zero_lstm_theta(_LSTM),
            "rnn_params": recurrent,
        }

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        horizon = require_horizon(self, num_steps)
        accumulators = block_accumulators()
        network = theta["ff_mod_stack"]["~"]
        weights = jnp.concatenate([network[f"w0__{index}"][0] for index in range(len(BLOCK_CHANNELS))])
        full_shape_weights = jnp.concatenate([weights[: FACTORED_ROWS.start], weights[FACTORED_ROWS.stop :]])
        layers = [(network["w1"][0], network["b1"][0]), (network["w2"][0, :, :2], network["b2"][0, :2])]

        def init(params: PyTree) -> OptimizerState:
            num_tensors = len(jax.tree.leaves(params))
            return {**initial_schedule_state(theta, num_tensors, horizon), **accumulators.init(params)}

        def update(
            grads: PyTree, state: OptimizerState, params: PyTree = None, *, value: jax.Array, **extra: Any
        ) -> tuple[PyTree, OptimizerState]:
            schedule, rates = schedule_step(theta, state, value, horizon)
            leaves = [jnp.clip(feature_layout(leaf), -1000.0, 1000.0) for leaf in jax.tree.leaves(grads)]

            def step(index: int, tensor: TensorValues) -> jax.Array:
                first_layer = weighted_sum(block_features(tensor), full_shape_weights, tensor.factor_sums)
                direction, magnitude = network_outputs(first_layer, network["b0"][0], *layers)
                scale = jnp.sqrt(jnp.mean(tensor.param * tensor.param) + 1e-9)
                return -(direction * scale * jnp.exp(0.001 * magnitude) * 0.001 * rates[index])

            updates, new_accumulators = accumulators.update(state, leaves, params, weights[FACTORED_ROWS], step)
            return updates, {**schedule, **new_accumulators}

        return optax.GradientTransformationExtraArgs(init, update)


def require_horizon(optimizer: LearnedOptimizer, num_steps: int | None) -> int:
    """Returns the length of the training.

    Raises:
      ConfigError: The length is unknown.
    """
    if num_steps is None:
        name = type(optimizer).__name__
        raise ConfigError(f"{name} schedules by the length of training", got="None", expected="num_steps >= 1")
    return num_steps


def initial_schedule_state(theta: Theta, num_tensors: int, horizon: int) -> OptimizerState:
    """Returns the state of the scheduler before the first update."""
    lstm_states = initial_lstm_states(theta["lstm_init_state"], num_tensors)
    return {"step": jnp.int32(0), "losses": new_loss_buffer(horizon), "rows": lstm_states}


def schedule_step(
    theta: Theta, state: OptimizerState, loss: jax.Array, horizon: int
) -> tuple[OptimizerState, jax.Array]:
    """Returns the state of the scheduler after an update, and the learning rates, float32[num_tensors]."""
    losses, loss_inputs = loss_features(state["losses"], state["step"], loss)
    progress = progress_features(state["step"], horizon)
    inputs_of_lstm = jnp.tile(jnp.concatenate([progress, loss_inputs])[None], (state["rows"][0].shape[0], 1))
    h, c = mixed_lstm(theta["rnn_params"], inputs_of_lstm, state["rows"])
    rates = 0.1 * jnp.exp(linear(theta["rnn_params"]["step_size"], h)[:, 0])
    return {"step": state["step"] + 1, "losses": losses, "rows": (h, c)}, rates


def block_accumulators(layout: Callable[[jax.Array], jax.Array] = feature_layout) -> Accumulators:
    """Returns the accumulators of `block_features`."""
    decays = jnp.asarray(_DECAYS)
    return Accumulators(decays, jnp.asarray(_RMS), decays, layout)


def block_features(tensor: TensorValues) -> list[jax.Array]:
    """Returns the features of one tensor for the per-parameter network, each float32[count, ...] over the tensor."""
    grad, param, momenta, second_moments, factor_scales, unfactored, _ = tensor
    inverse_roots = jax.lax.rsqrt(second_moments + 1e-6)
    return [
        grad[None],
        jnp.clip(grad, -0.1, 0.1)[None],
        param[None],
        momenta,
        second_moments,
        momenta * inverse_roots,
        inverse_roots,
        grad[None] * factor_scales[0] * factor_scales[1],
        grad[None] * inverse_roots,
        momenta * factor_scales[0] * factor_scales[1] if unfactored is None else momenta * jax.lax.rsqrt(unfactored),
    ]
