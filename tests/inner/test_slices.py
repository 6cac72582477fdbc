"""Trainings in slices: the bits of a slice alone, of seeds and of thetas, and the rule that says when."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lobench.core.case import Case, SeedBlock
from lobench.core.program import Program
from lobench.core.result import Curves
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import MLPLOpt
from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, Task, TaskFamily
from lobench.inner.training import slices
from lobench.inner.training.train import TrainingProgram


class Drawn(Task):
    def __init__(self) -> None:
        train, test = ArrayDataset(np.linspace(-1, 1, 40, dtype=np.float32), 8), ArrayDataset(np.ones(3, np.float32), 2)
        self.datasets = Datasets(train=train, test=test)

    def init(self, key: jax.Array) -> Any:
        return jax.random.normal(key, (3,))

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        noise = jax.random.normal(key)
        return jnp.mean((jnp.tanh(params[0] * data - params[1]) - 0.3 * noise) ** 2) + params[2] ** 2


class Fed(Drawn):
    def __init__(self) -> None:
        def batches(seed: int) -> Any:
            return (np.float32([seed, step, 1]) / 10 for step in range(1000))

        self.datasets = Datasets(train=IteratorDataset(batches), test=IteratorDataset(batches))


class Shifted(TaskFamily):
    def sample(self, key: jax.Array) -> Any:
        return jax.random.uniform(key)

    def task_fn(self, cfg: Any) -> Task:
        class Bowl(Task):
            def init(self, key: jax.Array) -> Any:
                return jax.random.normal(key, (3,))

            def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
                return jnp.sum((params - cfg) ** 2)

        return Bowl()


def program_of(task: Any, num_seeds: int, **values: Any) -> TrainingProgram:
    case = Case(**{"num_inner_steps": 20, "eval_every": 7, "log_every": 1, **values})
    return TrainingProgram(case, task, lambda rate: as_stepper(optax.adam(rate), case.num_inner_steps), num_seeds)


def ran(found: Curves | None) -> Curves:
    assert found is not None
    return found


def in_slices_of(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(slices, "num_at_once", lambda program, num_together: min(count, num_together))
    monkeypatch.setattr("lobench.inner.training.train.num_at_once", slices.num_at_once)


def assert_rows(curves: Curves, rows: slice, alone: Curves) -> None:
    assert curves.metrics.keys() == alone.metrics.keys() and len(alone.metrics) > 1
    assert curves.diverged_at[rows] == alone.diverged_at
    for name, values in alone.metrics.items():
        np.testing.assert_array_equal(np.asarray(curves.metrics[name])[rows], np.asarray(values), name)


@pytest.mark.parametrize(
    ("task", "more"),
    [(Drawn(), {}), (Fed(), {"eval_batches": 3}), (Drawn(), {"eval_batches": 0}), (Shifted(), {"num_tasks": 2})],
    ids=["drawn", "fed", "without evaluations", "a family"],
)
def test_a_slice_has_the_bits_that_it_has_alone(
    task: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    per_seed = more.get("num_tasks", 1)
    rate = np.float32(0.1)
    half = program_of(task, 2, **more)
    halves = [ran(half.run(rate, SeedBlock(start=start, size=2))) for start in (0, 2)]
    in_slices_of(monkeypatch, 2 * per_seed)
    curves = ran(program_of(task, 4, **more).run(rate, SeedBlock(start=0, size=4)))
    assert (curves.provenance.at_once, halves[0].provenance.at_once) == (2 * per_seed, 0)
    for rows, alone in zip((slice(0, 2), slice(2, 4)), halves, strict=True):
        assert_rows(curves, rows, alone)


@pytest.mark.parametrize(("most", "at_once"), [(1, 1), (3, 2), (4, 4)])
def test_thetas_and_seeds_are_cut_alike(most: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rates, block = [np.float32(rate) for rate in (0.1, np.nan, 0.3, 0.2)], SeedBlock(start=3, size=2)
    in_slices_of(monkeypatch, most)
    program = program_of(Drawn(), 2)
    together = program.run_many(rates, block)
    assert together is not None
    for rate, curves in zip(rates, together, strict=True):
        alone = ran(program.run(rate, block))
        assert curves.provenance.at_once == at_once and alone.provenance.at_once == (1 if most == 1 else 0)
        if most < 4:  # each theta's own program does the same
            assert_rows(curves, slice(None), alone)
        else:
            np.testing.assert_allclose(curves.metrics["train/loss"], alone.metrics["train/loss"], rtol=1e-5)


class Wide(Task):
    def init(self, key: jax.Array) -> Any:
        return jax.random.normal(key, (2500,))

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.mean(params**2)


def test_what_would_leave_the_cache_together_is_cut_by_its_size() -> None:
    learned, block, case = MLPLOpt(), SeedBlock(start=0, size=2), Case(num_inner_steps=2, eval_every=2)
    wide = TrainingProgram(case, Wide(), lambda theta: as_stepper(learned.opt_fn(theta, 2), 2), 2)
    narrow = TrainingProgram(case, Wide(), lambda theta: as_stepper(optax.sgd(theta), 2), 2)
    cut = ran(wide.run(learned.init(jax.random.key(0)), block)).provenance
    whole = ran(narrow.run(np.float32(0.1), block)).provenance
    assert (cut.at_once, whole.at_once) == (1, 0)  # arrays of 32 times 2,500 numbers, and of 2,500
    assert Program.of(cut).key != Program.of(whole).key
    assert str(Program(device="cpu: x86-64-v3", at_once=1)).endswith(", cpu: x86-64-v3, 1 at a time")


@settings(max_examples=12)  # each compiles
@given(size=st.integers(1, 6), most=st.integers(1, 6), axis=st.integers(0, 2), data=st.data())
def test_a_function_in_slices_is_the_function_mapped(size: int, most: int, axis: int, data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=2))
    shape.insert(axis, size)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    each = np.arange(size, dtype=np.float32)

    def one(tree: Any, factor: Any) -> Any:
        return {"times": tree["a"] * factor, "sum": tree["a"].sum(), "common": tree["b"] + 1}

    width = slices.widest(size, most)
    axes, results = ({"a": axis, "b": None}, 0), {"times": axis, "sum": 0, "common": None}
    mapped = jax.vmap(one, in_axes=axes, out_axes=results)
    cut = slices.in_slices(one if width == 1 < size else mapped, size, width, axes, results)
    arguments = ({"a": values, "b": np.float32(5)}, each)
    jax.tree.map(np.testing.assert_array_equal, cut(*arguments), mapped(*arguments))
