"""Every shipped optimizer trains networks of short numbers, with scalars and with tensors that hold nothing."""

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


def odd(dtype: Any) -> dict[str, Any]:
    return {
        "weights": jnp.ones((3, 2), dtype),
        "scalar": jnp.ones((), dtype),
        "nothing": jnp.ones((0,), dtype),
        "no_kernel": jnp.ones((2, 0, 3), dtype),
    }


NEEDING = {"opt_list", *optimizers.weighters.__all__}  # a file, a task with several losses


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("name", [name for name in optimizers.__all__ if name not in NEEDING])
def test_it_steps(name: str, dtype: Any) -> None:
    optimizer = getattr(optimizers, name)()
    if isinstance(optimizer, LearnedOptimizer):
        optimizer = optimizer.opt_fn(optimizer.init(KEY), 10)
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

    end = train(odd(dtype))
    for path, leaf in odd(dtype).items():
        assert (end[path].shape, end[path].dtype) == (leaf.shape, leaf.dtype)
        assert np.isfinite(np.asarray(end[path], np.float32)).all()
