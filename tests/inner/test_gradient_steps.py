"""Bare gradient steps: timed on every kind of data, of as many trainings together as the optimizer's own steps."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from saved_worlds import BLOCK, Counting, Regression

from lobench.core.case import Case
from lobench.inner.task import Task, TaskFamily
from lobench.inner.training.gradient_steps import GradientSteps


class Family(TaskFamily):
    """Two regressions a seed."""

    def sample(self, key: object) -> object:
        return key

    def task_fn(self, config: object) -> Task:
        return Regression("array")

    datasets = Regression("array").datasets


@pytest.mark.parametrize(
    ("task", "num_thetas"),
    [(Regression("array"), 0), (Regression("replayed"), 0), (Counting("array"), 3), (Family(), 0)],
    ids=["array", "fed", "three thetas", "family"],
)
def test_a_bare_step_is_timed_without_training_to_the_end(task: Task | TaskFamily, num_thetas: int) -> None:
    case = Case(num_inner_steps=40, eval_every=10, eval_batches=2, num_tasks=2)
    found = GradientSteps(case, task, BLOCK.size).cost(BLOCK, num_thetas)
    assert found is not None and 1 <= len(found.samples) <= 9
    assert found.num_together == BLOCK.size * max(num_thetas, 1)
    assert found.state_bytes == 0 and all(seconds > 0 for seconds in found.samples)


def test_a_case_of_too_few_steps_has_no_time() -> None:
    case = Case(num_inner_steps=2, eval_every=1, eval_batches=1)
    assert GradientSteps(case, Regression("array"), BLOCK.size).cost(BLOCK) is None


def test_the_parameters_are_read_and_stay() -> None:
    """What does not use the gradient would be compiled away, and so would a rate of 0 that is a constant."""
    program = GradientSteps(Case(num_inner_steps=40, eval_batches=1), Regression("array"), 1)
    theta = {"learning_rate": jnp.float32(0.5)}
    moved, still = (program.run(at, BLOCK.halves()[0]) for at in (theta, {"learning_rate": jnp.float32(0)}))
    assert moved is not None and still is not None
    first, last = moved.metrics["train/loss"].tolist()[0]
    assert last < first and len(set(still.metrics["train/loss"].tolist()[0])) <= 2
