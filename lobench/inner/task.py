"""Inner tasks, families of tasks, and their data, with the names of google/learned_optimization."""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case
from lobench.core.film import Scene
from lobench.inner.optimizer import PyTree

__all__ = [
    "OPTIONAL",
    "SPLITS",
    "ArrayDataset",
    "Batch",
    "Dataset",
    "Datasets",
    "Index",
    "IteratorDataset",
    "SampledDataset",
    "Task",
    "TaskFamily",
]

Batch: TypeAlias = PyTree
Index: TypeAlias = "int | jax.Array"
SPLITS = ("train", "inner_valid", "outer_valid", "test")
OPTIONAL = ("memory_loss", "losses", "num_losses")  # optional methods, for optimizers that request them


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """Examples in the device's memory, drawn by key inside the compiled program.

    Attributes:
      arrays: Pytree of arrays, leading axis [num_examples].
      batch_size: Number of examples per batch, drawn uniformly with replacement.

    >>> data = lobench.ArrayDataset({"x": np.arange(6.0).reshape(3, 2)}, batch_size=8)
    >>> data.sample(jax.random.key(0))["x"].shape
    (8, 2)
    """

    arrays: PyTree
    batch_size: int

    @property
    def num_examples(self) -> int:
        return int(jax.tree.leaves(self.arrays)[0].shape[0])

    def indices(self, key: jax.Array) -> jax.Array:
        """Returns the indices of the examples in the batch of `key`, int32[batch_size]."""
        if self.num_examples >= 1 << 16:
            return jax.random.randint(key, (self.batch_size,), 0, self.num_examples)
        # The high half of a 32 by 16 bit product needs half the random bits of `randint`, and no division.
        bits = jax.random.bits(key, (self.batch_size,), jnp.uint32)
        size = jnp.uint32(self.num_examples)
        return ((size * (bits >> 16) + ((size * (bits & 0xFFFF)) >> 16)) >> 16).astype(jnp.int32)

    def take(self, indices: jax.Array) -> Batch:
        """Returns the examples at `indices`, leaves [*indices.shape, ...]."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[indices], self.arrays)

    def sample(self, key: jax.Array) -> Batch:
        """Returns one batch, leaves [batch_size, ...]. `key` is a PRNG key; equal keys give equal batches."""
        return self.take(self.indices(key))


@dataclass(frozen=True, eq=False)
class SampledDataset:
    """Batches computed from a key inside the compiled program (a generated grammar, synthetic regression).

    Attributes:
      sample: Function of a key that returns a batch.

    >>> data = lobench.SampledDataset(lambda key: jax.random.normal(key, (8, 2)))
    >>> data.sample(jax.random.key(0)).shape
    (8, 2)
    """

    sample: Callable[[jax.Array], Batch]


@dataclass(frozen=True, eq=False)
class IteratorDataset:
    """Batches from any Python iterator, passed to the program in chunks.

    Training iterators are read in a separate thread: the next chunk is read while the program uses the present one.

    Attributes:
      batches: Function of a seed (int) that returns an iterator of batches (pytrees of numpy arrays of one shape). It
        is called for each evaluation, so equal seeds must give equal batches.

    >>> data = lobench.IteratorDataset(lambda seed: iter([{"x": np.full((8, 2), seed)}]))
    >>> next(data.batches(3))["x"].shape
    (8, 2)
    """

    batches: Callable[[int], Iterator[Batch]]


Dataset: TypeAlias = ArrayDataset | SampledDataset | IteratorDataset


@dataclass(frozen=True, eq=False, kw_only=True)
class Datasets:
    """Splits of a task. `train` is trained on, and every present split is evaluated.

    >>> data = lobench.ArrayDataset({"x": np.ones((3, 2))}, batch_size=8)
    >>> lobench.Datasets(train=data, test=data).inner_valid is None
    True
    """

    train: Dataset
    inner_valid: Dataset | None = None
    outer_valid: Dataset | None = None
    test: Dataset | None = None


class Task:
    """An inner problem. Override `init` and `loss`, or the `_with_state` forms if there is model state or metrics.

    Optimizers with extra inputs (`lobench.with_extra_inputs`) need a task that provides these. A task, or the tasks of
    a family, may define, besides `scale_invariant`:

    - `memory_loss(params, state, key) -> float32[]`: the loss on a batch of an episodic memory in the model state; 0
      while the memory is empty. The optimizer receives its gradient.
    - `losses(params, state, key, data) -> float32[K]`: several losses whose plain mean is the task's loss, with
      `num_losses = K`. The optimizer receives their values or gradients.

    Both receive the model state of the step; `losses` receives its key and batch too.

    Attributes:
      datasets: Data sets by split. None for a task without data: `batch` is then None, and only the `train` split
        exists.
      metric_directions: "min" or "max" by the name of each metric besides the loss, such as `{"return": "max"}`, or
        `test/return` for one split. `loss` and `accuracy` are known. A metric without direction has no best value and
        no score.
      num_phases: Number of training phases that a task supports if it changes with the phases. None: it does not
        change.
      gives_if: Binding with which the task provides an extra input, for the error message if it does not.
      scene: Description of the film that reports show of the first seed. None: no film. A task with a film defines
        `film(params, state, key) -> frames float32[num_frames, num_shapes, 4], number of valid frames int32[]`.

    >>> class Bowl(lobench.Task):
    ...     def init(self, key):
    ...         return jax.random.normal(key, (2,))
    ...
    ...     def loss(self, params, key, batch):
    ...         return (params**2).sum()
    >>> float(Bowl().loss(jnp.ones(2), None, None))
    2.0
    """

    datasets: Datasets | None = None
    metric_directions: Mapping[str, str] = types.MappingProxyType({})
    num_phases: int | None = None
    gives_if: Mapping[str, str] = types.MappingProxyType({})
    scene: Scene | None = None

    def init(self, key: jax.Array) -> PyTree:
        """Returns initial parameters.

        Leaves of integers or booleans, and leaves that are not arrays (an activation function), are constants: they are
        not trained, and optimizers see `None` in their place.

        Args:
          key: PRNG key of the seed.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither init nor init_with_state")

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        """Returns initial parameters and model state; the model state may be None.

        Args:
          key: PRNG key of the seed.
        """
        return self.init(key), None

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        """Returns the loss, float32[].

        Args:
          params: Parameters, with the structure of `init`.
          key: PRNG key of the step, for noise such as dropout.
          data: Batch of a split. None for a task without data.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither loss nor loss_with_state")

    def loss_with_state(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, PyTree]:
        """Returns the loss, float32[], and the model state after it.

        Args:
          params, key, data: As in `loss`.
          state: Model state before the step, with the structure of `init_with_state`.
        """
        return self.loss(params, key, data), state

    def loss_with_state_and_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, PyTree, Mapping[str, jax.Array]]:
        """Returns the loss, the model state after it, and metrics by name (float32[]).

        Args:
          params, state, key, data: As in `loss_with_state`.
        """
        loss, state = self.loss_with_state(params, state, key, data)
        return loss, state, {}

    def eval_loss_with_aux(
        self, params: PyTree, state: PyTree, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, Mapping[str, jax.Array]]:
        """Returns loss and metrics of an evaluation, with batch norm in inference mode and without gradient noise.

        By default, it is the training loss without its model state.

        Args:
          params, state, key, data: As in `loss_with_state`.
        """
        loss, _, aux = self.loss_with_state_and_aux(params, state, key, data)
        return loss, aux

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Maps a loss, float32[], to a scale on which tasks are comparable. The default is the identity."""
        return loss

    def enter_phase(self, params: PyTree, state: PyTree, index: Index) -> tuple[PyTree, PyTree]:
        """Returns parameters and model state at the start of a phase after the first one.

        Called before the phase's optimizer initializes its state. A stream of tasks switches to its next task here.

        Args:
          params: Parameters at the end of the previous phase.
          state: Model state at the end of the previous phase.
          index: Index of the phase, from 1; an int, or int32[] if phases share a program.
        """
        return params, state

    def metrics_over_phases(
        self, metrics: Mapping[str, np.ndarray], steps: Sequence[int], ends: Sequence[int]
    ) -> Mapping[str, np.ndarray]:
        """Returns metrics computed from the curves of other metrics, such as forgetting.

        Called once, after the training.

        Args:
          metrics: float32[num_seeds, num_evals] by `<split>/<metric>`.
          steps: Inner steps of the evaluations. A task with `num_phases` is also evaluated at the end of each phase.
          ends: Inner steps at which the phases end.
        """
        return {}

    def check_case(self, case: Case) -> None:
        """Raises ConfigError if a case requests something that the task does not support.

        Called when the case is bound.
        """

    def scale_invariant(self, params: PyTree) -> PyTree:
        """Returns for each leaf the axis that counts its neurons, or None, as a tree like params. It must be constant.

        The incoming weights of a neuron are the elements at one index of that axis; its norm is over all other axes.
        The training loss must not change if one neuron's weights are multiplied by a positive number. This is the case
        if batch norm follows without a bias. Example: `{"w": 1, "b": None}` for weights [inputs, neurons], and 3 for a
        kernel [height, width, inputs, neurons]. The default is None for all leaves.
        """
        return jax.tree.map(lambda leaf: None, params)


class TaskFamily(abc.ABC):
    """Tasks indexed by a configuration that is sampled inside the compiled program.

    Attributes:
      datasets: Data sets shared by all tasks of the family. None: each task has its own, if any, as `ArrayDataset` or
        `SampledDataset`, made from its configuration, of equal shapes in all tasks.
      metric_directions: As in a `Task`.

    >>> class Bowls(lobench.TaskFamily):
    ...     def sample(self, key):
    ...         return jax.random.uniform(key)
    ...
    ...     def task_fn(self, width):
    ...         return Valley(width)
    >>> 0 <= float(Bowls().sample(jax.random.key(0))) < 1
    True
    """

    datasets: Datasets | None = None
    metric_directions: Mapping[str, str] = types.MappingProxyType({})

    @abc.abstractmethod
    def sample(self, key: jax.Array) -> PyTree:
        """Returns the configuration of one task: a pytree of arrays, of equal shapes for all keys.

        Args:
          key: PRNG key of the seed and the task's index.
        """

    @abc.abstractmethod
    def task_fn(self, cfg: PyTree) -> Task:
        """Returns the task of a configuration.

        Args:
          cfg: Configuration as returned by `sample`. Its arrays may be traced.
        """
