"""Natural text: prediction of the bytes of Python's library."""

from __future__ import annotations

import functools

import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.task import Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.data import load_text
from lobench.inner.tasks.splits import row_datasets
from lobench.inner.tasks.symbols import SymbolTask, network_of

__all__ = ["PythonText"]

_HELD_OUT = 33_000  # bytes of each of three splits, the text's end


@configurable
class PythonText(SymbolTask):
    """Prediction of the next byte of 52 modules of Python 3.11's library; nats per byte, and `accuracy`.

    The text has 1,000,000 ASCII bytes with 96 distinct values, which are the vocabulary. Its last modules are the
    held-out splits, 33,000 bytes each. Batches are windows uint8[batch, sequence_length + 1] that do not overlap. The
    floor is unknown. A uniform guess has log 96 = 4.56, the frequencies of the bytes alone give 3.2.

    Args:
      network: "transformer", "gru" or "lstm".
      width: Width of the network's state, or of the transformer's stream.
      num_layers, num_heads: Number of layers and heads of a transformer.
      sequence_length: Predictions per window.
      batch_size: Examples per batch, in training and evaluation.
    """

    def __init__(
        self,
        *,
        network: str = "transformer",
        width: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        sequence_length: int = 32,
        batch_size: int = 16,
    ) -> None:
        arguments.integer(self, "sequence_length", sequence_length, at_most=_HELD_OUT - 1)
        vocab_size = len(_alphabet())
        self.network = network_of(self, network, vocab_size, sequence_length, width, num_layers, num_heads)
        self.datasets = _datasets(sequence_length + 1, arguments.integer(self, "batch_size", batch_size))


def _alphabet() -> bytes:
    """Returns the distinct bytes of the text. The id of a symbol is its position here."""
    return b"\n" + bytes(range(32, 127))


@functools.cache
def _datasets(length: int, batch_size: int) -> Datasets:
    ids = np.zeros(256, np.uint8)
    ids[list(_alphabet())] = np.arange(len(_alphabet()))
    symbols = ids[np.frombuffer(load_text("python_library"), np.uint8)]
    num_held_out = _HELD_OUT // length
    sizes = {"train": len(symbols) // length - 3 * num_held_out}
    sizes |= dict.fromkeys(("inner_valid", "outer_valid", "test"), num_held_out)
    return row_datasets(symbols[: len(symbols) // length * length].reshape(-1, length), sizes, batch_size)
