"""Coordinate-wise two-layer LSTM of L2O-DM and RNNProp."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["LSTMState", "init_lstm", "initial_columns", "initial_state", "two_layers", "two_layers_of_columns"]

LSTMState: TypeAlias = tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
HIDDEN = 20


def init_lstm(key: jax.Array, num_inputs: int) -> dict[str, dict[str, jax.Array]]:
    """Returns scaled normal weights of two layers of 20 units and a linear read-out, with zero biases."""
    keys = jax.random.split(key, 3)

    def layer(layer_key: jax.Array, inputs: int) -> dict[str, jax.Array]:
        weights = jax.random.normal(layer_key, (inputs + HIDDEN, 4 * HIDDEN)) / np.sqrt(inputs + HIDDEN)
        return {"w_gates": weights, "b_gates": jnp.zeros(4 * HIDDEN)}

    return {
        "lstm_1": layer(keys[0], num_inputs),
        "lstm_2": layer(keys[1], HIDDEN),
        "linear": {"w": jax.random.normal(keys[2], (HIDDEN, 1)) / np.sqrt(HIDDEN), "b": jnp.zeros(1)},
    }


def initial_state(size: int) -> LSTMState:
    """Returns ((h, c), (h, c)) of zeros, each float32[size, 20]."""
    zero = jnp.zeros((size, HIDDEN))
    return (zero, zero), (zero, zero)


def _lstm_step(
    theta: dict[str, jax.Array], inputs: Sequence[jax.Array] | jax.Array, state: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    h, c = state
    weights = theta["w_gates"]
    if isinstance(inputs, jax.Array):
        gates = inputs @ weights[:-HIDDEN]
    else:  # a few vectors, each multiplied by one row of weights, which XLA fuses with the next operation
        gates = functools.reduce(operator.add, (x[:, None] * weights[row] for row, x in enumerate(inputs)))
    gates = gates + h @ weights[-HIDDEN:] + theta["b_gates"]
    i, j, f, o = jnp.split(gates, 4, axis=1)
    c = c * jax.nn.sigmoid(f + 1) + jax.nn.sigmoid(i) * jnp.tanh(j)
    return jnp.tanh(c) * jax.nn.sigmoid(o), c


def two_layers(
    theta: dict[str, dict[str, jax.Array]], inputs: Sequence[jax.Array] | jax.Array, state: LSTMState
) -> tuple[jax.Array, LSTMState]:
    """Returns the output, float32[size], and the new state.

    Products with inputs and with h are separate sums, and inputs given as columns are multiplied one by one. Nothing is
    concatenated. This is the order of summation that XLA chooses if the weights are constants of the program.

    Args:
      theta: Weights in the structure of `init_lstm`.
      inputs: float32[size, num_inputs], or its columns if they are few.
      state: State of the previous step.
    Source: Andrychowicz et al. 2016 (arXiv 1606.04474), with gates in the order i, j, f, o.
    """
    first_state = _lstm_step(theta["lstm_1"], inputs, state[0])
    second_state = _lstm_step(theta["lstm_2"], first_state[0], state[1])
    output = second_state[0] @ theta["linear"]["w"] + theta["linear"]["b"]
    return output[:, 0], (first_state, second_state)


def initial_columns(size: int) -> LSTMState:
    """Returns ((h, c), (h, c)) of zeros, each float32[20, size]."""
    return jax.tree.map(jnp.transpose, initial_state(size))


def two_layers_of_columns(
    theta: dict[str, dict[str, jax.Array]], inputs: Sequence[jax.Array], state: LSTMState
) -> tuple[jax.Array, LSTMState]:
    """Computes `two_layers` with coordinates last. Gates are then whole rows, whose loops use vector instructions.

    A layer is one product, in which the bias has an input of ones. Sigmoids are computed by tanh, for which XLA needs
    no exponential.
    """
    first_state = _lstm_step_of_columns(theta["lstm_1"], jnp.stack(list(inputs)), state[0])
    second_state = _lstm_step_of_columns(theta["lstm_2"], first_state[0], state[1])
    output = theta["linear"]["w"].T @ second_state[0] + theta["linear"]["b"]
    return output[0], (first_state, second_state)


def _lstm_step_of_columns(
    theta: dict[str, jax.Array], inputs: jax.Array, state: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    h, c = state
    weights = jnp.concatenate([theta["w_gates"], theta["b_gates"][None]]).T
    gates = weights @ jnp.concatenate([inputs, h, jnp.ones_like(h[:1])])
    i, j, f, o = jnp.split(gates, 4)
    c = c * _sigmoid(f + 1) + _sigmoid(i) * jnp.tanh(j)
    return jnp.tanh(c) * _sigmoid(o), c


def _sigmoid(x: jax.Array) -> jax.Array:
    return 0.5 * jnp.tanh(0.5 * x) + 0.5
