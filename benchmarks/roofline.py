"""What a step costs at least: XLA's count of its FLOPs and bytes over this machine's measured rates.

Usage: python benchmarks/roofline.py

For the updates of learned optimizers, one thread: the time that arithmetic alone and memory alone would take, and the
time that the update took. XLA counts an exponential as one FLOP; how many there are is shown beside, and of how many
kernels it made the update: each is a launch on a GPU.
"""

from __future__ import annotations

import os
import re
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
    work()
    return min(seconds_of(work) for _ in range(rounds))


def _rates() -> tuple[float, float]:
    """Returns FLOP/s of a product of large matrices, bytes/s of adding one to an array beyond the caches nearby."""
    side, length = (1536, 1 << 21) if jax.default_backend() == "cpu" else (8192, 1 << 28)
    matrix, vector = jnp.ones((side, side)), jnp.ones(length)
    product, sums = jax.jit(lambda a: a @ a), jax.jit(lambda a: a + 1)
    flops = 2 * side**3 / _best(lambda: jax.block_until_ready(product(matrix)))
    return flops, 2 * vector.nbytes / _best(lambda: jax.block_until_ready(sums(vector)), 50)


# Instructions of a compiled program that compute nothing.
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")


def num_kernels(text: str) -> int:
    """Returns of how many kernels a compiled program is: the instructions of its entry that compute or copy."""
    entry = text.partition("\nENTRY ")[2].partition("\n}")[0]
    instructions = re.findall(r"^ +(?:ROOT )?%?\S+ = (?:\(.*?\)|\S+) ([\w-]+)\(", entry, re.M)
    return sum(name not in _FREE for name in instructions)


def _update(name: str, shapes: dict[str, tuple[int, ...]], count: int) -> tuple[float, float, float, int, float]:
    """Returns FLOPs, bytes, exponentials, kernels and seconds of one update of parameters of these shapes."""
    learned = inner._LEARNED[name][0]
    optimizer = learned.opt_fn(learned.init(jax.random.key(7)), 1000)
    params = {key: jnp.full(shape, 0.1) for key, shape in shapes.items()}
    state = optimizer.init(params)

    def one(params: Any, state: Any) -> Any:
        grads = jax.tree.map(lambda p: 0.01 * p, params)
        updates, state = optimizer.update(grads, state, params, value=jnp.float32(1.0))
        return jax.tree.map(jnp.add, params, updates), state

    compiled = jax.jit(one).lower(params, state).compile()
    cost, kernels = compiled.cost_analysis(), num_kernels(compiled.as_text())
    many = jax.jit(lambda params, state: jax.lax.fori_loop(0, count, lambda _, carry: one(*carry), (params, state)))
    seconds = _best(lambda: jax.block_until_ready(many(params, state))) / count
    return cost["flops"], cost["bytes accessed"], cost.get("transcendentals", 0.0), kernels, seconds


_DIGITS = {"w0": (64, 32), "b0": (32,), "w1": (32, 10), "b1": (10,)}
_UPDATES: tuple[tuple[str, str, dict[str, tuple[int, ...]], int], ...] = (
    ("dm", "L2O-DM, digits MLP", _DIGITS, 200),
    ("mlp", "MLPLOpt, digits MLP", _DIGITS, 500),
    ("adafac", "AdafacMLPLOpt, digits MLP", _DIGITS, 1000),
    ("adafac", "AdafacMLPLOpt, 10-d quadratic", {"x": (10,)}, 1000),
    ("adafac", "AdafacMLPLOpt, MLP 192-512-512-10", wide._WIDE, 20),
)


def lines(updates: Sequence[tuple[str, str, dict[str, tuple[int, ...]], int]] = _UPDATES) -> Iterator[str]:
    """Yields the rates of this machine and a row for each update, in Markdown."""
    flop_rate, byte_rate = _rates()
    yield f"matrix product {flop_rate / 1e9:.0f} GFLOP/s, memory {byte_rate / 1e9:.1f} GB/s"
    yield ""
    yield "| update | MFLOP | MB | thousand exponentials | kernels | arithmetic us | memory us | measured us |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, label, shapes, count in updates:
        flops, moved, exponentials, kernels, seconds = _update(name, shapes, count)
        size = sum(int(np.prod(shape)) for shape in shapes.values())
        cells = [
            f"{label} ({size} parameters)",
            f"{flops / 1e6:.2f}",
            f"{moved / 1e6:.2f}",
            f"{exponentials / 1e3:.0f}",
        ]
        cells += [f"{kernels}", f"{1e6 * flops / flop_rate:.1f}", f"{1e6 * moved / byte_rate:.1f}"]
        yield "| " + " | ".join((*cells, f"{1e6 * seconds:.1f}")) + " |"


def main() -> None:
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    answer_help(__doc__)
    main()
