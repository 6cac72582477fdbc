import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.tasks.convolutional import ConvClassifier
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.tasks.normalization import (
    Norm,
    batch_norm_inference,
    batch_norm_training,
    group_norm,
    layer_norm,
    norm_init,
    normalized,
)

SHOWN = texts_of("inner")

KEY = jax.random.key(0)


def test_norms_by_hand():
    x = np.random.default_rng(0).normal(3.0, 2.0, (50, 4)).astype(np.float32)
    scale, shift = np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, -1])

    rows = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(layer_norm(x, scale, shift), rows * scale + shift, rtol=1e-4, atol=1e-5)

    columns = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    out, mean, variance = batch_norm_training(x, scale, shift, jnp.zeros(4), jnp.ones(4))
    np.testing.assert_allclose(out, columns * scale + shift, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(mean, 0.1 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * x.var(0), rtol=1e-5)

    inferred = batch_norm_inference(x, scale, shift, x.mean(0), x.var(0))
    np.testing.assert_allclose(inferred, columns * scale + shift, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(6, 8), (6, 3, 3, 8)])
def test_group_norm_gives_each_example_mean_0_and_variance_1_in_each_group(shape):
    x = np.random.default_rng(0).normal(3.0, 2.0, shape).astype(np.float32)
    parts = np.asarray(group_norm(x, 2)).reshape(6, -1, 2, 4).astype(np.float64)
    np.testing.assert_allclose(parts.mean(axis=(1, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(parts.var(axis=(1, 3)), 1, atol=1e-4)


def test_continual_normalization_is_group_norm_then_batch_norm():
    x = np.random.default_rng(0).normal(3.0, 2.0, (20, 8)).astype(np.float32)
    norm = Norm(kind="batch", groups=4)
    params, state = norm_init(norm, "0", 8)
    out, moved = normalized(norm, jnp.asarray(x), "0", params, state, training=True)
    parts = x.reshape(20, 4, 2)
    parts = ((parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)).reshape(20, 8)
    np.testing.assert_allclose(out, (parts - parts.mean(0)) / np.sqrt(parts.var(0) + 1e-5), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(moved["mean0"], 0.1 * parts.mean(0), rtol=1e-3, atol=1e-5)


def test_groups_that_do_not_divide_a_layer_are_refused():
    with pytest.raises(ConfigError, match=SHOWN["layer-of-8-features-does"]):
        norm_init(Norm(kind="batch", groups=3), "0", 8)


def test_without_epsilon_inputs_eight_times_as_large_are_the_same_and_what_does_not_vary_becomes_the_shift():
    x = np.random.default_rng(0).normal(3.0, 2.0, (20, 4)).astype(np.float32)
    x[:, 3] = 5.0
    norm = Norm(kind="batch", epsilon=0.0)
    params, state = norm_init(norm, "0", 4)

    @jax.jit
    def out(x):
        def total(x):
            return (normalized(norm, x, "0", params, state, training=True)[0] ** 3).sum()

        return normalized(norm, x, "0", params, state, training=True)[0], jax.grad(total)(x)

    found, gradient = out(x)
    eightfold, gradient_of_eightfold = out(8 * x)
    assert np.array_equal(found, eightfold) and np.array_equal(gradient, 8 * gradient_of_eightfold)
    assert np.all(found[:, 3] == 0) and np.all(np.isfinite(gradient))


def test_a_task_says_its_epsilon_and_does_without_biases_before_a_norm():
    params, state = MLPClassifier(hidden_sizes=(8, 8), norm="batch", hidden_biases=False).init_with_state(KEY)
    assert {"b2"} == {name for name in params if name.startswith("b")} and set(state) >= {"mean0", "variance1"}
    assert ConvClassifier(norm="batch", norm_epsilon=0.0).norm == Norm(kind="batch", epsilon=0.0)
    for wrong in (-1.0, "small"):
        with pytest.raises(ConfigError, match=SHOWN["norm-epsilon-got"]):
            MLPClassifier(norm="batch", norm_epsilon=wrong)
