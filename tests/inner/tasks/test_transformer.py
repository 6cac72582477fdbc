import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from lobench.inner.tasks.symbols import NETWORKS, network_of

KEY = jax.random.key(0)
SIZES = {"vocab_size": 5, "length": 6, "width": 8, "num_layers": 2, "num_heads": 2}


def logits_by_hand(params, symbols):
    """One window in float64, position by position."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}

    def norm(x, name):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"scale{name}"] + p[f"shift{name}"]

    x = p["embed"][symbols] + p["position"][: len(symbols)]
    for layer in range(2):
        queries, keys, values = np.split(
            np.stack([norm(row, f"_a{layer}") for row in x]) @ p[f"w_qkv{layer}"], 3, axis=1
        )
        collected = np.zeros_like(x)
        for row in range(len(x)):
            for head in (slice(0, 4), slice(4, 8)):
                weights = np.exp(keys[: row + 1, head] @ queries[row, head] / 2)
                collected[row, head] = weights / weights.sum() @ values[: row + 1, head]
        x = x + collected @ p[f"w_mix{layer}"]
        up = np.stack([norm(row, f"_b{layer}") for row in x]) @ p[f"w_up{layer}"] + p[f"b_up{layer}"]
        x = x + up * 0.5 * (1 + erf(up / np.sqrt(2))) @ p[f"w_down{layer}"] + p[f"b_down{layer}"]
    return np.stack([norm(row, "") for row in x]) @ p["w_out"]


def test_the_network_is_the_documented_function():
    network = network_of("Test", "transformer", **SIZES)
    params = jax.jit(network.init)(KEY)
    rng = np.random.default_rng(0)
    params = {name: np.float32(leaf + 0.1 * rng.standard_normal(leaf.shape)) for name, leaf in params.items()}
    symbols = np.array([[0, 1, 2, 3, 4, 0], [4, 4, 1, 0, 2, 2]])
    logits = jax.jit(network.logits)(params, jnp.asarray(symbols))
    # The activation's usual approximation by tanh is off by some 1e-3.
    for found, row in zip(logits, symbols, strict=True):
        np.testing.assert_allclose(found, logits_by_hand(params, row), atol=5e-3)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_prediction_sees_nothing_of_what_comes(network):
    made = network_of("Test", network, **SIZES)
    params = jax.jit(made.init)(KEY)
    first, second = jax.jit(made.logits)(params, jnp.array([[0, 1, 2, 3, 4, 0], [0, 1, 2, 4, 1, 1]]))
    np.testing.assert_array_equal(first[:3], second[:3])
    assert not np.allclose(first[3:], second[3:])
