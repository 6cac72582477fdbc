import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.optimizers import LearnableSGD
from lobench.inner.tasks.digits import digits_splits
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.tasks.meta import DatasetDistillation, Distillation, ESSmoothed, MetaTraining
from lobench.inner.tasks.quadratic import Quadratic, QuadraticFamily

KEY = jax.random.key(0)


def test_the_loss_of_a_learned_optimizer_is_that_of_its_trainings():
    task = MetaTraining(learned_optimizer=LearnableSGD(), num_unroll=5, num_tasks=3)
    of_rate = jax.jit(lambda rate: task.loss({"log_lr": jnp.log(rate)}, KEY, None))
    assert float(of_rate(0.0)) == pytest.approx(1.0, rel=1e-6)
    assert float(of_rate(0.5)) < float(of_rate(0.1)) < 1.0
    gradient = jax.grad(of_rate)(0.1)
    slope = (of_rate(0.11) - of_rate(0.09)) / 0.02
    assert float(gradient) == pytest.approx(float(slope), rel=0.02)


def test_a_loss_of_one_step_by_hand():
    family = QuadraticFamily(dim=3)
    task = MetaTraining(learned_optimizer=LearnableSGD(), family=family, num_unroll=1, num_tasks=1)
    task_key, init_key, _, _ = jax.random.split(jax.random.split(KEY, 1)[0], 4)
    bowl = family.task_fn(family.sample(task_key))
    params = bowl.init(init_key)
    loss, grads = jax.value_and_grad(bowl.loss)(params, KEY, None)
    after = bowl.loss({"x": params["x"] - 0.3 * grads["x"]}, KEY, None)
    found = task.loss({"log_lr": jnp.log(jnp.float32(0.3))}, KEY, None)
    assert float(found) == pytest.approx(float((loss + after) / (2 * loss)), rel=1e-5)


def test_a_small_learned_optimizer_gets_better(train):
    (before, after), finite, _ = train(MetaTraining(num_unroll=8, num_tasks=4), steps=80, learning_rate=0.01)
    assert finite and after < 0.9 * before


def test_the_smoothed_gradient_is_the_gradient_on_average_and_evaluations_are_exact():
    inner = Quadratic(dim=3, condition=3.0)
    task = ESSmoothed(task=inner, std=0.1, num_pairs=4000)
    params = inner.init(KEY)
    loss, grads = jax.jit(jax.value_and_grad(task.loss_with_state, has_aux=True))(params, None, KEY, None)
    wanted = jax.grad(inner.loss)(params, KEY, None)
    # A quadratic's smoothed gradient is its own.
    np.testing.assert_allclose(grads["x"], wanted["x"], atol=0.08 * np.linalg.norm(wanted["x"]))
    curvature = float(np.trace(inner.factor.T @ inner.factor))
    assert float(loss[0]) - float(inner.loss(params, KEY, None)) == pytest.approx(0.01 * curvature / 2, rel=0.1)
    assert float(task.eval_loss_with_aux(params, None, KEY, None)[0]) == float(inner.loss(params, KEY, None))


def test_a_smoothed_task_keeps_data_state_and_metrics(train):
    inner = DigitsMLP(hidden_sizes=(4,), norm="batch", batch_size=32)
    task = ESSmoothed(task=inner, num_pairs=2)
    assert task.datasets is inner.datasets
    (before, after), finite, metrics = train(task, steps=150, learning_rate=0.02)
    assert finite and after < before and set(metrics) == {"accuracy", "normalized"}


def test_the_teacher_is_good_and_the_student_comes_near(train):
    task = Distillation()
    for split, images in (("train", digits_splits().train), ("test", digits_splits().test)):
        arrays = getattr(task.datasets, split).arrays
        np.testing.assert_array_equal(arrays["image"], images["image"])
        np.testing.assert_allclose(np.exp(arrays["teacher"]).sum(axis=1), 1, rtol=1e-5)
        assert (arrays["teacher"].argmax(axis=1) == arrays["label"]).mean() > 0.95
    (before, after), finite, metrics = train(task, steps=150, learning_rate=0.02)
    assert finite and before > 1.0 and 0 < after < 0.25 * before
    assert float(metrics["accuracy"]) > 0.8


def test_ten_learned_images_teach_the_digits(train):
    task = DatasetDistillation()
    blank = {"image": jnp.zeros((10, 64)), "log_rate": jnp.zeros(())}
    batch = task.datasets.train.sample(KEY)
    assert float(task.loss_with_state(blank, None, KEY, batch)[0]) == pytest.approx(np.log(10), rel=1e-5)
    (before, after), finite, metrics = train(task, steps=150, learning_rate=0.05)
    assert finite and after < 0.4 * before
    assert float(metrics["accuracy"]) > 0.8
