"""Weighters in the inner program: what they train is the weighted mean, and what they weigh is written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.result import Curves
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.runner import BlockRunner
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import constant_weights, pcgrad, sgd, slaw, slw, uncertainty
from lobench.inner.schedules import cosine
from lobench.inner.tasks.multitask import MultiTask
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")


class Bowls(MultiTask):
    """Three bowls of unlike steepness at unlike places; with `breaks` the second loss is no number from step 3 on."""

    num_losses = 3

    def __init__(self, breaks: bool = False) -> None:
        self._breaks = breaks

    def init(self, key: jax.Array) -> Any:
        return {"at": jax.random.normal(key, (2,)), "step": jnp.zeros(())}

    def losses(self, params: Any, state: Any, key: jax.Array, data: Any) -> jax.Array:
        distances = params["at"] - jnp.asarray([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        losses = jnp.asarray([1.0, 10.0, 0.1]) * jnp.sum(distances**2, axis=1)
        # `step` adds nothing to the losses, and grows by 1 with each step of SGD at a rate of 1.
        losses = losses - params["step"] + jax.lax.stop_gradient(params["step"])
        return losses.at[1].add(jnp.where(self._breaks & (params["step"] > 2.5), jnp.nan, 0.0))


def train(task: Any, optimizer: Any, steps: int = 6, **case: Any) -> Curves:
    bound = Case(task=task, num_inner_steps=steps, num_seeds=2, eval_every=2, **case)
    program = TrainingProgram(bound, task, lambda theta: as_stepper(optimizer, steps), 2)
    curves = program.run({}, SeedBlock(start=0, size=2))
    assert curves is not None
    return curves


def metric(curves: Curves, name: str) -> np.ndarray:
    return np.asarray(curves.metrics[name])


def test_equal_weights_are_the_inner_optimizer_and_others_are_not() -> None:
    alone, equal, tilted = (
        train(Bowls(), optimizer)
        for optimizer in (sgd(0.01), constant_weights(sgd(0.01)), constant_weights(sgd(0.01), weights=(0.1, 2.8, 0.1)))
    )
    np.testing.assert_allclose(metric(equal, "train/loss"), metric(alone, "train/loss"), rtol=1e-5)
    assert (metric(tilted, "train/loss_task_2")[:, -1] < metric(alone, "train/loss_task_2")[:, -1]).all()
    np.testing.assert_allclose(metric(tilted, "train/weight_task_2"), 2.8, rtol=1e-6)
    assert "train/weight_task_1" not in alone.metrics


def test_the_weights_of_each_evaluation_sum_to_k_inside_of_schedules_logs_and_rounds() -> None:
    curves = train(Bowls(), slaw(sgd(cosine(0.01))), log_every=1, num_lanes=2, sessions="synced")
    for name, weights in ((split, split + "/weight_task_{}") for split in ("train", "batch")):
        found = np.stack([metric(curves, weights.format(number)) for number in (1, 2, 3)])
        np.testing.assert_allclose(found.sum(axis=0), 3, rtol=1e-5, err_msg=name)
        assert found.std() > 0.1


def test_without_evaluations_the_weights_are_means_over_the_steps() -> None:
    curves = train(Bowls(), uncertainty(sgd(0.1)), eval_batches=0)
    weights = np.stack([metric(curves, f"train/weight_task_{number}") for number in (1, 2, 3)])
    np.testing.assert_allclose(weights.sum(axis=0), 3, rtol=1e-5)
    np.testing.assert_allclose(weights[:, :, 0], 1)
    assert (weights[1, :, -1] < 1).all()


@pytest.mark.parametrize("optimizer", [slw(sgd(1.0)), uncertainty(sgd(1.0)), pcgrad(sgd(1.0))], ids=["slw", "u", "pc"])
def test_a_loss_that_is_no_number_has_diverged(optimizer: Any) -> None:
    curves = train(Bowls(breaks=True), optimizer)
    assert all(0 <= at <= 5 for at in curves.diverged_at), curves.diverged_at
    assert np.isnan(metric(curves, "train/loss")[:, -1]).all()
    assert np.isnan(metric(curves, "train/weight_task_1")[:, -1]).all()


SUITE = """
import lobench.inner.tasks
import lobench.inner.optimizers
x/Case.task = {task}
x/Case.num_inner_steps = 2
x/Case.optimizer = @{optimizer}()
MultiTaskRegression.num_losses = {num_losses}
"""


@pytest.mark.parametrize(
    ("task", "num_losses", "optimizer", "bindings", "message"),
    [
        ("@DigitsMLP()", 2, "dwa", "", SHOWN["dwa-requests-task-losses-which"]),
        ("@MultiTaskRegression()", 1, "slw", "", SHOWN["slw-weighs-several-losses-got"]),
        (
            "@MultiTaskRegression()",
            3,
            "constant_weights",
            "constant_weights.weights = (1, 1)",
            SHOWN["constant-weights-weights-got-2"],
        ),
        (
            "@MultiTaskRegression()",
            2,
            "constant_weights",
            "constant_weights.weights = (1, 2)",
            SHOWN["constant-weights-weights-sum-to"],
        ),
        ("@MultiTaskRegression()", 2, "slaw", "slaw.inner = @adam", SHOWN["slaw-inner-does-gin-bind"]),
    ],
)
def test_what_cannot_be_weighed_does_not_bind(
    task: str, num_losses: int, optimizer: str, bindings: str, message: str, tmp_path: Path
) -> None:
    text = SUITE.format(task=task, num_losses=num_losses, optimizer=optimizer)
    (tmp_path / "x.gin").write_text(text + bindings)
    [spec] = specs_in(tmp_path / "x.gin")
    with pytest.raises(ConfigError, match=message) as caught:
        BlockRunner(Layers()).bind(spec, "")
    assert "\n" not in str(caught.value)
