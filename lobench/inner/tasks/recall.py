"""Algorithmic sequence tasks with a floor of zero: associative recall and modular addition."""

from __future__ import annotations

import functools

import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.tasks import arguments
from lobench.inner.tasks.splits import row_datasets
from lobench.inner.tasks.symbols import SymbolTask, network_of

__all__ = ["AssociativeRecall", "ModularAddition"]

_SIZES = {"train": 16384, "inner_valid": 1024, "outer_valid": 1024, "test": 1024}


@configurable
class AssociativeRecall(SymbolTask):
    """Recall of values by their keys in a sequence of key-value pairs.

    Each window has a new random mapping of keys to values, so values can only be predicted from earlier pairs of the
    window. Loss, in nats, and `accuracy` are over keys that occurred before: the floor is 0, a uniform guess of a value
    has log(num_values). Adam with a transformer stays at a guess among the values seen, 0.87, then falls below 0.1,
    after 100 to 400 steps. Batches have `symbols` uint8[batch, 2 num_pairs], keys first in the alphabet, and `weight`
    bool. Source: Arora et al. 2023 (arXiv 2312.04927), with keys drawn with repetition.

    Args:
      num_pairs: Number of pairs in a window.
      num_keys, num_values: Number of keys and values in the alphabet, together at most 256.
      network: "gru", "lstm" or "transformer".
      width, num_layers, num_heads, batch_size: As in HiddenMarkov.
    """

    def __init__(
        self,
        *,
        num_pairs: int = 16,
        num_keys: int = 4,
        num_values: int = 4,
        network: str = "transformer",
        width: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        batch_size: int = 32,
    ) -> None:
        arguments.integer(self, "num_pairs", num_pairs, at_least=2)
        arguments.integer(self, "num_keys", num_keys, at_most=255)
        arguments.integer(self, "num_values", num_values, at_most=256 - num_keys)
        self.network = network_of(self, network, num_keys + num_values, 2 * num_pairs - 1, width, num_layers, num_heads)
        windows = _recall_windows(num_pairs, num_keys, num_values)
        self.datasets = row_datasets(windows, _SIZES, arguments.integer(self, "batch_size", batch_size))


@functools.cache
def _recall_windows(num_pairs: int, num_keys: int, num_values: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    num_windows = sum(_SIZES.values())
    keys = rng.integers(num_keys, size=(num_windows, num_pairs))
    values = np.take_along_axis(rng.integers(num_values, size=(num_windows, num_keys)), keys, axis=1)
    symbols = np.stack([keys, num_keys + values], axis=2).reshape(num_windows, 2 * num_pairs).astype(np.uint8)
    is_repeated = (keys[:, :, None] == keys[:, None, :]) & np.tri(num_pairs, k=-1, dtype=bool)
    prediction_weights = np.zeros((num_windows, 2 * num_pairs - 1), bool)
    prediction_weights[:, ::2] = is_repeated.any(axis=2)
    return {"symbols": symbols, "weight": prediction_weights}


@configurable
class ModularAddition(SymbolTask):
    """Modular addition: predicts c of `a b = c` with c = a + b modulo `modulus`; loss in nats, and `accuracy`.

    Every pair (a, b) is in one split: six tenths in train, the rest evenly in the others. The floor is 0; a uniform
    guess has log(modulus). Held-out accuracy rises long after the training pairs are memorized (Power et al. 2022,
    arXiv 2201.02177, "grokking"). Batches have `symbols` uint8[batch, 4] and `weight` bool.

    Args:
      modulus: Modulus, at most 255.
      network: "gru", "lstm" or "transformer".
      width, num_layers, num_heads, batch_size: As in HiddenMarkov.
    """

    def __init__(
        self,
        *,
        modulus: int = 31,
        network: str = "transformer",
        width: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        batch_size: int = 128,
    ) -> None:
        arguments.integer(self, "modulus", modulus, at_least=4, at_most=255)
        self.network = network_of(self, network, modulus + 1, 3, width, num_layers, num_heads)
        num_held_out = modulus**2 * 2 // 15
        sizes = {"train": modulus**2 - 3 * num_held_out} | dict.fromkeys(
            ("inner_valid", "outer_valid", "test"), num_held_out
        )
        self.datasets = row_datasets(
            _addition_windows(modulus), sizes, arguments.integer(self, "batch_size", batch_size)
        )


@functools.cache
def _addition_windows(modulus: int) -> dict[str, np.ndarray]:
    first_number, second_number = np.divmod(np.random.default_rng(0).permutation(modulus**2), modulus)
    symbols = np.stack(
        [first_number, second_number, np.full_like(first_number, modulus), (first_number + second_number) % modulus],
        axis=1,
    ).astype(np.uint8)
    return {"symbols": symbols, "weight": np.tile([False, False, True], (len(symbols), 1))}
