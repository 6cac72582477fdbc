"""Prefetch: chunks of inner steps with batches from Python iterators."""

from __future__ import annotations

import collections
import itertools
import json
import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.task import IteratorDataset
from lobench.inner.training.parallel_sessions import num_replicas

__all__ = ["FIRST_CHUNK", "ITERATOR_CHUNK", "Feed", "empty", "next_chunk", "num_batches_to_read"]

FIRST_CHUNK = 25  # inner steps before the first progress report or stop
_CHUNK_SECONDS = 0.5
_MAX_GROWTH = 64  # largest ratio of a chunk to the previous one
ITERATOR_CHUNK = 50  # inner steps whose batches are passed together
_MIN_CHUNK = 5  # inner steps of the first chunk, which is short because nothing is computed while it is read
_ALIGNMENT = 64  # bytes


class _Chunk(NamedTuple):
    """Batches of some steps, and the positions of the iterators after them."""

    batches: PyTree
    positions: list[Any] | None


class Feed:
    """Batches from Python iterators: all batches of evaluations at the start, training batches in chunks.

    Training iterators are read in a separate thread, so that a chunk is read while the previous one is used.

    Args:
      keeps_positions: Whether `positions` will be called.

    Attributes:
      eval_batches: Batches by split, leaves [(num_replicas,) eval_batches, ...], for splits that an iterator feeds.
        Empty without evaluations.
      example_chunk: Shapes of a training chunk, leaves [chunk, (num_replicas,) ...], with a further axis for the
        replicas of a round. None if no iterator feeds training.
    """

    def __init__(
        self,
        datasets: dict[str, Any],
        block: SeedBlock,
        tasks_per_seed: int,
        case: Case,
        *,
        keeps_positions: bool = False,
    ) -> None:
        self._tasks_per_seed, self._num_replicas, self._keeps_positions = (
            tasks_per_seed,
            num_replicas(case),
            keeps_positions,
        )
        self.eval_batches: dict[str, PyTree] = {}
        for split, dataset in datasets.items():
            if isinstance(dataset, IteratorDataset) and case.eval_batches:
                first_replicas = (seed * self._num_replicas for seed in block.seeds)
                batches_by_seed = [
                    _take_batches(iter(dataset.batches(seed)), case.eval_batches, split) for seed in first_replicas
                ]
                self.eval_batches[split] = self._stack_replicas([_stack_trees(batches) for batches in batches_by_seed])
        train_dataset = datasets["train"]
        self.feeds_training = isinstance(train_dataset, IteratorDataset)
        self.example_chunk: PyTree = None
        if not isinstance(train_dataset, IteratorDataset):
            return
        self._batches = train_dataset.batches
        self._seeds = [
            seed * self._num_replicas + replica for seed in block.seeds for replica in range(self._num_replicas)
        ]
        self._positions: list[Any] | None = None
        # Chunks in the order of steps, each with its length.
        self._chunks_ahead: collections.deque[tuple[int, Future[_Chunk]]] = collections.deque()
        self._reader = _Reader()
        try:
            chunk = self._reader.read(self._read_first_batches).result()
        except BaseException:
            self.close()
            raise
        self.example_chunk = jax.tree.map(
            lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), (ITERATOR_CHUNK, *leaf.shape[1:])), chunk
        )

    def close(self) -> None:
        """Ends the reading, and drops chunks that were read ahead."""
        if self.feeds_training:
            self._reader.close()

    def read_ahead(self, num_batches: int) -> None:
        """Starts to read `num_batches` batches after all requested ones, without waiting for them."""
        if self.feeds_training:
            self._chunks_ahead.append((num_batches, self._reader.read(lambda: self._read_chunk(num_batches))))

    def next_chunk(self, num_batches: int) -> PyTree:
        """Returns the next batches, leaves [chunk, (num_replicas,) ...]. The last batch pads a short chunk.

        Args:
          num_batches: Number of batches. If batches were read ahead, it must be their number.
        """
        if not self.feeds_training:
            return None
        if not self._chunks_ahead:
            self.read_ahead(num_batches)
        length, future = self._chunks_ahead.popleft()
        assert length == num_batches, (length, num_batches)
        batches, self._positions = future.result()
        return batches

    def positions(self) -> list[Any] | None:
        """Returns the positions of the training iterators after the last chunk; None if one is unknown.

        An iterator of grain, for example, reports its position with `get_state()` and restores it with
        `set_state(state)`.
        """
        return self._positions if self.feeds_training else None

    def continue_from(self, step: int, positions: Sequence[Any] | None) -> None:
        """Reopens the training iterators, and continues with the batch of a step."""
        if self.feeds_training:
            self._reader.read(lambda: self._continue_from(step, positions)).result()

    # Runs in the reader's thread:

    def _read_first_batches(self) -> PyTree:
        """Opens the iterators.

        Returns their first batches, from which callers take the shapes. The first chunk contains these batches too.
        """
        self._iterators = self._open_iterators()
        self._first_batches = [_take_batches(iterator, 1, "train")[0] for iterator in self._iterators]
        self._example_batch = _stack_trees(self._first_batches)
        return self._group_by_round(jax.tree.map(lambda leaf: leaf[None], self._example_batch))

    def _open_iterators(self) -> list[Iterator[PyTree]]:
        return [iter(self._batches(seed)) for seed in self._seeds]

    def _read_chunk(self, num_batches: int) -> _Chunk:
        """Copies each batch to its place when it is read, while it is in the processor's cache."""
        first_batches, self._first_batches = self._first_batches, []
        chunk = jax.tree.map(_empty_aligned_chunk, self._example_batch)
        structure: Any = jax.tree.structure(chunk)
        rows = jax.tree.leaves(chunk)
        for replica, iterator in enumerate(self._iterators):
            batches = itertools.chain(first_batches[replica : replica + 1], iterator)
            step = -1
            for step, batch in enumerate(itertools.islice(batches, num_batches)):
                leaves, batch_structure = jax.tree.flatten(batch)
                if batch_structure != structure:
                    raise _unlike_batch_error(batch_structure, structure)
                for row, leaf in zip(rows, leaves, strict=True):
                    _copy_leaf(row, (step, replica), leaf)
            if step + 1 < num_batches:
                raise _ended_early_error("train", step + 1, num_batches)
        for row in rows:
            row[num_batches:] = row[num_batches - 1]  # unused
        return _Chunk(self._group_by_round(chunk), self._current_positions() if self._keeps_positions else None)

    def _current_positions(self) -> list[Any] | None:
        if not all(hasattr(iterator, "get_state") for iterator in self._iterators):
            return None
        states: list[Any] = [iterator.get_state() for iterator in self._iterators]  # type: ignore[attr-defined]
        try:
            # A copy, because an iterator may modify the state.
            copied_states: list[Any] = json.loads(json.dumps(states))
            return copied_states if copied_states == states else None
        except (TypeError, ValueError):
            return None

    def _continue_from(self, step: int, positions: Sequence[Any] | None) -> None:
        self._iterators = self._open_iterators()
        self._first_batches = []
        for index, iterator in enumerate(self._iterators):
            if positions is not None and hasattr(iterator, "set_state"):
                iterator.set_state(positions[index])
            else:
                collections.deque(itertools.islice(iterator, step), maxlen=0)

    def _group_by_round(self, chunk: PyTree) -> PyTree:
        """Converts batches by iterator, leaves [chunk, num_iterators, ...], to batches by training."""
        num_rounds = len(self._seeds) // self._num_replicas

        def leaf_by_round(leaf: np.ndarray) -> np.ndarray:
            if self._num_replicas > 1:
                leaf = leaf.reshape(len(leaf), num_rounds, self._num_replicas, *leaf.shape[2:])
            if num_rounds * self._tasks_per_seed == 1:
                return leaf[:, 0]
            return np.repeat(leaf, self._tasks_per_seed, 1) if self._tasks_per_seed > 1 else leaf

        return jax.tree.map(leaf_by_round, chunk)

    def _stack_replicas(self, rows: list[PyTree]) -> PyTree:
        if len(rows) * self._tasks_per_seed == 1:
            return rows[0]
        return jax.tree.map(lambda leaf: np.repeat(leaf, self._tasks_per_seed, 0), _stack_trees(rows))


def next_chunk(chunk: int, seconds: float) -> int:
    """Returns the length of the next chunk after one that took `seconds`.

    Chunks grow until they take `_CHUNK_SECONDS`, and never get shorter.
    """
    return chunk * max(1, min(_MAX_GROWTH, int(_CHUNK_SECONDS / max(seconds, 1e-9))))


def num_batches_to_read(num_read: int) -> int:
    """Returns the number of batches to read next after `num_read`: 5, 5, 10, 20, 40, and then always 50."""
    return min(ITERATOR_CHUNK, max(_MIN_CHUNK, num_read))


def empty(leaf: jax.ShapeDtypeStruct) -> Any:
    """Returns zeros with the leaf's shape and dtype, as an initial value of a program's input."""
    # NumPy arrays need no dispatch, but cannot hold keys.
    is_extended = jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return jnp.zeros(leaf.shape, leaf.dtype) if is_extended else np.zeros(leaf.shape, leaf.dtype)


def _stack_trees(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _take_batches(iterator: Iterator[PyTree], num_batches: int, split: str) -> list[PyTree]:
    batches = list(itertools.islice(iterator, num_batches))
    if len(batches) < num_batches:
        raise _ended_early_error(split, len(batches), num_batches)
    return batches


def _ended_early_error(split: str, num_read: int, num_expected: int) -> ConfigError:
    return ConfigError(
        f"the iterator of split {split!r} ended early",
        got=f"{num_read} batches",
        expected=f"{num_expected} more",
        next_step="yield at least num_inner_steps batches, for ever is best",
    )


def _unlike_batch_error(shape_text: object, expected: object) -> ConfigError:
    return ConfigError(
        "a batch of the iterator of split 'train' is not like the first one",
        got=str(shape_text),
        expected=str(expected),
        next_step="yield batches of one shape: drop the last, smaller one of a pass over the data",
    )


def _empty_aligned_chunk(example_leaf: np.ndarray) -> np.ndarray:
    """Returns an array [ITERATOR_CHUNK, *example_leaf.shape], aligned so that XLA uses it without a copy."""
    shape = (ITERATOR_CHUNK, *example_leaf.shape)
    if example_leaf.dtype.hasobject:
        return np.empty(shape, example_leaf.dtype)
    size = math.prod(shape) * example_leaf.dtype.itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + size].view(example_leaf.dtype).reshape(shape)


def _copy_leaf(row: np.ndarray, index: tuple[int, int], leaf: Any) -> None:
    values = np.asarray(leaf)
    if values.shape != row.shape[2:] or not np.can_cast(values.dtype, row.dtype, "same_kind"):
        raise _unlike_batch_error(f"{values.dtype}{list(values.shape)}", f"{row.dtype}{list(row.shape[2:])}")
    row[index] = values


class _Reader:
    """Thread that reads iterators in the order of requests, so that each iterator is used by a single thread.

    The thread is a daemon, so that an iterator that blocks forever does not keep the process alive.
    """

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="lobench reads batches", daemon=True).start()

    def read(self, function: Callable[[], Any]) -> Future[Any]:
        """Calls a function in the thread. Returns a future of its result."""
        future: Future[Any] = Future()
        self._requests.put((future, function))
        return future

    def close(self) -> None:
        """Ends the thread after all earlier requests."""
        self._requests.put(None)

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            future, function = request
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001  (raised by the caller)
                future.set_exception(error)
