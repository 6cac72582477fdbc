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
from lobench.inner.tasks.language import PythonText
from lobench.inner.tasks.sequence import ByteRNN
from lobench.inner.training.train import TrainingProgram

__all__ = ["BENCHMARKS"]


def _bare(task: Task, num_steps: int, num_seeds: int) -> Callable[[], object]:
    """One program of SGD steps, each on a batch that it draws; several seeds are mapped over."""
    dataset = task.datasets.train if task.datasets else None
    assert dataset is None or not isinstance(dataset, IteratorDataset)

    def train(key: jax.Array, params: Any, state: Any) -> Any:
        def step(index: jax.Array, carry: Any) -> Any:
            params, state = carry
            batch = dataset.sample(jax.random.fold_in(key, index)) if dataset is not None else None
            grads, state = jax.grad(lambda at: task.loss_with_state(at, state, key, batch), has_aux=True)(params)
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), state

        return jax.lax.fori_loop(0, num_steps, step, (params, state))

    keys = jax.random.split(jax.random.key(0), num_seeds)
    start, each = task.init_with_state, train
    if num_seeds > 1:
        start, each = jax.vmap(start), jax.vmap(train)
    else:
        keys = keys[0]
    params, state = start(keys)
    run = jax.jit(each, compiler_options=compiler_options())
    return lambda: jax.block_until_ready(run(keys, params, state))


def _over_bare(name: str, num_seeds: int, make_task: Callable[[], Task], quick: bool) -> Rounds:
    num_steps, task = 50 if quick else 200, make_task()
    # Without evaluations the metrics of each batch would be kept, and the bare step computes none.
    case = Case(num_inner_steps=num_steps, num_seeds=num_seeds, eval_every=num_steps, eval_batches=1)
    program = TrainingProgram(case, task, lambda theta: as_stepper(optax.adam(1e-3), num_steps), num_seeds)
    block = SeedBlock(start=0, size=num_seeds)
    what = f"{name}, {num_seeds} seeds, {num_steps} steps: Adam's training over bare SGD, both drawing their batches"
    return interleaved(what, lambda: program.run({}, block), _bare(task, num_steps, num_seeds), 3 if quick else 11)


_TASKS: dict[str, tuple[str, int, Callable[[], Task]]] = {
    "conv": ("DigitsConv, batch 64", 1, lambda: DigitsConv(batch_size=64)),
    "gru": ("ByteRNN, a GRU", 1, lambda: ByteRNN(cell="gru")),
    "text_gru": ("PythonText, a GRU", 4, lambda: PythonText(network="gru")),
    "text_transformer": ("PythonText, a transformer", 4, lambda: PythonText(batch_size=8)),
}

BENCHMARKS = tuple(
    Benchmark(name=f"bare_{key}", target="<= 1.1", measure=functools.partial(_over_bare, name, count, make))
    for key, (name, count, make) in _TASKS.items()
)
