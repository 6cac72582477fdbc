"""A short Adam run of any task, as one compiled program."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

Train = Callable[..., tuple[np.ndarray, bool, dict[str, Any]]]


@pytest.fixture
def train() -> Train:
    """`train(task, ...)` -> evaluation loss before and after, whether all gradients were finite, last metrics."""

    def run(task: Any, *, steps: int = 60, learning_rate: float = 0.01, seed: int = 0) -> Any:
        losses, finite, aux = program(task, steps, learning_rate)(seed)
        return np.asarray(losses), bool(finite), aux

    return run


@functools.cache
def program(task: Any, steps: int, learning_rate: float) -> Any:
    optimizer = optax.adam(learning_rate)
    # Compiled separately, so that functions called twice are traced once.
    draw = jax.jit(functools.partial(batch_of, task))
    evaluate = jax.jit(task.eval_loss_with_aux)

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        params, state, opt_state = carry

        def loss_fn(params: Any) -> tuple[jax.Array, Any]:
            loss, new_state, _ = task.loss_with_state_and_aux(params, state, key, draw(key))
            return loss, new_state

        (loss, state), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        finite = jnp.stack([jnp.isfinite(leaf).all() for leaf in [loss, *jax.tree.leaves(grads)]]).all()
        updates, opt_state = optimizer.update(grads, opt_state)
        return (optax.apply_updates(params, updates), state, opt_state), finite

    @jax.jit
    def run(seed: jax.Array) -> Any:
        init_key, data_key = jax.random.split(jax.random.key(seed))
        eval_key = jax.random.key(99)
        batch = draw(eval_key)
        params, state = task.init_with_state(init_key)
        before, _ = evaluate(params, state, eval_key, batch)
        carry = (params, state, optimizer.init(params))
        (params, state, _), finite = jax.lax.scan(step, carry, jax.random.split(data_key, steps))
        after, aux = evaluate(params, state, eval_key, batch)
        return jnp.stack([before, after]), finite.all(), {**aux, "normalized": task.normalizer(after)}

    return run


def batch_of(task: Any, key: jax.Array) -> Any:
    return task.datasets.train.sample(key) if task.datasets is not None else None
