"""LSTM with a state per tensor of a network, and input features that several learned optimizers share.

Celo, HyperV2, NNAdam and RNNMLPLOpt use it. All tensors share its weights; they are the rows of its inputs, in the
order of the parameter tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "LossBuffer",
    "RowStates",
    "clipped_log",
    "initial_lstm_states",
    "linear",
    "loss_features",
    "lstm",
    "means_and_variances",
    "mixed_lstm",
    "new_linear",
    "new_loss_buffer",
    "progress_features",
    "zero_lstm_theta",
]

_PROGRESS = np.asarray([0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1], np.float32)
_NUM_LOSS_DECAYS = 10
_CACHE_ELEMENTS = 1 << 14  # numbers of a tensor for which the number of operations counts, not their traffic

Layer: TypeAlias = dict[str, jax.Array]
LossBuffer: TypeAlias = dict[str, jax.Array]  # float32[10] each
RowStates: TypeAlias = tuple[jax.Array, jax.Array]  # h and c, float32[num_tensors, hidden]


def new_linear(key: jax.Array, inputs: int, outputs: int) -> Layer:
    """Returns scaled normal weights and zero biases."""
    weights = jax.random.truncated_normal(key, -2, 2, (inputs, outputs)) / np.sqrt(inputs)
    return {"w": weights, "b": jnp.zeros(outputs)}


def linear(theta: Layer, x: jax.Array) -> jax.Array:
    return x @ theta["w"] + theta["b"]


def zero_lstm_theta(hidden: int) -> Layer:
    """Returns a zero `lstm_init_state` of theta, for an LSTM of that width."""
    return {"hidden": jnp.zeros((1, hidden)), "cell": jnp.zeros((1, hidden))}


def initial_lstm_states(theta: Layer, num_tensors: int) -> RowStates:
    """Returns the initial state of each tensor, from theta's `lstm_init_state`."""
    return jnp.tile(theta["hidden"], (num_tensors, 1)), jnp.tile(theta["cell"], (num_tensors, 1))


def lstm(theta: Layer, x: jax.Array, states: RowStates) -> RowStates:
    """Returns h and c after a step of haiku's LSTM, whose gates come in the order i, g, f, o."""
    h, c = states
    i, g, f, o = jnp.split(linear(theta, jnp.concatenate([x, h], axis=1)), 4, axis=1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def mixed_lstm(theta: dict[str, Layer], x: jax.Array, states: RowStates) -> RowStates:
    """Returns h and c of the tensors after a step.

    The inputs of each tensor include the maximum over all tensors of a layer on their inputs.
    """
    mixed_inputs = jnp.max(jax.nn.relu(linear(theta["linear_1"], x)), axis=0, keepdims=True)
    return lstm(theta["rnn/linear"], linear(theta["linear_2"], x) + mixed_inputs, states)


def new_loss_buffer(horizon: int) -> LossBuffer:
    """Returns the buffer of losses before the first update, for a training of `horizon` updates."""
    # Must equal the original to the last bit, because the features divide differences of nearly equal numbers. A
    # constant would be rounded differently by the compiler.
    length = jax.lax.optimization_barrier(jnp.float32(horizon))  # type: ignore[no-untyped-call]
    return {
        "decays": jnp.exp(-1.0 / jnp.logspace(1, jnp.log10(length), _NUM_LOSS_DECAYS)),
        "means": jnp.zeros(_NUM_LOSS_DECAYS),
        "minima": jnp.full(_NUM_LOSS_DECAYS, 999999999999.0),
    }


def loss_features(buffer: LossBuffer, step: jax.Array, loss: jax.Array) -> tuple[LossBuffer, jax.Array]:
    """Returns the buffer after a loss, and nine features of the decrease of the loss.

    Args:
      buffer: Buffer before the loss.
      step: Number of earlier updates.
      loss: float32[].
    """
    decays = buffer["decays"]
    correction = 1 - decays ** (step + 1).astype(jnp.float32)
    highest = jnp.max(buffer["means"] / correction)
    clipped = jnp.minimum(2 * jnp.abs(jnp.where(step == 0, loss, highest)), loss)
    means = decays * buffer["means"] + (1 - decays) * clipped
    corrected = means / correction
    minima = jnp.minimum(buffer["minima"], corrected)
    rise = (corrected[:-1] - minima[:-1]) / jnp.maximum(1e-8, corrected[1:] - minima[:-1])
    features = jnp.where(step + 1 <= 2, 0.0, jnp.clip(rise - 1, -1.0, 1.0))
    return {"decays": decays, "means": means, "minima": minima}, features


def progress_features(step: jax.Array, horizon: int) -> jax.Array:
    """Returns features of the completed fraction of a training, float32[9]; `step` is the number of earlier updates."""
    return jnp.tanh(10 * (step.astype(jnp.float32) / horizon - _PROGRESS))


def clipped_log(x: jax.Array) -> jax.Array:
    """Returns clip(log(1e-8 + |x|), -5, 5)."""
    return jnp.clip(jnp.log(1e-8 + jnp.abs(x)), -5, 5)


def means_and_variances(channels: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Returns mean and variance of each channel of a tensor, float32[total channels]; 0 for an empty tensor.

    Args:
      channels: Arrays float32[channels, size].
    """
    size = channels[0].shape[1]
    rows = [jnp.concatenate(channels)] if size <= _CACHE_ELEMENTS else channels
    means = [_mean(row) for row in rows]
    variances = [_mean(jnp.square(row - mean[:, None])) for row, mean in zip(rows, means, strict=True)]
    return jnp.concatenate(means), jnp.concatenate(variances)


def _mean(rows: jax.Array) -> jax.Array:
    return jnp.sum(rows, axis=1) / max(rows.shape[1], 1)
