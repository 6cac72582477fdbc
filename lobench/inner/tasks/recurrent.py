"""Recurrent networks as functions on dicts of parameters: a GRU or an LSTM with a linear layer on its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

from lobench.inner.tasks.networks import Params, dense_init

__all__ = ["CELLS", "cell_init", "cell_update", "recurrent_init", "recurrent_outputs", "zero_cell"]

CellState: TypeAlias = tuple[jax.Array, ...]  # float32[batch, width] each; the first is the output

_NUM_GATES = {"gru": 3, "lstm": 4}
CELLS = tuple(_NUM_GATES)


def recurrent_init(
    key: jax.Array, num_inputs: int, width: int, num_outputs: int, *, cell: str, input_gain: float = 1.0
) -> Params:
    """Returns `w_in` [inputs, gates x width], `w_state` [width, gates x width], `b`, `w_out` [width, outputs], `b_out`.

    Args:
      cell: "gru" or "lstm".
      input_gain: Factor on the variance 1 / num_inputs of `w_in`.
    """
    in_key, state_key, out_key = jax.random.split(key, 3)
    return {
        **cell_init((in_key, state_key), num_inputs, width, cell=cell, input_gain=input_gain),
        "w_out": dense_init(out_key, width, num_outputs),
        "b_out": jnp.zeros(num_outputs, jnp.float32),
    }


def cell_init(
    keys: tuple[jax.Array, jax.Array], num_inputs: int, width: int, *, cell: str, input_gain: float = 1.0
) -> Params:
    """Returns the parameters `w_in`, `w_state` and `b` of `recurrent_init`, from one key for each of the first two."""
    in_key, state_key = keys
    gates = _NUM_GATES[cell] * width
    return {
        "w_in": dense_init(in_key, num_inputs, gates, gain=input_gain),
        "w_state": dense_init(state_key, width, gates),
        "b": jnp.zeros(gates, jnp.float32),
    }


def cell_update(cell: str) -> Callable[[CellState, jax.Array, jax.Array], CellState]:
    """Returns the function (cell, inputs times `w_in` plus `b`, `w_state`) -> next cell."""
    return _gru if cell == "gru" else _lstm


def zero_cell(batch: int, width: int, *, cell: str) -> CellState:
    """Returns the initial cell."""
    zero = jnp.zeros((batch, width), jnp.float32)
    return (zero,) if cell == "gru" else (zero, zero)


def recurrent_outputs(params: Params, inputs: jax.Array, *, cell: str) -> jax.Array:
    """Returns the cell's output after each input, float32[length, batch, width], from a state of zeros.

    Args:
      params: Parameters from `recurrent_init`.
      inputs: float32[length, batch, inputs], with time first, as a scan reads it.
    """
    inputs = inputs @ params["w_in"] + params["b"]  # float32[length, batch, gates x width]
    update = cell_update(cell)

    def step(cell: CellState, inputs: jax.Array) -> tuple[CellState, jax.Array]:
        cell = update(cell, inputs, params["w_state"])
        return cell, cell[0]

    initial = zero_cell(inputs.shape[1], params["w_state"].shape[0], cell=cell)
    _, outputs = jax.lax.scan(step, initial, inputs)
    return outputs


def _gru(cell: CellState, inputs: jax.Array, w_state: jax.Array) -> CellState:
    """One step of a gated recurrent unit, the reset gate after the product. Source: Cho et al. 2014."""
    (hidden,) = cell
    from_input = jnp.split(inputs, 3, axis=-1)
    from_state = jnp.split(hidden @ w_state, 3, axis=-1)
    reset = jax.nn.sigmoid(from_input[0] + from_state[0])
    keep = jax.nn.sigmoid(from_input[1] + from_state[1])
    candidate = jnp.tanh(from_input[2] + reset * from_state[2])
    return (keep * hidden + (1.0 - keep) * candidate,)


def _lstm(cell: CellState, inputs: jax.Array, w_state: jax.Array) -> CellState:
    """One step of a long short-term memory, forget gate biased by 1. Source: Jozefowicz et al. 2015."""
    hidden, memory = cell
    enter, forget, candidate, leave = jnp.split(inputs + hidden @ w_state, 4, axis=-1)
    memory = jax.nn.sigmoid(forget + 1.0) * memory + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
    return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory
