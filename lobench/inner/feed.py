"""How the compiled program is fed: chunk by chunk, with batches from Python iterators where a task has those."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.parallel_sessions import num_lanes
from lobench.inner.task import IteratorDataset

__all__ = ["FIRST_CHUNK", "ITERATOR_CHUNK", "Feed", "empty", "next_chunk"]

FIRST_CHUNK = 25  # inner steps before somebody may look or stop
_CHUNK_SECONDS = 0.5
_MOST_GROWTH = 64  # of a chunk over the one before it
ITERATOR_CHUNK = 50  # inner steps whose batches travel together


class Feed:
    """Batches of Python iterators: those of the evaluations at once, those of training chunk by chunk.

    Attributes:
      eval_batches: By split, leaves [(num_lanes,) eval_batches, ...]; only splits that an iterator feeds, none without
        evaluations.
      example_chunk: Shapes of a training chunk, leaves [chunk, (num_lanes,) ...]; None where none is fed. A round's
        lanes are one more axis behind that.
    """

    def __init__(self, datasets: dict[str, Any], block: SeedBlock, tasks_per_seed: int, case: Case) -> None:
        self._repeat, self._remaining = tasks_per_seed, case.num_inner_steps
        self._num_lanes = num_lanes(case)
        self.eval_batches: dict[str, PyTree] = {}
        for split, dataset in datasets.items():
            if isinstance(dataset, IteratorDataset) and case.eval_batches:
                firsts = (seed * self._num_lanes for seed in block.seeds)
                rows = [_take(iter(dataset.batches(seed)), case.eval_batches, split) for seed in firsts]
                self.eval_batches[split] = self._by_lane(rows, axis=0)
        train = datasets["train"]
        self.feeds_training = isinstance(train, IteratorDataset)
        self._iterators: list[Iterator[PyTree]] = []
        self._first: PyTree = None
        if isinstance(train, IteratorDataset):
            self._iterators = [
                iter(train.batches(seed * self._num_lanes + lane))
                for seed in block.seeds
                for lane in range(self._num_lanes)
            ]
            self._first = self._read()

    @property
    def example_chunk(self) -> PyTree:
        return self._first

    def next_chunk(self) -> PyTree:
        """Returns the next batches, leaves [chunk, (num_lanes,) ...]; a short last chunk repeats its last batch."""
        if not self.feeds_training:
            return None
        chunk, self._first = (self._first, None) if self._first is not None else (self._read(), None)
        return chunk

    def _read(self) -> PyTree:
        wanted = min(ITERATOR_CHUNK, self._remaining)
        self._remaining -= wanted
        rows = [_take(iterator, wanted, "train", pad_to=ITERATOR_CHUNK) for iterator in self._iterators]
        if self._num_lanes > 1:  # lanes of a round, [chunk, num_lanes, ...]
            rounds = [rows[at : at + self._num_lanes] for at in range(0, len(rows), self._num_lanes)]
            rows = [jax.tree.map(lambda *leaves: np.stack(leaves, 1), *each) for each in rounds]
        return self._by_lane(rows, axis=1)

    def _by_lane(self, rows: list[PyTree], axis: int) -> PyTree:
        if len(rows) * self._repeat == 1:
            return rows[0]
        return jax.tree.map(lambda *leaves: np.repeat(np.stack(leaves, axis), self._repeat, axis), *rows)


def next_chunk(chunk: int, seconds: float) -> int:
    """Returns the length of the chunk after one that took `seconds`: towards `_CHUNK_SECONDS`, never shorter."""
    return chunk * max(1, min(_MOST_GROWTH, int(_CHUNK_SECONDS / max(seconds, 1e-9))))


def empty(leaf: jax.ShapeDtypeStruct) -> Any:
    """Returns zeros of a shape, for a program to start from."""
    # NumPy's cost no dispatch each, but it knows nothing of arrays of keys.
    extended = jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return jnp.zeros(leaf.shape, leaf.dtype) if extended else np.zeros(leaf.shape, leaf.dtype)


def _take(iterator: Iterator[PyTree], count: int, split: str, *, pad_to: int = 0) -> PyTree:
    """Stacks `count` batches along a new leading axis; the last one fills it up to `pad_to`, unused."""
    batches = list(itertools.islice(iterator, count))
    if len(batches) < count:
        raise ConfigError(
            f"the iterator of split {split!r} ended early",
            got=f"{len(batches)} batches",
            expected=f"{count} more",
            next_step="yield at least num_inner_steps batches, for ever is best",
        )
    batches += [batches[-1]] * (pad_to - count)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
