import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.tasks.networks import (
    batch_norm_inference,
    batch_norm_training,
    convolution3x3,
    dense_init,
    layer_norm,
)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_equals_xlas(stride):
    keys = jax.random.split(jax.random.key(0))
    images = jax.random.normal(keys[0], (2, 8, 8, 3))
    kernel = jax.random.normal(keys[1], (3, 3, 3, 5))
    expected = jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = convolution3x3(images, kernel.reshape(27, 5), stride=stride)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


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


def test_dense_init_has_the_stated_variance():
    weights = dense_init(jax.random.key(0), 200, 300, gain=2.0)
    assert weights.shape == (200, 300)
    assert weights.dtype == jnp.float32
    assert float(jnp.var(weights)) == pytest.approx(2.0 / 200, rel=0.03)
