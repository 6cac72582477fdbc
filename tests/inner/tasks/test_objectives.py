import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.tasks.objectives import (
    accuracy,
    gradient_noise,
    log10_loss,
    relative_loss,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
)


def test_cross_entropies_by_hand():
    logits = jnp.log(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], jnp.float32))
    expected = -(math.log(0.7) + math.log(0.1)) / 2
    assert float(softmax_cross_entropy(logits, jnp.array([0, 1]))) == pytest.approx(expected, rel=1e-6)
    assert float(accuracy(logits, jnp.array([0, 1]))) == 0.5

    targets, output = np.array([0.0, 1.0, 0.25]), np.array([2.0, 2.0, -1.0])
    p = 1 / (1 + np.exp(-output))
    by_hand = np.mean(-targets * np.log(p) - (1 - targets) * np.log(1 - p))
    assert float(sigmoid_cross_entropy(jnp.float32(output), jnp.float32(targets))) == pytest.approx(by_hand, rel=1e-6)


def test_gradient_noise_has_value_zero_and_the_stated_distribution():
    params = {"a": jnp.full((3,), 7.0), "b": jnp.full((2, 2), -1e6)}
    value_and_grad = jax.jit(jax.vmap(jax.value_and_grad(gradient_noise), in_axes=(None, 0, None)))
    values, grads = value_and_grad(params, jax.random.split(jax.random.key(0), 4000), 0.5)
    assert not np.asarray(values).any()
    for grad in jax.tree.leaves(grads):
        # Four standard errors of the mean and of the standard deviation over 4,000 draws.
        np.testing.assert_allclose(np.mean(grad, axis=0), 0.0, atol=4 * 0.5 / math.sqrt(4000))
        np.testing.assert_allclose(np.std(grad, axis=0), 0.5, rtol=4 / math.sqrt(8000))
    flat = np.concatenate([np.reshape(grad, (4000, -1)) for grad in jax.tree.leaves(grads)], axis=1)
    correlation = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert np.abs(correlation).max() < 0.08, "components share noise"


def test_scales():
    assert float(relative_loss(jnp.float32(1.0), 4.0)) == 0.25
    for worst in (100.0, math.inf, math.nan):
        assert float(relative_loss(jnp.float32(worst), 4.0)) == 2.0
    assert float(log10_loss(jnp.float32(1e-3))) == pytest.approx(-3.0, abs=1e-5)
    assert float(log10_loss(jnp.float32(0.0))) == pytest.approx(-12.0, abs=1e-4)
    assert math.isnan(float(log10_loss(jnp.float32(math.nan))))
