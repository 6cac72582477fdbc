"""Benchmarks of other networks than perceptrons: Adam's whole training step over the bare gradient step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import optax
from harness import Benchmark, Rounds, interleaved

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import compiler_options
from lobench.inner.task import IteratorDataset, Task
from lobench.inner.tasks.image import DigitsConv
from lobench.inner.tasks.sequence import ByteRNN
from lobench.inner.train import Program

__all__ = ["BENCHMARKS"]


def _bare(task: Task, num_steps: int) -> Callable[[], object]:
    """One program of SGD steps, each on a batch that it draws."""
    key = jax.random.key(0)
    dataset = task.datasets.train if task.datasets else None
    assert dataset is None or not isinstance(dataset, IteratorDataset)

    def train(params: Any, state: Any) -> Any:
        def step(index: jax.Array, carry: Any) -> Any:
            params, state = carry
            batch = dataset.sample(jax.random.fold_in(key, index)) if dataset is not None else None
            grads, state = jax.grad(lambda at: task.loss_with_state(at, state, key, batch), has_aux=True)(params)
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), state

        return jax.lax.fori_loop(0, num_steps, step, (params, state))

    params, state = task.init_with_state(key)
    run = jax.jit(train, compiler_options=compiler_options())
    return lambda: jax.block_until_ready(run(params, state))


def _over_bare(name: str, make_task: Callable[[], Task], quick: bool) -> Rounds:
    num_steps, task = 50 if quick else 200, make_task()
    case = Case(num_inner_steps=num_steps, num_seeds=1, eval_every=num_steps, eval_batches=0)
    program = Program(case, task, lambda theta: as_stepper(optax.adam(1e-3), num_steps), 1)
    block = SeedBlock(start=0, size=1)
    what = f"{name}, {num_steps} steps: Adam's training over bare SGD, both drawing their batches"
    return interleaved(what, lambda: program.run({}, block), _bare(task, num_steps), 3 if quick else 11)


_TASKS: dict[str, tuple[str, Callable[[], Task]]] = {
    "conv": ("DigitsConv, batch 64", lambda: DigitsConv(batch_size=64)),
    "gru": ("ByteRNN, a GRU", lambda: ByteRNN(cell="gru")),
}

BENCHMARKS = tuple(
    Benchmark(name=f"bare_{key}", target="<= 1.1", measure=functools.partial(_over_bare, name, make))
    for key, (name, make) in _TASKS.items()
)
