import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.tasks.quadratic import Quadratic, QuadraticFamily

KEY = jax.random.key(3)


@pytest.mark.parametrize("rotated", [True, False])
def test_hessian_has_the_stated_eigenvalues(rotated):
    task = Quadratic(dim=6, condition=50.0, rotated=rotated)
    hessian = np.asarray(jax.hessian(lambda x: task.loss({"x": x}, KEY, None))(jnp.zeros(6)))
    eigenvalues = np.linalg.eigvalsh(hessian)
    np.testing.assert_allclose(eigenvalues, np.logspace(-np.log10(50), 0, 6), rtol=1e-4)
    off_axis = np.abs(hessian - np.diag(np.diag(hessian))).max()
    assert (off_axis > 0.01) == rotated


def test_minimum_is_zero_at_the_optimum_and_losses_are_never_negative():
    task = Quadratic(dim=20, condition=1e4)
    value, grads = jax.value_and_grad(task.loss)({"x": jnp.asarray(task.optimum)}, KEY, None)
    assert float(value) == 0.0
    assert not np.asarray(grads["x"]).any()
    near = task.optimum + 1e-7 * np.random.default_rng(0).standard_normal((500, 20)).astype(np.float32)
    losses = jax.vmap(lambda x: task.loss({"x": x}, KEY, None))(near)
    assert np.all(np.asarray(losses) >= 0)


def test_the_problem_is_the_seeds_and_the_start_is_the_keys():
    np.testing.assert_array_equal(Quadratic(dim=4).factor, Quadratic(dim=4).factor)
    assert not np.array_equal(Quadratic(dim=4).factor, Quadratic(dim=4, problem_seed=1).factor)
    task = Quadratic(dim=4)
    np.testing.assert_array_equal(task.init(KEY)["x"], task.init(KEY)["x"])
    assert not np.array_equal(task.init(KEY)["x"], task.init(jax.random.key(4))["x"])


def test_noise_is_in_the_training_gradient_alone():
    clean, noisy = Quadratic(dim=4), Quadratic(dim=4, noise_std=0.5)
    params = clean.init(KEY)
    keys = jax.random.split(KEY, 2000)
    values, grads = jax.vmap(jax.value_and_grad(noisy.loss), in_axes=(None, 0, None))(params, keys, None)
    value, grad = jax.value_and_grad(clean.loss)(params, KEY, None)
    np.testing.assert_allclose(values, value, rtol=1e-6)
    np.testing.assert_allclose(np.mean(grads["x"], axis=0), grad["x"], atol=0.05)
    np.testing.assert_allclose(np.std(grads["x"], axis=0), 0.5, rtol=0.1)
    eval_grad = jax.grad(lambda params: noisy.eval_loss_with_aux(params, None, KEY, None)[0])(params)
    np.testing.assert_allclose(eval_grad["x"], grad["x"], rtol=1e-6)


def test_family_task_is_a_quadratic_with_its_eigenvalues():
    family = QuadraticFamily(dim=5, max_condition=100.0)
    cfg = family.sample(KEY)
    assert np.all((np.asarray(cfg["eigenvalues"]) >= 0.01 * 0.999) & (np.asarray(cfg["eigenvalues"]) <= 1.0))
    task = family.task_fn(cfg)
    hessian = jax.hessian(lambda x: task.loss({"x": x}, KEY, None))(jnp.zeros(5))
    np.testing.assert_allclose(np.linalg.eigvalsh(hessian), np.sort(cfg["eigenvalues"]), rtol=1e-3)
    assert np.abs(hessian - jnp.diag(jnp.diag(hessian))).max() > 0.01
    assert float(task.loss({"x": cfg["optimum"]}, KEY, None)) == 0.0


@pytest.mark.parametrize("family", [QuadraticFamily(dim=5), QuadraticFamily(dim=5, max_noise_std=1.0)])
def test_family_task_is_the_same_however_many_there_are(family):
    def loss_and_grad(index):
        task = family.task_fn(family.sample(jax.random.fold_in(KEY, index)))
        return jax.value_and_grad(task.loss)(task.init(KEY), KEY, None)

    alone = [jax.jit(loss_and_grad)(index) for index in range(2)]
    many, many_grads = jax.jit(jax.vmap(loss_and_grad))(jnp.arange(7))
    for index, (loss, grads) in enumerate(alone):
        np.testing.assert_allclose(many[index], loss, rtol=1e-6)
        np.testing.assert_allclose(many_grads["x"][index], grads["x"], rtol=1e-5, atol=1e-6)
    assert len(set(np.asarray(many).tolist())) == 7


def test_noise_of_a_family_differs_by_task_and_spares_evaluations():
    family = QuadraticFamily(dim=3, max_noise_std=1.0)
    stds = [float(family.sample(jax.random.key(index))["noise_std"]) for index in range(4)]
    assert len(set(stds)) == 4
    assert all(0 <= std <= 1 for std in stds)
    task = family.task_fn(family.sample(KEY))
    params = task.init(KEY)
    noisy = jax.grad(task.loss)(params, KEY, None)
    exact = jax.grad(lambda params: task.eval_loss_with_aux(params, None, KEY, None)[0])(params)
    assert not np.allclose(noisy["x"], exact["x"], rtol=1e-3)


@pytest.mark.parametrize("task", [Quadratic(), QuadraticFamily().task_fn(QuadraticFamily().sample(KEY))])
def test_adam_lowers_the_loss(task, train):
    (before, after), finite, aux = train(task, steps=200, learning_rate=0.1)
    assert finite
    assert after < 0.05 * before
    assert float(aux["normalized"]) == pytest.approx(np.log10(max(after, 1e-12)), abs=1e-3)
