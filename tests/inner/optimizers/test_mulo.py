"""MuLO's steps: AdafacMLPLOpt's, smaller where a matrix lies between hidden layers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench import ConfigError
from lobench.inner.optimizers import AdafacMLPLOpt, MuLO

SHOWN = texts_of("inner")

PARAMS = {"b1": jnp.zeros(12), "w0": jnp.ones((5, 8)), "w1": jnp.ones((8, 12)), "w2": jnp.ones((12, 3))}


def steps(optimizer: Any) -> dict[str, jax.Array]:
    """Returns the first update."""

    @jax.jit
    def first_update(key: jax.Array) -> dict[str, jax.Array]:
        made = optimizer.opt_fn(optimizer.init(key))
        grads = {
            name: jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape) for name, leaf in PARAMS.items()
        }
        updates: dict[str, jax.Array] = made.update(grads, made.init(PARAMS), PARAMS)[0]
        return updates

    return first_update(jax.random.key(0))


def test_a_step_between_hidden_layers_shrinks_with_its_inputs() -> None:
    plain, scaled = steps(AdafacMLPLOpt(step_mult=0.01)), steps(MuLO("w1|b", base_width=2, hidden_size=4))
    for name, factor in {"b1": 1.0, "w0": 1.0, "w1": 2 / 8, "w2": 1.0}.items():
        np.testing.assert_allclose(scaled[name], factor * plain[name], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "output"),
    [
        (
            {"hidden": "layer"},
            SHOWN["mulo-hidden-names-no-matrix"],
        ),
        ({"hidden": "("}, SHOWN["mulo-hidden-is-not-a"]),
        ({"base_width": 0}, SHOWN["mulo-base-width-got-0"]),
    ],
)
def test_what_is_no_width_is_said_in_a_line(settings: dict[str, Any], output: str) -> None:
    with pytest.raises(ConfigError, match=output.replace("(", r"\(")):
        steps(MuLO(**settings, hidden_size=4))
