"""Contract of tasks and families: a suite's test module subclasses `TaskContract` and defines `task`.

class TestMyTask(TaskContract):
    def task(self):
        return MyTask(width=8)
"""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lobench.core.case import Case, SeedBlock
from lobench.core.result import Curves
from lobench.inner.adapters import as_stepper, as_task
from lobench.inner.task import SPLITS, ArrayDataset, IteratorDataset, SampledDataset, Task, TaskFamily
from lobench.inner.training.train import TrainingProgram
from lobench.testing.bits import COMPILED_FAST, assert_same_bits, key_of, same_bits, types_of

__all__ = ["TaskContract"]

_BLOCK = SeedBlock(start=0, size=2)


class TaskContract:
    """Tests that every task and every family must pass. Use small sizes to keep them fast."""

    @property
    def _cache_key(self) -> Any:
        """Key of the cache in which objects are kept between tests: the class of the contract."""
        return type(self)

    @abstractmethod
    def task(self) -> Any:
        """Creates the task or family as gin would. Every call must create an equal one."""

    def rate(self) -> float:
        """Returns a learning rate at which three steps of SGD keep the loss finite."""
        return 1e-3

    def sample_task(self) -> Task:
        """Returns the task, or one task of a family."""
        task = _cached_task(self._cache_key)
        return task.task_fn(task.sample(key_of(3))) if isinstance(task, TaskFamily) else task

    def test_initial_parameters_depend_on_the_key_alone(self) -> None:
        init = _init(self._cache_key)
        first = init(key_of(1))
        assert_same_bits(first, init(key_of(1)))
        assert types_of(first) == types_of(init(key_of(2))), "shapes or dtypes change with the key"
        leaves = jax.tree.leaves(first[0])
        assert leaves, "the task has no parameters"
        for leaf in leaves:
            assert jnp.issubdtype(leaf.dtype, jnp.floating), f"a parameter is {leaf.dtype}: it has no gradient"
            assert np.isfinite(np.asarray(leaf)).all()

    def test_the_loss_is_a_finite_number_with_finite_gradients_and_depends_on_the_key_alone(self) -> None:
        params, state, batch = self._start()
        (loss, new_state, metrics), grads = _losses(self._cache_key)(params, state, key_of(4), batch)
        assert (loss.shape, loss.dtype) == ((), jnp.float32)
        for leaf in jax.tree.leaves((loss, grads)):
            assert np.isfinite(np.asarray(leaf)).all()
        assert types_of(grads) == types_of(params)
        assert types_of(new_state) == types_of(state), "the model state changes its structure, shapes or dtypes"
        for name, value in metrics.items():
            assert (value.shape, value.dtype) == ((), jnp.float32), f"metric {name!r}"
        repeated = _losses(self._cache_key)(params, state, key_of(4), batch)
        assert_same_bits(((loss, new_state, metrics), grads), repeated)

    def test_an_evaluation_gives_numbers_of_the_same_names_on_every_split(self) -> None:
        params, state, _ = self._start()
        evaluate = _evaluate(self._cache_key)
        names = set()
        for batch in self._batches().values():
            loss, metrics = evaluate(params, state, key_of(5), batch)
            assert (loss.shape, loss.dtype) == ((), jnp.float32) and np.isfinite(loss)
            names.add(frozenset(metrics))
        assert len(names) == 1, f"splits differ in their metrics: {names}"

    def test_the_normalizer_gives_a_finite_number_and_keeps_the_order_of_losses(self) -> None:
        normalizer = jax.jit(_sample_task(self._cache_key).normalizer, compiler_options=COMPILED_FAST)
        normalized = [float(normalizer(np.float32(loss))) for loss in (0.01, 0.1, 1.0, 10.0)]
        assert np.isfinite(normalized).all() and normalized == sorted(normalized)

    def test_batches_depend_on_the_key_alone_and_have_one_shape(self) -> None:
        datasets = _cached_task(self._cache_key).datasets
        if datasets is None:
            pytest.skip("the task has no data")
        shapes = set()
        for split in SPLITS:
            dataset = getattr(datasets, split)
            if dataset is None:
                continue
            assert isinstance(dataset, ArrayDataset | SampledDataset | IteratorDataset), split
            if isinstance(dataset, ArrayDataset):
                lengths = {leaf.shape[0] for leaf in jax.tree.leaves(dataset.arrays)}
                assert lengths == {dataset.num_examples} and dataset.num_examples > 0
            batch = _batches(self._cache_key)[split]
            assert_same_bits(batch, _batch(dataset, 1))
            assert types_of(batch) == types_of(_batch(dataset, 2))
            shapes.add(types_of(batch))
        assert len(shapes) == 1, f"splits differ in the shapes of their batches: {shapes}"

    def test_trained_by_the_inner_program_it_gives_finite_curves_and_the_same_bits_twice(self) -> None:
        first_curves, second_curves = (self._train(_BLOCK, num_tasks=2) for _ in range(2))
        for name, values in first_curves.metrics.items():
            assert np.isfinite(np.asarray(values)).all(), name
        assert first_curves.num_params > 0 and first_curves.diverged_at == (-1, -1)
        assert set(first_curves.metrics) == set(second_curves.metrics)
        for name, values in first_curves.metrics.items():
            assert same_bits(values, second_curves.metrics[name]), f"{name} has other bits the second time"

    def test_a_task_of_a_family_is_the_same_whatever_their_number(self) -> None:
        family = _cached_task(self._cache_key)
        if not isinstance(family, TaskFamily):
            pytest.skip("not a family of tasks")
        keys = jax.vmap(key_of)(jnp.arange(5))
        sample = jax.jit(jax.vmap(family.sample), compiler_options=COMPILED_FAST)
        five = sample(keys)
        two = sample(keys[:2])
        assert types_of(jax.tree.map(lambda leaf: leaf[0], five)) == types_of(family.sample(key_of(0)))
        for many, few in zip(jax.tree.leaves(five), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(np.asarray(many[:2]), np.asarray(few), rtol=1e-6)

    def _start(self) -> tuple[Any, Any, Any]:
        params, state = _init(self._cache_key)(key_of(1))
        return params, state, self._batches()["train"]

    def _batches(self) -> dict[str, Any]:
        return _batches(self._cache_key)

    def _train(self, block: SeedBlock, *, num_tasks: int) -> Curves:
        program = _program(self._cache_key, num_tasks)
        curves = program.run({}, block)
        assert curves is not None
        return curves


@functools.cache
def _cached_task(contract: Any) -> Task | TaskFamily:
    return as_task(contract().task())


@functools.cache
def _batches(contract: Any) -> dict[str, Any]:
    """Returns a batch of each split; {"train": None} without data."""
    datasets = _cached_task(contract).datasets
    if datasets is None:
        return {"train": None}
    present = {split: getattr(datasets, split) for split in SPLITS}
    return {split: _batch(dataset, 1) for split, dataset in present.items() if dataset is not None}


@functools.cache
def _sample_task(contract: Any) -> Task:
    sampled: Task = contract().sample_task()
    return sampled


@functools.cache
def _init(contract: Any) -> Callable[..., Any]:
    return jax.jit(_sample_task(contract).init_with_state, compiler_options=COMPILED_FAST)


@functools.cache
def _losses(contract: Any) -> Callable[..., Any]:
    task = _sample_task(contract)

    def losses(params: Any, state: Any, key: jax.Array, batch: Any) -> Any:
        def loss_fn(params: Any) -> tuple[jax.Array, Any]:
            loss, new_state, metrics = task.loss_with_state_and_aux(params, state, key, batch)
            return loss, (loss, new_state, dict(metrics))

        (_, outputs), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        return outputs, grads

    return jax.jit(losses, compiler_options=COMPILED_FAST)


@functools.cache
def _evaluate(contract: Any) -> Callable[..., Any]:
    return jax.jit(_sample_task(contract).eval_loss_with_aux, compiler_options=COMPILED_FAST)


@functools.cache
def _program(contract: Any, num_tasks: int) -> TrainingProgram:
    case = Case(num_inner_steps=3, eval_every=2, num_seeds=_BLOCK.size, num_tasks=num_tasks, eval_batches=1)
    optimizer = optax.sgd(contract().rate())
    return TrainingProgram(
        case, _cached_task(contract), lambda theta: as_stepper(optimizer, case.num_inner_steps), _BLOCK.size
    )


def _batch(dataset: Any, seed: int) -> Any:
    if isinstance(dataset, IteratorDataset):
        return next(itertools.islice(dataset.batches(seed), 1))
    return dataset.sample(key_of(seed))
