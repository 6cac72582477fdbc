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


SHAPES = {"weights": (3, 2), "scalar": (), "nothing": (0,), "no_kernel": (2, 0, 3)}


def odd() -> dict[str, Any]:
    dtypes = {"whole": jnp.float32, "short": jnp.bfloat16}
    return {
        f"{kind}_{name}": jnp.ones(shape, dtype) for kind, dtype in dtypes.items() for name, shape in SHAPES.items()
    }


SMALL = {"MuLO": {"hidden_size": 4}, "VeLO": {"lstm_hidden_size": 16, "param_inits": 8}}  # they compile faster
NEEDING = {"opt_list", *optimizers.weighters.__all__}  # a file, a task with several losses


@pytest.mark.parametrize("name", [name for name in optimizers.__all__ if name not in NEEDING])
def test_it_steps(name: str) -> None:
    optimizer = getattr(optimizers, name)(**SMALL.get(name, {}))
    if isinstance(optimizer, LearnedOptimizer):
        optimizer = optimizer.opt_fn(jax.jit(optimizer.init, compiler_options=COMPILED_FAST)(KEY), 10)
    stepper = as_stepper(optimizer, 10)

    @functools.partial(jax.jit, compiler_options=COMPILED_FAST)
    def train(params: Any) -> Any:
        def step(_: jax.Array, carry: Any) -> Any:
            state, params = carry
            extra_values = extra_values_for(stepper, params, params)
            return stepper.step(state, params, None, params, jnp.float32(1), KEY, None, extra_values)[:2]

        facts = facts_for(stepper, params)
        params = stepper.initial_params(params, facts)
        state, params = jax.lax.fori_loop(0, 3, step, (stepper.init(params, None, KEY, facts), params))
        return stepper.eval_params(state, params)

    end = train(odd())
    for path, leaf in odd().items():
        assert (end[path].shape, end[path].dtype) == (leaf.shape, leaf.dtype)
        assert np.isfinite(np.asarray(end[path], np.float32)).all()
