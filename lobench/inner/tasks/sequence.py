"""Next-byte prediction with a small recurrent net on text from a generated grammar."""

from __future__ import annotations

import functools

from lobench.inner.configurable import configurable
from lobench.inner.task import ArrayDataset, Datasets
from lobench.inner.tasks import arguments
from lobench.inner.tasks.grammar import GRAMMARS, alphabet, examples
from lobench.inner.tasks.recurrent import CELLS
from lobench.inner.tasks.symbols import Recurrent, SymbolTask

__all__ = ["ByteRNN"]

# Seed and number of windows by split: every split is another text of the same grammar.
_TEXTS = {"train": (1, 2048), "inner_valid": (2, 256), "outer_valid": (3, 256), "test": (4, 256)}


@configurable
class ByteRNN(SymbolTask):
    """Prediction of the next byte with a recurrent network; mean cross entropy in nats per byte, and `accuracy`.

    Batches are windows of `sequence_length + 1` symbols, int32. The vocabulary is the grammar's alphabet.

    Args:
      grammar: "arithmetic" (`(3+4)*2=4;`), "brackets" (balanced, three kinds) or "words" (simple sentences).
      cell: "gru" or "lstm".
      width: Length of the hidden state.
      sequence_length: Predictions per window; the state starts at zero in each.
      batch_size: Examples per batch, in training and evaluation.
    """

    def __init__(
        self,
        *,
        grammar: str = "arithmetic",
        cell: str = "gru",
        width: int = 32,
        sequence_length: int = 24,
        batch_size: int = 16,
    ) -> None:
        arguments.choice(self, "grammar", grammar, GRAMMARS)
        arguments.choice(self, "cell", cell, CELLS)
        self.network = Recurrent(cell, len(alphabet(grammar)), arguments.integer(self, "width", width))
        arguments.integer(self, "sequence_length", sequence_length)
        self.datasets = _datasets(grammar, sequence_length + 1, arguments.integer(self, "batch_size", batch_size))


@functools.cache
def _datasets(grammar: str, length: int, batch_size: int) -> Datasets:
    splits = {
        split: ArrayDataset(examples(grammar, num_examples, length, seed), batch_size)
        for split, (seed, num_examples) in _TEXTS.items()
    }
    return Datasets(**splits)
