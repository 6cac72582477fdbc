"""Every shipped optimizer trains networks of whole and short numbers, with scalars and with empty tensors."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench import LearnedOptimizer
from lobench.extend import as_stepper
from lobench.inner import optimizers
from lobench.testing.bits import COMPILED_FAST
from lobench.testing.optimizers import extra_values_for, facts_for

KEY = jax.random.key(0)


# A float32 scalar is among the parameters of `OptimizerContract`.
SHAPES = {
    "whole_weights": (3, 2),
    "whole_nothing": (0,),
    "whole_no_kernel": (2, 0, 3),
    "short_weights": (3, 2),
    "short_scalar": (),
    "short_nothing": (0,),
    "short_no_kernel": (2, 0, 3),
}


def odd() -> dict[str, Any]:
    return {
        name: np.ones(shape, jnp.bfloat16 if name.startswith("short") else np.float32) for name, shape in SHAPES.items()
    }


def theta_of(optimizer: LearnedOptimizer) -> Any:
    """Returns a theta of small numbers, without the program that `init` would be."""
    generator = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: (0.1 * generator.standard_normal(leaf.shape)).astype(leaf.dtype),
        jax.eval_shape(optimizer.init, KEY),
    )


SMALL = {"MuLO": {"hidden_size": 4}, "VeLO": {"lstm_hidden_size": 16, "param_inits": 8}}  # they compile faster
NEEDING = {"opt_list", *optimizers.weighters.__all__}  # a file, a task with several losses


@pytest.mark.parametrize("name", [name for name in optimizers.__all__ if name not in NEEDING])
def test_it_steps(name: str) -> None:
    optimizer = getattr(optimizers, name)(**SMALL.get(name, {}))
    theta = theta_of(optimizer) if isinstance(optimizer, LearnedOptimizer) else None

    @functools.partial(jax.jit, compiler_options=COMPILED_FAST)
    def train(theta: Any, params: Any) -> Any:
        stepper = as_stepper(optimizer if theta is None else optimizer.opt_fn(theta, 10), 10)

        def step(_: jax.Array, carry: Any) -> Any:
            state, params = carry
            extra_values = extra_values_for(stepper, params, params)
            return stepper.step(state, params, None, params, jnp.float32(1), KEY, None, extra_values)[:2]

        facts = facts_for(stepper, params)
        params = stepper.initial_params(params, facts)
        state, params = jax.lax.fori_loop(0, 3, step, (stepper.init(params, None, KEY, facts), params))
        return stepper.eval_params(state, params)

    end = train(theta, odd())
    for path, leaf in odd().items():
        assert (end[path].shape, end[path].dtype) == (leaf.shape, leaf.dtype)
        assert np.isfinite(np.asarray(end[path], np.float32)).all()
