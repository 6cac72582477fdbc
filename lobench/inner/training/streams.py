"""Random streams of a training: keys, and batches drawn ahead of their steps."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.optimizer import PyTree
from lobench.inner.task import SPLITS, ArrayDataset, Datasets, IteratorDataset, SampledDataset, Task, TaskFamily

__all__ = [
    "FILM",
    "INIT",
    "LOSS",
    "MEMORY",
    "OPTIMIZER",
    "Evaluation",
    "Replica",
    "draw_ahead",
    "draw_evaluation",
    "fits_ahead",
    "key_of",
    "per_replica",
    "present_splits",
    "steps_ahead",
    "stream",
    "task_of",
    "train_batch",
]

# Streams of randomness under a seed's key: each has its own, so that none depends on how much another draws.
INIT, DATA, LOSS, EVAL, OPTIMIZER, MEMORY, FILM = range(7)
_FAMILY_SEED = 0x10BE
_AHEAD_BYTES = 1 << 26  # largest size of stored evaluation batches; larger ones are drawn each time
_DRAWN_BYTES = 1 << 21  # size of the indices of examples that are drawn ahead
_MOST_AHEAD = 64  # steps


def _threefry(keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Computes `jax.random.fold_in` of keys and counts in numpy. Counts 0, 1, ... give the keys of `jax.random.split`.

    Args:
      keys: uint32[..., 2].
      counts: uint32[...], or broadcastable to that.
    Returns:
      Keys uint32[..., 2].
    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3.
    """
    first_words, second_words = keys[..., 0], keys[..., 1]
    schedule = (first_words, second_words, first_words ^ second_words ^ np.uint32(0x1BD11BDA))
    left_words, right_words = np.broadcast_arrays(first_words, counts + second_words)
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            left_words = left_words + right_words
            right_words = left_words ^ (right_words << np.uint32(rotation) | right_words >> np.uint32(32 - rotation))
        left_words = left_words + schedule[(group + 1) % 3]
        right_words = right_words + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return np.stack([left_words, right_words], axis=-1)


@functools.lru_cache(maxsize=64)  # a watch trains the same seeds for each checkpoint, often in a millisecond
def _keys_of(seeds: tuple[int, ...], num_splits: int, num_batches: int) -> tuple[Any, Any]:
    """Returns the fields `streams` and `evaluation` of a `Replica`, with the replicas' axis."""
    keys = np.asarray([(0, seed) for seed in seeds], np.uint32)
    stream_keys = _threefry(keys[:, None], np.arange(FILM + 1, dtype=np.uint32))
    evaluation_keys = stream_keys[:, EVAL]
    for count in (num_splits, num_batches, 2):
        evaluation_keys = _threefry(evaluation_keys[..., None, :], np.arange(count, dtype=np.uint32))
    keys_by_split = (tuple(np.moveaxis(keys_of_split, 2, 0)) for keys_of_split in np.moveaxis(evaluation_keys, 1, 0))
    return tuple(np.moveaxis(stream_keys, 1, 0)), tuple(keys_by_split)


class Replica(NamedTuple):
    """Identity of a training: its seed, and the index of the task in its family.

    The fields of several trainings have a leading axis.

    Keys depend on the seed only. Keys that are known before the program runs are its arguments, because deriving a key
    inside would be a further loop to compile. Each split has its own keys, so that its draws are one kernel, compiled
    once. If keys are (), `stream` derives them.
    """

    seed: jax.Array | np.ndarray | np.uint32  # uint32[]
    task: jax.Array | np.ndarray | np.uint32  # uint32[]
    streams: tuple[jax.Array | np.ndarray, ...] = ()  # key of each stream, uint32[2]
    # For each split, the keys of data and of losses, uint32[num_batches, 2].
    evaluation: tuple[tuple[jax.Array | np.ndarray, ...], ...] = ()

    @classmethod
    def of(cls, seeds: np.ndarray, tasks: np.ndarray, num_splits: int, num_batches: int) -> Replica:
        """Returns the replicas of seeds uint32[num_replicas], with their keys."""
        return cls(seeds, tasks, *_keys_of(tuple(seeds.tolist()), num_splits, num_batches))

    def alone(self) -> Replica:
        """Returns the only replica, without the leading axis."""
        replica: Replica = jax.tree.map(lambda leaf: leaf[0], self)
        return replica


def key_of(seed: jax.Array | np.ndarray | np.uint32 | int) -> jax.Array:
    """Returns the jax random key that all streams of a seed are derived from."""
    # The implementation is named so that a user's jax configuration cannot change the bits.
    return jax.random.key(seed, impl="threefry2x32")


def stream(replica: Replica, stream_index: int) -> jax.Array:
    """Returns the key of one stream of a training."""
    if replica.streams:
        return _as_key(replica.streams[stream_index])
    return jax.random.fold_in(key_of(replica.seed), stream_index)


def _as_key(data: jax.Array | np.ndarray) -> jax.Array:
    return jax.random.wrap_key_data(jnp.asarray(data), impl="threefry2x32")


def per_replica(function: Any, replicas: Replica) -> Any:
    """Maps over the leading axes of replicas.

    A single replica has no such axis, which is cheaper to compile and run.
    """
    for _ in range(replicas.seed.ndim):
        function = jax.vmap(function)
    return function


def present_splits(task: Task | TaskFamily) -> dict[str, Any]:
    """Returns the splits that exist. A task without data has the split `train` with the value None."""
    datasets: Datasets | None = task.datasets
    if datasets is None and isinstance(task, TaskFamily):
        return _splits_of_tasks(task)
    if datasets is None:
        return {"train": None}
    datasets_by_split = {split: getattr(datasets, split) for split in SPLITS}
    for split, dataset in datasets_by_split.items():
        if dataset is not None and not isinstance(dataset, ArrayDataset | SampledDataset | IteratorDataset):
            raise ConfigError(
                f"split {split!r} of {type(task).__name__}",
                got=type(dataset).__name__,
                expected="ArrayDataset, SampledDataset or IteratorDataset",
            )
    return {split: dataset for split, dataset in datasets_by_split.items() if dataset is not None}


@dataclasses.dataclass(frozen=True, eq=False)
class DataPerTask:
    """A split of a family whose tasks have their own data.

    Attributes:
      of: Function of a `Replica` that returns the data set of its task.
    """

    of: Callable[[Replica], ArrayDataset | SampledDataset]


def task_of(task: Task | TaskFamily, replica: Replica) -> Task:
    """Returns the task of a replica; tasks of a family depend on their index alone."""
    if isinstance(task, TaskFamily):
        key = jax.random.fold_in(key_of(_FAMILY_SEED), replica.task)
        return task.task_fn(task.sample(key))
    return task


def _splits_of_tasks(family: TaskFamily) -> dict[str, Any]:
    """Returns the splits of the data sets of single tasks, as `present_splits` does."""
    splits: dict[str, Any] = {}

    def record_splits(seed: jax.Array) -> jax.Array:
        task = family.task_fn(family.sample(key_of(seed)))
        splits.update(present_splits(task), name=type(task).__name__)
        return seed

    jax.eval_shape(record_splits, np.uint32(0))
    name = splits.pop("name")
    if any(isinstance(dataset, IteratorDataset) for dataset in splits.values()):
        raise ConfigError(
            f"datasets of {name}, a task of {type(family).__name__}",
            got="IteratorDataset",
            expected="ArrayDataset or SampledDataset, since a task's configuration is traced",
            next_step=f"give the iterator to {type(family).__name__}.datasets, which all its tasks share",
        )

    def dataset_of(split: str, replica: Replica) -> Any:
        return getattr(task_of(family, replica).datasets, split)

    return {
        split: None if dataset is None else DataPerTask(functools.partial(dataset_of, split))
        for split, dataset in splits.items()
    }


def draw_ahead(dataset: ArrayDataset, replicas: Replica, first_step: jax.Array, num_steps: int) -> jax.Array:
    """Returns the indices of the examples of `num_steps` steps from `first_step` on.

    They are int32[count, (num_replicas,) batch_size].

    Drawing random bits for many steps at once costs a fraction of drawing them inside the loop.
    """

    def draw_step(offset: jax.Array) -> jax.Array:
        return per_replica(lambda replica: dataset.indices(_step_key(replica, first_step + offset)), replicas)(replicas)

    return jax.vmap(draw_step)(jnp.arange(num_steps))


def train_batch(dataset: Any, arrays: PyTree, replica: Replica, step: jax.Array, indices_or_batch: PyTree) -> PyTree:
    """Returns the training batch of a replica at a step.

    Args:
      dataset: Data set of the training split.
      arrays: Arrays of the data set.
      replica: Replica that trains.
      step: Number of the step.
      indices_or_batch: Values drawn ahead, or read from an iterator, for this step and replica; else None.
    """
    if isinstance(dataset, ArrayDataset):
        return dataclasses.replace(dataset, arrays=arrays).take(indices_or_batch)
    if isinstance(dataset, DataPerTask):
        return dataset.of(replica).sample(_step_key(replica, step))
    return dataset.sample(_step_key(replica, step)) if isinstance(dataset, SampledDataset) else indices_or_batch


def _step_key(replica: Replica, step: jax.Array) -> jax.Array:
    return jax.random.fold_in(stream(replica, DATA), step)


class Evaluation(NamedTuple):
    """Inputs of each evaluation of a training. Splits of one shape are evaluated together, in larger products.

    Attributes:
      keys: Keys of the losses, [num_splits, num_batches].
      batches: Leaves [num_splits, num_batches, ...].
    """

    keys: jax.Array
    batches: PyTree


def draw_evaluation(
    datasets: dict[str, Any], arrays: PyTree, iterator_batches: PyTree, replica: Replica, num_batches: int
) -> dict[str, Evaluation]:
    """Returns the evaluation of one training. A key of the dictionary is a list of splits, joined by commas."""
    evaluation_by_split = {}
    for index, (split, dataset) in enumerate(datasets.items()):
        data_keys, loss_keys = map(_as_key, replica.evaluation[index])
        if isinstance(dataset, ArrayDataset):
            batches = dataclasses.replace(dataset, arrays=arrays[split]).take(jax.vmap(dataset.indices)(data_keys))
        elif isinstance(dataset, SampledDataset | DataPerTask):
            dataset_of_replica = dataset.of(replica) if isinstance(dataset, DataPerTask) else dataset
            batches = jax.vmap(dataset_of_replica.sample)(data_keys)
        else:
            batches = iterator_batches.get(split)
        evaluation_by_split[split] = Evaluation(loss_keys, batches)
    splits_by_shape: dict[str, list[str]] = {}
    for split, evaluation in evaluation_by_split.items():
        shapes = jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), evaluation)
        splits_by_shape.setdefault(str(shapes), []).append(split)
    return {
        ",".join(splits): jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(evaluation_by_split[split] for split in splits)
        )
        for splits in splits_by_shape.values()
    }


def fits_ahead(evaluation: PyTree) -> bool:
    """Returns whether the batches of all replicas are small enough to be kept between evaluations."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(evaluation)) <= _AHEAD_BYTES


def steps_ahead(dataset: ArrayDataset, num_replicas: int) -> int:
    """Returns the number of steps whose examples are drawn together, a compromise between time and memory."""
    return max(1, min(_MOST_AHEAD, _DRAWN_BYTES // (4 * dataset.batch_size * num_replicas)))
