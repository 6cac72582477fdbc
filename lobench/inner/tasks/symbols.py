"""Models of symbol sequences: networks, and a base of tasks with the cross entropy of the next symbol.

Tasks differ in the source of the windows: a grammar, the text of a library, a hidden Markov source.
"""

from __future__ import annotations

import abc
import math

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.measured import LossStateAux, MeasuredTask, ReferencedTask
from lobench.inner.tasks.networks import Params, dense_init
from lobench.inner.tasks.objectives import accuracy, softmax_cross_entropy
from lobench.inner.tasks.recurrent import CELLS, recurrent_init, recurrent_outputs
from lobench.inner.tasks.transformer import transformer_blocks, transformer_init

__all__ = ["NETWORKS", "SymbolNetwork", "SymbolTask", "network_of"]

NETWORKS = (*CELLS, "transformer")


class SymbolNetwork(abc.ABC):
    """Network that predicts the symbol after each position of a sequence.

    Args:
      vocab_size: Number of symbols.
      width: Width of the state, or of the stream.
    """

    def __init__(self, vocab_size: int, width: int) -> None:
        self.vocab_size = vocab_size
        self._width = width

    @abc.abstractmethod
    def init(self, key: jax.Array) -> Params:
        """Returns initial parameters."""

    @abc.abstractmethod
    def logits(self, params: Params, symbols: jax.Array) -> jax.Array:
        """Returns logits float32[batch, length, vocab] of the symbol after each, for symbols int32[batch, length]."""


class Recurrent(SymbolNetwork):
    """A GRU or an LSTM over one-hot symbols, with the parameters of `recurrent_init`."""

    def __init__(self, cell: str, vocab_size: int, width: int) -> None:
        super().__init__(vocab_size, width)
        self._cell = cell

    def init(self, key: jax.Array) -> Params:
        # One-hot inputs have a fan-in of 1; the gain is reduced to the scale of the recurrent weights.
        gain = self.vocab_size / 4
        return recurrent_init(key, self.vocab_size, self._width, self.vocab_size, cell=self._cell, input_gain=gain)

    def logits(self, params: Params, symbols: jax.Array) -> jax.Array:
        one_hot = jax.nn.one_hot(symbols.T, self.vocab_size, dtype=jnp.float32)
        outputs = recurrent_outputs(params, one_hot, cell=self._cell)
        return jnp.swapaxes(outputs @ params["w_out"] + params["b_out"], 0, 1)


class Transformer(SymbolNetwork):
    """A causal transformer: `embed` [vocab, width], `position` [length, width], the blocks, `w_out` [width, vocab]."""

    def __init__(self, vocab_size: int, length: int, width: int, num_layers: int, num_heads: int) -> None:
        super().__init__(vocab_size, width)
        self._length = length
        self._num_layers, self._num_heads = num_layers, num_heads

    def init(self, key: jax.Array) -> Params:
        embed_key, position_key, block_key, out_key = jax.random.split(key, 4)
        return {
            # Each has variance 1/2, so that their sum, the stream, has variance 1.
            "embed": dense_init(embed_key, self.vocab_size, self._width, gain=self.vocab_size / 2),
            "position": dense_init(position_key, self._length, self._width, gain=self._length / 2),
            **transformer_init(block_key, self._width, self._num_layers),
            "w_out": dense_init(out_key, self._width, self.vocab_size),
        }

    def logits(self, params: Params, symbols: jax.Array) -> jax.Array:
        # A product with a one-hot, not a gather: the gradient of a gather is a scatter, which is slow on a CPU.
        one_hot = jax.nn.one_hot(symbols, self.vocab_size, dtype=jnp.float32)
        stream = one_hot @ params["embed"] + params["position"][: symbols.shape[1]]
        stream = transformer_blocks(params, stream, num_layers=self._num_layers, num_heads=self._num_heads, causal=True)
        return stream @ params["w_out"]


def network_of(
    task: object, network: str, vocab_size: int, length: int, width: int, num_layers: int, num_heads: int
) -> SymbolNetwork:
    """Returns the network for a task's arguments.

    Args:
      task: Task, or its name, for error messages.
      network: One of NETWORKS.
      vocab_size: Number of symbols.
      length: Number of predictions of a window.
      width, num_layers, num_heads: Sizes; a recurrent network has a width only.
    Raises:
      ConfigError: An argument has an invalid value.
    """
    arguments.choice(task, "network", network, NETWORKS)
    arguments.integer(task, "width", width)
    if network in CELLS:
        return Recurrent(network, vocab_size, width)
    arguments.integer(task, "num_layers", num_layers)
    if width % arguments.integer(task, "num_heads", num_heads):
        argument = arguments.setting(task, "num_heads")
        raise ConfigError(argument, got=repr(num_heads), expected=f"a divisor of width, {width}")
    return Transformer(vocab_size, length, width, num_layers, num_heads)


class SymbolTask(ReferencedTask, MeasuredTask):
    """Base of symbol prediction tasks: mean cross entropy of the next symbol in nats, and `accuracy`.

    A batch is windows int[batch, length + 1], or a dictionary with the windows as `symbols` and with `weight`
    [batch, length], the weights of the predictions.

    Attributes:
      datasets: Windows by split.
      network: Network that predicts the symbols.
    """

    datasets: Datasets
    network: SymbolNetwork

    @property
    def reference_loss(self) -> float:  # type: ignore[override]
        return math.log(self.network.vocab_size)

    def init(self, key: jax.Array) -> Params:
        return self.network.init(key)

    def logits(self, params: Params, symbols: jax.Array) -> jax.Array:
        """Returns logits float32[batch, length, vocab] of the symbol after each, for symbols int32[batch, length]."""
        return self.network.logits(params, symbols)

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        symbols, weight = (data["symbols"], data.get("weight")) if isinstance(data, dict) else (data, None)
        symbols = symbols.astype(jnp.int32)
        logits = self.logits(params, symbols[:, :-1])
        targets = symbols[:, 1:]
        if weight is None:
            return softmax_cross_entropy(logits, targets), state, {"accuracy": accuracy(logits, targets)}
        weight = weight.astype(jnp.float32) / jnp.maximum(jnp.sum(weight, dtype=jnp.float32), 1.0)
        one_hot = jax.nn.one_hot(targets, self.network.vocab_size, dtype=jnp.float32)
        loss = -jnp.sum(weight * jnp.sum(one_hot * jax.nn.log_softmax(logits), axis=-1))
        hits = (jnp.argmax(logits, axis=-1) == targets).astype(jnp.float32)
        return loss, state, {"accuracy": jnp.sum(weight * hits)}
