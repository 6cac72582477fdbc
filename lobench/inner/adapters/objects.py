"""Adapters for tasks and learned optimizers of google/learned_optimization, without importing that package."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from lobench.core.errors import ConfigError
from lobench.inner.adapters.counterparts import Counterpart, counterpart_of
from lobench.inner.optimizer import InnerOptimizer, LearnedOptimizer, PyTree, Theta
from lobench.inner.task import (
    OPTIONAL,
    SPLITS,
    ArrayDataset,
    Datasets,
    IteratorDataset,
    SampledDataset,
    Task,
    TaskFamily,
)

__all__ = ["as_learned_optimizer", "as_task", "program_description"]


class _ForeignLearnedOptimizer(LearnedOptimizer):
    """Adapter of a learned optimizer of google/learned_optimization.

    If lobench has an implementation of the same optimizer, that one is used, with the same theta.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    @functools.cached_property
    def counterpart(self) -> Counterpart:
        return counterpart_of(self.wrapped)  # lazy, because it takes a while and is only needed for training

    def init(self, key: jax.Array) -> Theta:
        return self.wrapped.init(key)

    def opt_fn(self, theta: Theta, num_steps: int | None = None) -> InnerOptimizer:
        has_counterpart = self.counterpart.lobench_optimizer is not None
        optimizer: InnerOptimizer
        optimizer = self.counterpart.opt_fn(theta, num_steps) if has_counterpart else self.wrapped.opt_fn(theta)
        return optimizer


def as_learned_optimizer(candidate: Any) -> LearnedOptimizer:
    """Returns an object of lobench unchanged, or wraps one with `init(key)` and `opt_fn(theta)`.

    Raises:
      ConfigError: The object lacks these methods.

    >>> class Halving:
    ...     def init(self, key):
    ...         return {"rate": jnp.ones(())}
    ...
    ...     def opt_fn(self, theta):
    ...         return optax.sgd(theta["rate"] / 2)
    >>> isinstance(as_learned_optimizer(Halving()), lobench.LearnedOptimizer)
    True
    """
    if isinstance(candidate, LearnedOptimizer):
        return candidate
    if callable(getattr(candidate, "init", None)) and callable(getattr(candidate, "opt_fn", None)):
        return _ForeignLearnedOptimizer(candidate)
    raise ConfigError(
        "Case.learned_optimizer is not a learned optimizer",
        got=type(candidate).__name__,
        expected="an object with init(key) -> theta and opt_fn(theta)",
        next_step="an optax transformation goes into Case.optimizer; does gin bind `@Name` where `@Name()` is meant?",
    )


def program_description(candidate: Any) -> str:
    """Returns a description of the program that runs for a foreign learned optimizer; "" without a counterpart."""
    optimizer = as_learned_optimizer(candidate)
    return optimizer.counterpart.description if isinstance(optimizer, _ForeignLearnedOptimizer) else ""


class _ForeignTask(Task):
    """A task whose methods follow google/learned_optimization's signatures."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self.datasets = _adapted_datasets(getattr(wrapped, "datasets", None))
        for name in ("scale_invariant", *OPTIONAL):
            if hasattr(wrapped, name):
                setattr(self, name, getattr(wrapped, name))

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        params, state = self._wrapped.init_with_state(key)
        return params, state

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Any) -> Any:
        return self._wrapped.loss_with_state_and_aux(params, state, key, data)

    def normalizer(self, loss: jax.Array) -> jax.Array:
        normalizer = getattr(self._wrapped, "normalizer", None)
        return normalizer(loss) if normalizer is not None else loss


class _ForeignFamily(TaskFamily):
    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self.datasets = _adapted_datasets(getattr(wrapped, "datasets", None))

    def sample(self, key: jax.Array) -> PyTree:
        return self._wrapped.sample(key)

    def task_fn(self, cfg: PyTree) -> Task:
        return _ForeignTask(self._wrapped.task_fn(cfg))


def as_task(candidate: Any) -> Task | TaskFamily:
    """Returns the object if it is lobench's, or else a wrapper around a foreign task or family.

    A foreign data set that is an iterator is shared by all seeds and cannot be rewound, so evaluations see different
    batches each time. A callable that makes an iterator is called for each seed, and repeats. In the task's own
    `datasets` it is replaced by an object that is callable and an iterator too, because tasks call
    `next(self.datasets.train)` for an example.

    Raises:
      ConfigError: The object is neither a task nor a family.

    >>> class Bowl(lobench.Task):
    ...     pass
    >>> isinstance(as_task(Bowl()), Bowl)
    True
    """
    if isinstance(candidate, Task | TaskFamily):
        return candidate
    if callable(getattr(candidate, "sample", None)) and callable(getattr(candidate, "task_fn", None)):
        return _ForeignFamily(candidate)
    if callable(getattr(candidate, "loss_with_state_and_aux", None)):
        return _ForeignTask(candidate)
    raise ConfigError(
        "Case.task is not a task",
        got=candidate.__name__ if isinstance(candidate, type) else type(candidate).__name__,
        expected="a Task or TaskFamily",
        next_step="does gin bind `@Name` where `@Name()` is meant? Your own task is a subclass of lobench.Task",
    )


class _RepeatableBatches:
    """A callable that creates iterators, and itself an iterator, for code that needs just some batches."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make_batches = make
        self._examples: Iterator[Any] | None = None

    def __call__(self) -> Iterable[Any]:
        return self._make_batches()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._examples is None:
            self._examples = iter(self._make_batches())
        return next(self._examples)


def _adapted_datasets(foreign_datasets: Any) -> Datasets | None:
    if foreign_datasets is None:
        return None
    datasets = {split: getattr(foreign_datasets, split, None) for split in SPLITS}
    for split, value in datasets.items():
        if callable(value) and not hasattr(value, "__next__"):
            datasets[split] = _RepeatableBatches(value)
            with contextlib.suppress(AttributeError):  # a property, for example, is not replaced
                object.__setattr__(foreign_datasets, split, datasets[split])
    return Datasets(**{split: _adapted_dataset(value) for split, value in datasets.items() if value is not None})


def _adapted_dataset(foreign_dataset: Any) -> ArrayDataset | SampledDataset | IteratorDataset:
    if isinstance(foreign_dataset, ArrayDataset | SampledDataset | IteratorDataset):
        return foreign_dataset

    def batches(seed: int) -> Iterator[Any]:
        return iter(foreign_dataset() if callable(foreign_dataset) else foreign_dataset)

    return IteratorDataset(batches=batches)
