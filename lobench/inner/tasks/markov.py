"""Symbols of a hidden Markov source. Bayes' rule gives the lowest possible loss."""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch
from lobench.inner.tasks import arguments
from lobench.inner.tasks.measured import LossStateAux
from lobench.inner.tasks.splits import row_datasets
from lobench.inner.tasks.symbols import SymbolTask, network_of

__all__ = ["HiddenMarkov", "Source"]

_SIZES = {"train": 16384, "inner_valid": 1024, "outer_valid": 1024, "test": 1024}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """A hidden Markov source: a state emits a symbol, then moves on.

    Attributes:
      transitions: float64[num_states, num_states], rows sum to 1.
      emissions: float64[num_states, num_symbols], rows sum to 1.
    """

    transitions: np.ndarray
    emissions: np.ndarray

    @property
    def stationary(self) -> np.ndarray:
        """Returns the stationary distribution of the states, float64[num_states]."""
        size = len(self.transitions)
        equations = np.concatenate([self.transitions.T - np.eye(size), np.ones((1, size))])
        return np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0]

    def windows(self, rng: np.random.Generator, num_windows: int, length: int) -> np.ndarray:
        """Returns windows that begin in the stationary distribution, uint8[num_windows, length]."""
        state = _draw(rng, np.broadcast_to(self.stationary, (num_windows, len(self.transitions))))
        symbols = np.empty((num_windows, length), np.uint8)
        for position in range(length):
            symbols[:, position] = _draw(rng, self.emissions[state])
            state = _draw(rng, self.transitions[state])
        return symbols

    def bayes_loss(self, windows: np.ndarray) -> np.ndarray:
        """Returns the mean of -log p(symbol | earlier ones in the window) over all but the first, float64[num_windows].

        It is the lowest possible expected loss. Source: the forward algorithm, Rabiner 1989, section III.
        """
        state_probabilities = np.broadcast_to(self.stationary, (len(windows), len(self.transitions)))
        losses = []
        for symbols in windows.T:
            joint = state_probabilities * self.emissions[:, symbols].T
            likelihood = joint.sum(axis=1, keepdims=True)
            losses.append(-np.log(likelihood[:, 0]))
            state_probabilities = joint / likelihood @ self.transitions
        return np.mean(losses[1:], axis=0)


def _draw(rng: np.random.Generator, probabilities: np.ndarray) -> np.ndarray:
    """Returns a random index per row, from uniform numbers and cumulated probabilities."""
    thresholds = np.cumsum(probabilities, axis=1)[:, :-1]
    return (rng.random((len(probabilities), 1)) > thresholds).sum(axis=1)


@configurable
class HiddenMarkov(SymbolTask):
    """Prediction of symbols of a hidden Markov model; mean cross entropy in nats, `accuracy` and `regret`.

    The source is drawn with `problem_seed`: logits of emissions and transitions are normal, and a state is likely to
    stay. `regret` is the loss minus that of the Bayes-optimal prediction on the same windows, so its floor is zero.
    Batches have `symbols` uint8[batch, sequence_length + 1] and `bayes` float32[batch], the loss of the Bayes-optimal
    prediction.

    Args:
      num_states, num_symbols: Number of states and symbols of the source.
      network: "gru", "lstm" or "transformer".
      width: Width of the network's state, or of the transformer's stream.
      num_layers, num_heads: Number of layers and heads of a transformer.
      sequence_length: Predictions per window.
      batch_size: Examples per batch, in training and evaluation.
      problem_seed: Seed of the source and its windows.
    Attributes:
      best_loss: Loss of the Bayes-optimal prediction on all 19,456 windows: the loss's floor, with a sampling error of
        about 0.1%. The source's entropy rate is slightly lower, since a window does not include earlier symbols.
    """

    metric_directions = types.MappingProxyType({"regret": "min"})

    def __init__(
        self,
        *,
        num_states: int = 6,
        num_symbols: int = 12,
        network: str = "gru",
        width: int = 32,
        num_layers: int = 2,
        num_heads: int = 4,
        sequence_length: int = 32,
        batch_size: int = 32,
        problem_seed: int = 0,
    ) -> None:
        arguments.integer(self, "num_states", num_states)
        arguments.integer(self, "num_symbols", num_symbols, at_least=2, at_most=256)
        arguments.integer(self, "sequence_length", sequence_length)
        arguments.integer(self, "problem_seed", problem_seed, at_least=0)
        self.network = network_of(self, network, num_symbols, sequence_length, width, num_layers, num_heads)
        windows = _windows(num_states, num_symbols, sequence_length + 1, problem_seed)
        self.best_loss = float(np.mean(windows["bayes"], dtype=np.float64))
        self.datasets = row_datasets(windows, _SIZES, arguments.integer(self, "batch_size", batch_size))

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        loss, state, metrics = super().loss_with_state_and_aux(params, state, key, data)
        return loss, state, metrics | {"regret": loss - jnp.mean(data["bayes"])}


def source_of(num_states: int, num_symbols: int, rng: np.random.Generator) -> Source:
    """Returns a source whose states can be inferred from several symbols, but not from a single one."""
    emissions = np.exp(2.0 * rng.standard_normal((num_states, num_symbols)))
    transitions = np.exp(1.5 * rng.standard_normal((num_states, num_states)) + 3.0 * np.eye(num_states))
    return Source(
        transitions=transitions / transitions.sum(axis=1, keepdims=True),
        emissions=emissions / emissions.sum(axis=1, keepdims=True),
    )


@functools.cache
def _windows(num_states: int, num_symbols: int, length: int, problem_seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(problem_seed)
    source = source_of(num_states, num_symbols, rng)
    symbols = source.windows(rng, sum(_SIZES.values()), length)
    return {"symbols": symbols, "bayes": source.bayes_loss(symbols).astype(np.float32)}
