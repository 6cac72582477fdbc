"""L2O-DM's second layout is the same function, and another optimizer in a store."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.optimizers import L2ODM

SHOWN = texts_of("inner")

PARAMS = {"w": jnp.linspace(-1, 1, 12).reshape(4, 3), "b": jnp.full(3, 0.5), "scalar": jnp.float32(2.0)}


def trained(layout: str, num_steps: int) -> dict[str, Any]:
    optimizer = L2ODM(layout=layout)
    made = optimizer.opt_fn(optimizer.init(jax.random.key(3)))

    @jax.jit
    def train(params: Any) -> Any:
        def step(_: jax.Array, carry: Any) -> Any:
            params, state = carry
            grads = jax.grad(lambda at: sum(jnp.sum(jnp.cos(3 * leaf)) for leaf in jax.tree.leaves(at)))(params)
            updates, state = made.update(grads, state, params)
            return jax.tree.map(jnp.add, params, updates), state

        return jax.lax.fori_loop(0, num_steps, step, (params, made.init(params)))[0]

    return train(PARAMS)


def test_both_layouts_compute_the_same() -> None:
    rows, columns = trained("rows", 20), trained("columns", 20)
    for name, leaf in rows.items():
        assert np.abs(np.asarray(leaf - PARAMS[name])).max() > 1e-3
        np.testing.assert_allclose(columns[name], leaf, atol=1e-5)


def test_another_layout_is_refused() -> None:
    with pytest.raises(ConfigError, match=SHOWN["got-diagonal-expected-rows-or"]):
        L2ODM(layout="diagonal")
