"""Families whose tasks have data of their own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.result import Curves
from lobench.inner.adapters import as_stepper
from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, SampledDataset, Task, TaskFamily
from lobench.inner.training.streams import _FAMILY_SEED, key_of
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")


class Regression(Task):
    """The mean of a task's own data, found by least squares."""

    def __init__(self, center: Any, kind: str) -> None:
        points = center + jnp.zeros((8, 2))
        dataset: Any = {
            "arrays": ArrayDataset(points, batch_size=4),
            "sampled": SampledDataset(lambda key: center + jnp.zeros((4, 2)) * jax.random.normal(key)),
            "iterator": IteratorDataset(lambda seed: iter([np.zeros((4, 2), np.float32)])),
        }[kind]
        self.datasets = Datasets(train=dataset, test=ArrayDataset(points, batch_size=2))

    def init(self, key: jax.Array) -> Any:
        return jnp.zeros(2)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.mean((params - data) ** 2)


class Regressions(TaskFamily):
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def sample(self, key: jax.Array) -> Any:
        return jax.random.normal(key)

    def task_fn(self, cfg: Any) -> Task:
        return Regression(cfg, self._kind)


def run(task: TaskFamily, **values: Any) -> Curves:
    case = Case(num_inner_steps=6, eval_every=3, **values)
    program = TrainingProgram(case, task, lambda theta: as_stepper(optax.sgd(0.25), 6), 2)
    curves = program.run({}, SeedBlock(start=0, size=2))
    assert curves is not None
    return curves


@pytest.mark.parametrize("kind", ["arrays", "sampled"])
@pytest.mark.parametrize("more", [{}, {"sessions": "shared", "num_lanes": 1}])
def test_each_task_of_a_family_trains_on_its_own_data(kind: str, more: dict[str, Any]) -> None:
    curves = run(Regressions(kind), num_tasks=3, **more)
    keys = [jax.random.fold_in(key_of(_FAMILY_SEED), index) for index in range(3)]
    centers = np.asarray([jax.random.normal(key) for key in keys])
    # A step of 0.25 leaves three quarters of the distance to the center.
    expected = [np.mean((centers * 0.75**step) ** 2) for step in (0, 3, 6)]
    for split in ("train", "test"):
        np.testing.assert_allclose(curves.metrics[f"{split}/loss"], [expected] * 2, rtol=1e-5)


def test_a_familys_common_data_comes_before_its_tasks() -> None:
    family = Regressions("arrays")
    family.datasets = Datasets(train=ArrayDataset(np.full((4, 2), 5.0, np.float32), batch_size=4))
    curves = run(family)
    assert curves.metrics.keys() == {"train/loss"}
    np.testing.assert_allclose(np.asarray(curves.metrics["train/loss"])[:, 0], 25.0)


def test_an_iterator_of_one_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=SHOWN["datasets-of-regression-a-task"]):
        run(Regressions("iterator"))
