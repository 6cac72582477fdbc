"""Tasks with several losses: what is asked of them, how they start, and that one regression is the same among many."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.tasks import MultiTaskDigits, MultiTaskRegression
from lobench.inner.tasks.multitask import MultiTask

SHOWN = texts_of("inner")

SMALL = {"hidden_sizes": (4,), "num_inputs": 6, "num_outputs": 3, "batch_size": 256}


def test_a_regression_is_the_same_whatever_their_number() -> None:
    few, many = MultiTaskRegression(num_losses=2, **SMALL), MultiTaskRegression(num_losses=7, **SMALL)

    @jax.jit
    def found(key: jax.Array) -> Any:
        inputs = few.datasets.train.sample(key)["input"]
        starts = [(task, task.init(key)) for task in (few, many)]
        losses = [task.losses(params, None, key, {"input": inputs}) for task, params in starts]
        return [params for _, params in starts], losses, [task.targets(inputs) for task in (few, many)]

    (one, other), losses, targets = found(jax.random.key(0))
    np.testing.assert_allclose(targets[0], targets[1][:, :2], atol=1e-6)
    np.testing.assert_array_equal(one["trunk"]["w0"], other["trunk"]["w0"])
    np.testing.assert_array_equal(one["heads"]["w0"], other["heads"]["w0"][:, : 2 * SMALL["num_outputs"]])
    np.testing.assert_allclose(losses[0], losses[1][:2], rtol=1e-5)


def test_the_regressions_are_gradnorms() -> None:
    task = MultiTaskRegression(num_losses=3)
    matrices = np.arctanh(
        np.asarray(task.targets(0.01 * np.eye(250, dtype=np.float32)) / np.asarray([1, 2, 3])[:, None])
    )
    matrices = matrices / 0.01
    own = matrices - matrices.mean(axis=1, keepdims=True)
    assert own.std() * np.sqrt(3 / 2) == pytest.approx(3.5, rel=0.02)
    assert matrices.mean(axis=1).std() == pytest.approx(np.sqrt(10**2 + 3.5**2 / 3), rel=0.02)
    assert np.asarray(task.datasets.train.sample(jax.random.key(0))["input"]).std() == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(
    "task", [MultiTaskRegression(num_losses=3, **SMALL), MultiTaskDigits(batch_size=512)], ids=["regression", "digits"]
)
def test_who_says_zero_has_a_normalized_loss_of_1(task: MultiTask) -> None:
    @jax.jit
    def of_zeros(key: jax.Array) -> Any:
        params = jax.tree.map(jnp.zeros_like, jax.eval_shape(task.init, key))
        return task.loss_with_state_and_aux(params, None, key, task.datasets.train.sample(key))

    loss, _, aux = of_zeros(jax.random.key(1))
    assert float(task.normalizer(loss)) == pytest.approx(1, rel=0.05)
    losses = [aux[f"loss_task_{number}"] for number in range(1, task.num_losses + 1)]
    np.testing.assert_allclose(np.mean(losses), loss, rtol=1e-6)
    if isinstance(task, MultiTaskRegression):
        expected = np.mean(np.asarray(losses) / np.asarray([1, 4, 9]))
        assert float(aux["task_normalized_loss"]) == pytest.approx(expected, rel=1e-5)
    else:
        np.testing.assert_allclose(losses[:3], np.log([10, 2, 2]), rtol=1e-5)


def test_every_metric_says_its_direction() -> None:
    for task in (MultiTaskRegression(num_losses=2, **SMALL), MultiTaskDigits(batch_size=4)):

        def metrics(key: jax.Array, task: Any = task) -> Any:
            return task.loss_with_state_and_aux(task.init(key), None, key, task.datasets.train.sample(key))[2]

        aux = jax.eval_shape(metrics, jax.random.key(0))
        assert set(aux) - {"accuracy"} == set(task.metric_directions)


class Wrong(MultiTask):
    num_losses = 2

    def __init__(self, losses: Any) -> None:
        self._losses = losses

    def losses(self, params: Any, state: Any, key: Any, data: Any) -> jax.Array:
        return self._losses


@pytest.mark.parametrize(
    ("losses", "got"),
    [(jnp.zeros(3), r"float32\[3\]"), (jnp.zeros(()), r"float32\[\]"), (jnp.zeros(2, jnp.int32), r"int32\[2\]")],
)
def test_losses_of_a_wrong_shape_are_told(losses: jax.Array, got: str) -> None:
    with pytest.raises(ConfigError, match=SHOWN["wrong-losses-got-expected-float32"].format(got=got)):
        Wrong(losses).loss_with_state_and_aux(None, None, None, None)


@pytest.mark.parametrize("scales", [(1,), (1, 0), (1, -1), 3, ("a", "b")])
def test_scales_are_positive_numbers_for_each(scales: Any) -> None:
    with pytest.raises(ConfigError, match=SHOWN["multitaskregression-scales-got-expected"]):
        MultiTaskRegression(num_losses=2, scales=scales, **SMALL)
