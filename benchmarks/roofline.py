"""What a step costs at least: XLA's count of its FLOPs and bytes over this machine's measured rates.

Usage: python benchmarks/roofline.py

For updates of learned optimizers and for whole inner steps, one thread: the time that arithmetic alone and memory alone
would take, and the time that was taken. XLA counts an exponential as one FLOP; how many there are is shown beside, and
of how many kernels it made the update or the step: each is a launch on a GPU.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("NPROC", "1")

import inner
import jax
import jax.numpy as jnp
import numpy as np
import wide
from harness import answer_help, machine, seconds_of


def _best(work: Callable[[], object], rounds: int = 7) -> float:
    """Returns the shortest time of the rounds; of one thread the processor's, which other work does not lengthen."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    work()
    return min(seconds_of(work, clock) for _ in range(rounds))


def _rates() -> tuple[float, float]:
    """Returns FLOP/s of a product of large matrices, bytes/s of adding one to an array beyond the caches nearby."""
    side, length = (1536, 1 << 21) if jax.default_backend() == "cpu" else (8192, 1 << 28)
    matrix, vector = jnp.ones((side, side)), jnp.ones(length)
    product, sums = jax.jit(lambda a: a @ a), jax.jit(lambda a: a + 1)
    flops = 2 * side**3 / _best(lambda: jax.block_until_ready(product(matrix)))
    return flops, 2 * vector.nbytes / _best(lambda: jax.block_until_ready(sums(vector)), 50)


# Instructions of a compiled program that compute nothing.
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")


def _num_kernels(text: str) -> int:
    """Returns of how many kernels a compiled program is: the instructions of its entry that compute or copy."""
    entry = re.search(r"^ENTRY .*\{\n((?: .*\n)*)\}", text, re.M)
    assert entry is not None, text
    instructions = re.findall(r"^ +(?:ROOT )?%?\S+ = (?:\(.*?\)|\S+) ([\w-]+)\(", entry[1], re.M)
    return sum(name not in _FREE for name in instructions)


_Cost = tuple[float, float, float, int, float]  # FLOPs, bytes, exponentials, kernels, seconds


def _cost(one: Callable[[Any, Any, Any], Any], params: Any, state: Any, count: int) -> _Cost:
    """Returns what one step costs: counted where it is alone, timed as one of many in a loop."""
    compiled = jax.jit(one).lower(jnp.int32(0), params, state).compile()
    cost, kernels = compiled.cost_analysis(), _num_kernels(compiled.as_text())
    many = jax.jit(lambda params, state: jax.lax.fori_loop(0, count, lambda i, both: one(i, *both), (params, state)))
    seconds = _best(lambda: jax.block_until_ready(many(params, state))) / count
    return cost["flops"], cost["bytes accessed"], cost.get("transcendentals", 0.0), kernels, seconds


def _update(name: str, shapes: dict[str, tuple[int, ...]], count: int) -> _Cost:
    """Returns the cost of one update of parameters of these shapes."""
    optimizer = inner._optimizer(name)
    params = {key: jnp.full(shape, 0.1) for key, shape in shapes.items()}

    def one(_: Any, params: Any, state: Any) -> Any:
        grads = jax.tree.map(lambda p: 0.01 * p, params)
        updates, state = optimizer.update(grads, state, params, value=jnp.float32(1.0))
        return jax.tree.map(jnp.add, params, updates), state

    return _cost(one, params, optimizer.init(params), count)


def _step(name: str, count: int) -> tuple[int, _Cost]:
    """Returns the number of parameters of the digits MLP, and the cost of an inner step: batch, gradient and update."""
    task = inner._digits()
    assert task.datasets is not None
    optimizer, sample = inner._optimizer(name), task.datasets.train.sample
    params, task_state = task.init_with_state(jax.random.key(0))

    def one(step: Any, params: Any, state: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(1), step)

        def loss_of(params: Any) -> Any:
            return task.loss_with_state(params, task_state, key, sample(key))[0]

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(grads, state, params, value=loss)
        return jax.tree.map(jnp.add, params, updates), state

    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return size, _cost(one, params, optimizer.init(params), count)


_DIGITS = {"w0": (64, 32), "b0": (32,), "w1": (32, 10), "b1": (10,)}
_UPDATES: tuple[tuple[str, str, dict[str, tuple[int, ...]], int], ...] = (
    ("dm", "L2O-DM, digits MLP", _DIGITS, 200),
    ("mlp", "MLPLOpt, digits MLP", _DIGITS, 500),
    ("adafac", "AdafacMLPLOpt, digits MLP", _DIGITS, 1000),
    ("adafac", "AdafacMLPLOpt, 10-d quadratic", {"x": (10,)}, 1000),
    ("adafac", "AdafacMLPLOpt, MLP 192-512-512-10", wide._WIDE, 20),
)


_STEPS = (("mlp", "MLPLOpt", 500), ("adafac", "AdafacMLPLOpt", 1000))
_HEAD = ("MFLOP", "MB", "thousand exponentials", "kernels", "arithmetic us", "memory us", "measured us")


def lines(
    updates: Sequence[tuple[str, str, dict[str, tuple[int, ...]], int]] = _UPDATES,
    steps: Sequence[tuple[str, str, int]] = _STEPS,
) -> Iterator[str]:
    """Yields the rates of this machine and a row for each update and inner step, in Markdown."""
    flop_rate, byte_rate = _rates()
    yield f"matrix product {flop_rate / 1e9:.0f} GFLOP/s, memory {byte_rate / 1e9:.1f} GB/s"
    yield ""
    yield "| update, or inner step | " + " | ".join(_HEAD) + " |"
    yield "| --- |" + " ---: |" * len(_HEAD)

    def row(label: str, size: int, cost: _Cost) -> str:
        flops, moved, exponentials, kernels, seconds = cost
        cells = [
            f"{label} ({size} parameters)",
            f"{flops / 1e6:.3g}",
            f"{moved / 1e6:.3g}",
            f"{exponentials / 1e3:.3g}",
        ]
        cells += [f"{kernels}", f"{1e6 * flops / flop_rate:.1f}", f"{1e6 * moved / byte_rate:.1f}"]
        return "| " + " | ".join((*cells, f"{1e6 * seconds:.1f}")) + " |"

    for name, label, shapes, count in updates:
        size = sum(int(np.prod(shape)) for shape in shapes.values())
        yield row(label, size, _update(name, shapes, count))
    for name, label, count in steps:
        yield row(f"inner step of {label}, digits MLP", *_step(name, count))


def main() -> None:
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main()
