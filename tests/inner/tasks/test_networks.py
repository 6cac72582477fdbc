import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.tasks.networks import convolution3x3, dense_init


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


def test_dense_init_has_the_stated_variance():
    weights = dense_init(jax.random.key(0), 200, 300, gain=2.0)
    assert weights.shape == (200, 300)
    assert weights.dtype == jnp.float32
    assert float(jnp.var(weights)) == pytest.approx(2.0 / 200, rel=0.03)
