"""Benchmarks of a network so wide that its gradient costs more than its optimizer."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import inner
import jax
import jax.numpy as jnp
import numpy as np
from harness import Benchmark, Rounds, interleaved

from lobench.inner.backend import compiler_options

__all__ = ["BENCHMARKS"]

_WIDE = {"w0": (192, 512), "w1": (512, 512), "w2": (512, 10), "b0": (512,), "b1": (512,), "b2": (10,)}
_WIDE_BATCH = 256


def _wide_loss(params: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(x @ params["w0"] + params["b0"])
    hidden = jax.nn.relu(hidden @ params["w1"] + params["b1"])
    logits = hidden @ params["w2"] + params["b2"]
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, 10) * jax.nn.log_softmax(logits), axis=-1))


def _wide_steps(optimizer: Any, count: int) -> Callable[[], object]:
    """`count` steps of a 192-512-512-10 network in one program; a bare step where there is no optimizer."""
    keys = iter(jax.random.split(jax.random.key(0), len(_WIDE) + 1))
    params = {name: jax.random.normal(next(keys), shape) / np.sqrt(shape[0]) for name, shape in _WIDE.items()}
    x, labels = jax.random.normal(next(keys), (_WIDE_BATCH, 192)), jnp.arange(_WIDE_BATCH) % 10

    def train(params: Any, x: jax.Array, labels: jax.Array) -> Any:
        def step(_: int, carry: Any) -> Any:
            params, state = carry
            loss, grads = jax.value_and_grad(_wide_loss)(params, x, labels)
            if optimizer is None:
                return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), state
            updates, state = optimizer.update(grads, state, params, value=loss)
            return jax.tree.map(jnp.add, params, updates), state

        return jax.lax.fori_loop(0, count, step, (params, optimizer.init(params) if optimizer else ()))

    run = jax.jit(train, compiler_options=compiler_options())
    return lambda: jax.block_until_ready(run(params, x, labels))


def _wide(name: str, quick: bool) -> Rounds:
    count, rounds = (10, 3) if quick else (30, 9)
    named = "AdafacMLPLOpt" if name == "adafac" else "Adam"
    what = f"MLP 192-512-512-10, batch {_WIDE_BATCH}, {count} steps: {named}'s whole step over the bare gradient step"
    return interleaved(what, _wide_steps(inner._optimizer(name), count), _wide_steps(None, count), rounds)


def _wide_flops(quick: bool) -> Rounds:
    """FLOP rate of the bare step over that of a large matrix product."""
    count, rounds = (10, 3) if quick else (30, 9)
    # Forward, gradient of the weights, gradient of the inputs of every layer but the first.
    sizes = [np.prod(_WIDE[name]) for name in ("w0", "w1", "w2")]
    flops_of_step = 2 * _WIDE_BATCH * (3 * sum(sizes) - sizes[0])
    side = 1536
    matrix = jax.random.normal(jax.random.key(0), (side, side))
    product = jax.jit(lambda a: a @ a)
    matmul = lambda: jax.block_until_ready(product(matrix))  # noqa: E731
    what = f"MLP 192-512-512-10: FLOP rate of {count} bare steps over that of a product of {side} x {side} matrices"
    found = interleaved(what, matmul, _wide_steps(None, count), rounds)
    return dataclasses.replace(found, ratios=[ratio * flops_of_step * count / (2 * side**3) for ratio in found.ratios])


BENCHMARKS = (
    Benchmark(name="wide_adafac", target="<= 1.6", measure=functools.partial(_wide, "adafac"), threads=2),
    Benchmark(name="wide_adam", target="<= 1.05", measure=functools.partial(_wide, "adam"), threads=2),
    Benchmark(name="wide_flops", target=">= 0.75", measure=_wide_flops, threads=2),
)
