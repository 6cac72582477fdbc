"""Next-byte prediction with a small recurrent net on text from a generated grammar."""

from __future__ import annotations

import functools
import math
from typing import TypeAlias

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import ArrayDataset, Batch, Datasets, Task
from lobench.inner.tasks import arguments
from lobench.inner.tasks.grammar import GRAMMARS, alphabet, examples
from lobench.inner.tasks.networks import Params, dense_init
from lobench.inner.tasks.objectives import accuracy, relative_loss, softmax_cross_entropy

__all__ = ["ByteRNN"]

Cell: TypeAlias = tuple[jax.Array, ...]  # float32[batch, width] each; the first is the output

_NUM_GATES = {"gru": 3, "lstm": 4}
# Seed and number of windows by split: every split is another text of the same grammar.
_TEXTS = {"train": (1, 2048), "inner_valid": (2, 256), "outer_valid": (3, 256), "test": (4, 256)}


@configurable
class ByteRNN(Task):
    """A recurrent net that predicts each next byte; mean cross entropy in nats per byte, and `accuracy`.

    Batches are windows of `sequence_length + 1` symbols, int32. The vocabulary is the grammar's alphabet.

    Args:
      grammar: "arithmetic" (`(3+4)*2=4;`), "brackets" (balanced, three kinds) or "words" (simple sentences).
      cell: "gru" or "lstm".
      width: Length of the hidden state.
      sequence_length: Predictions per window; the state starts at zero in each.
      batch_size: Of training and evaluation.
    """

    datasets: Datasets

    def __init__(
        self,
        *,
        grammar: str = "arithmetic",
        cell: str = "gru",
        width: int = 32,
        sequence_length: int = 24,
        batch_size: int = 16,
    ) -> None:
        name = type(self).__name__
        arguments.choice(name, "grammar", grammar, GRAMMARS)
        arguments.choice(name, "cell", cell, _NUM_GATES)
        self._width = arguments.integer(name, "width", width)
        self._vocab_size = len(alphabet(grammar))
        self._cell = cell
        arguments.integer(name, "sequence_length", sequence_length)
        self.datasets = _datasets(grammar, sequence_length + 1, arguments.integer(name, "batch_size", batch_size))

    def init(self, key: jax.Array) -> Params:
        """Returns `w_in` [vocab, gates x width], `w_state` [width, gates x width], `b`, `w_out`, `b_out`."""
        in_key, state_key, out_key = jax.random.split(key, 3)
        gates = _NUM_GATES[self._cell] * self._width
        return {
            # One symbol is on at a time: its fan-in is 1, tamed to the scale of the recurrent weights.
            "w_in": dense_init(in_key, self._vocab_size, gates, gain=self._vocab_size / 4),
            "w_state": dense_init(state_key, self._width, gates),
            "b": jnp.zeros(gates, jnp.float32),
            "w_out": dense_init(out_key, self._width, self._vocab_size),
            "b_out": jnp.zeros(self._vocab_size, jnp.float32),
        }

    def loss_with_state(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, PyTree]:
        loss, state, _ = self.loss_with_state_and_aux(params, state, key, data)
        return loss, state

    def loss_with_state_and_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, PyTree, dict[str, jax.Array]]:
        logits = self.logits(params, data[:, :-1])
        targets = data[:, 1:]
        return softmax_cross_entropy(logits, targets), state, {"accuracy": accuracy(logits, targets)}

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss as a share of a uniform guess's: 1 is untrained, 2 the worst."""
        return relative_loss(loss, math.log(self._vocab_size))

    def logits(self, params: Params, symbols: jax.Array) -> jax.Array:
        """Returns logits float32[batch, length, vocab] of the symbol after each, for symbols int32[batch, length]."""
        one_hot = jax.nn.one_hot(symbols.T, self._vocab_size, dtype=jnp.float32)
        inputs = one_hot @ params["w_in"] + params["b"]  # float32[length, batch, gates x width]
        update = _gru if self._cell == "gru" else _lstm

        def step(cell: Cell, inputs: jax.Array) -> tuple[Cell, jax.Array]:
            cell = update(cell, inputs, params["w_state"])
            return cell, cell[0]

        zero = jnp.zeros((symbols.shape[0], self._width), jnp.float32)
        initial: Cell = (zero,) if self._cell == "gru" else (zero, zero)
        _, outputs = jax.lax.scan(step, initial, inputs)  # float32[length, batch, width]
        return jnp.swapaxes(outputs @ params["w_out"] + params["b_out"], 0, 1)


def _gru(cell: Cell, inputs: jax.Array, w_state: jax.Array) -> Cell:
    """One step of a gated recurrent unit, the reset gate after the product. Source: Cho et al. 2014."""
    (hidden,) = cell
    from_input = jnp.split(inputs, 3, axis=-1)
    from_state = jnp.split(hidden @ w_state, 3, axis=-1)
    reset = jax.nn.sigmoid(from_input[0] + from_state[0])
    keep = jax.nn.sigmoid(from_input[1] + from_state[1])
    candidate = jnp.tanh(from_input[2] + reset * from_state[2])
    return (keep * hidden + (1.0 - keep) * candidate,)


def _lstm(cell: Cell, inputs: jax.Array, w_state: jax.Array) -> Cell:
    """One step of a long short-term memory, forget gate biased by 1. Source: Jozefowicz et al. 2015."""
    hidden, memory = cell
    enter, forget, candidate, leave = jnp.split(inputs + hidden @ w_state, 4, axis=-1)
    memory = jax.nn.sigmoid(forget + 1.0) * memory + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
    return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory


@functools.cache
def _datasets(grammar: str, length: int, batch_size: int) -> Datasets:
    splits = {
        split: ArrayDataset(examples(grammar, num_examples, length, seed), batch_size)
        for split, (seed, num_examples) in _TEXTS.items()
    }
    return Datasets(**splits)
