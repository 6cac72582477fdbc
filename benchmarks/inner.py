"""Benchmarks of inner training: against the plain loop, one hand-written program, and bare SGD."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain_optimizers
from harness import Benchmark, Rounds, interleaved
from plain_loop import OneScan, PlainLoop

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import compiler_options
from lobench.inner.optimizer import LearnedOptimizer
from lobench.inner.optimizers import L2ODM, AdafacMLPLOpt, Celo, MLPLOpt
from lobench.inner.task import Datasets, Task
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.tasks.quadratic import Quadratic
from lobench.inner.training.train import TrainingProgram

__all__ = ["BENCHMARKS"]

_SPLITS = ("train", "outer_valid", "test")
_EVAL_EVERY, _EVAL_BATCHES = 10, 5
_LEARNED: dict[str, tuple[LearnedOptimizer, Callable[..., Any]]] = {
    "adafac": (AdafacMLPLOpt(), plain_optimizers.adafac_mlp_lopt),
    "celo": (Celo(), plain_optimizers.celo),
    "mlp": (MLPLOpt(), plain_optimizers.mlp_lopt),
    "dm": (L2ODM(), plain_optimizers.l2o_dm),
    "dm_columns": (L2ODM(layout="columns"), plain_optimizers.l2o_dm),
}
_AGREE_STEPS, _AGREE = 200, 1e-5
_FEWER_STEPS = {"dm_columns": 3}  # which agree: other last digits, at the edge of chaos


def _digits() -> Task:
    task = DigitsMLP(hidden_sizes=(32,), batch_size=128)
    assert task.datasets is not None
    data = task.datasets
    task.datasets = Datasets(train=data.train, outer_valid=data.outer_valid, test=data.test)
    return task


_WORDS: dict[Callable[[], Task], str] = {_digits: "digits MLP 64-32-10", Quadratic: "10-d quadratic"}


def _theta(name: str) -> Any:
    return _LEARNED[name][0].init(jax.random.key(7)) if name in _LEARNED else {}


def _optimizer(name: str, num_steps: int = 1000) -> Any:
    """Returns ours of that name as a transformation of gradients."""
    if name not in _LEARNED:
        return optax.with_extra_args_support(optax.adam(1e-3))
    return _LEARNED[name][0].opt_fn(_theta(name), num_steps)


def _program(
    task: Task,
    name: str,
    num_steps: int,
    num_seeds: int = 1,
    *,
    eval_every: int = _EVAL_EVERY,
    eval_batches: int = _EVAL_BATCHES,
) -> TrainingProgram:
    case = Case(num_inner_steps=num_steps, num_seeds=1, eval_every=eval_every, log_every=1, eval_batches=eval_batches)

    def make_stepper(theta: Any) -> Any:
        optimizer = optax.adam(1e-3) if name == "adam" else _LEARNED[name][0].opt_fn(theta, num_steps)
        return as_stepper(optimizer, num_steps)

    return TrainingProgram(case, task, make_stepper, num_seeds)


def _over(
    opponent: type[PlainLoop], make_task: Callable[[], Task], name: str, splits: tuple[str, ...], quick: bool
) -> Rounds:
    """Returns seconds of an opponent over ours, after a look at whether their losses agree."""
    num_steps = 250 if quick else 1000
    program, theta, block = _program(make_task(), name, num_steps), _theta(name), SeedBlock(start=0, size=1)
    optimizer = optax.with_extra_args_support(optax.adam(1e-3))
    if name in _LEARNED:
        optimizer = _LEARNED[name][1](theta, num_steps)
    plain = opponent(
        make_task(),
        optimizer,
        num_steps=num_steps,
        eval_every=_EVAL_EVERY,
        eval_batches=_EVAL_BATCHES,
        splits=splits,
    )
    ours = np.asarray(program.run(theta, block).metrics["batch/loss"]).reshape(-1)
    theirs, _ = plain.run(0)
    steps = _FEWER_STEPS.get(name, _AGREE_STEPS)
    error = float(np.abs(theirs / ours - 1)[:steps].max())
    if not error < _AGREE:
        raise SystemExit(f"{name}: the losses differ by {error:.1e} within {steps} steps, not below {_AGREE:.0e}")
    theirs_in_words = "one lax.scan program" if opponent is OneScan else "the plain loop"
    what = f"{_WORDS[make_task]}, {num_steps:,} steps, evaluation every {_EVAL_EVERY}: {theirs_in_words} over ours"
    return interleaved(what, lambda: plain.run(0), lambda: program.run(theta, block), 3 if quick else 9)


def _floor(
    num_steps: int,
    *,
    num_seeds: int = 1,
    splits: tuple[str, ...] = _SPLITS,
    eval_every: int = _EVAL_EVERY,
    eval_batches: int = _EVAL_BATCHES,
) -> Callable[[], object]:
    """One program of bare SGD steps on one fixed batch, with the same evaluations."""
    task = _digits()
    data = task.datasets
    assert data is not None
    key = jax.random.key(0)
    evaluation = {
        split: jax.vmap(getattr(data, split).sample)(jax.random.split(jax.random.fold_in(key, i), eval_batches))
        for i, split in enumerate(splits)
    }
    batches = jax.tree.map(lambda *leaves: jnp.stack(leaves), *evaluation.values())

    def train(params: Any, batch: Any, batches: Any) -> Any:
        def evaluate(params: Any) -> Any:
            values = jax.vmap(jax.vmap(lambda batch: task.eval_loss_with_aux(params, None, key, batch)))(batches)
            return jax.tree.map(lambda value: value.mean(axis=1), values)

        def step(_: int, params: Any) -> Any:
            grads = jax.grad(lambda params: task.loss_with_state(params, None, key, batch)[0])(params)
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

        def segment(params: Any, _: None) -> Any:
            return jax.lax.fori_loop(0, eval_every, step, params), evaluate(params)

        params, values = jax.lax.scan(segment, params, None, length=num_steps // eval_every)
        return values, evaluate(params)

    params, _ = task.init_with_state(key)
    if num_seeds > 1:
        params = jax.vmap(lambda key: task.init_with_state(key)[0])(jax.random.split(key, num_seeds))
        train = jax.vmap(train, in_axes=(0, None, None))
    run = jax.jit(train, compiler_options=compiler_options())
    return lambda: jax.block_until_ready(run(params, data.train.sample(key), batches))


def _over_floor(name: str, quick: bool) -> Rounds:
    num_steps = 250 if quick else 1000
    program, theta, block = _program(_digits(), name, num_steps), _theta(name), SeedBlock(start=0, size=1)
    what = f"{_WORDS[_digits]}, {num_steps:,} steps: ours over bare SGD on one fixed batch with the same evaluations"
    return interleaved(what, lambda: program.run(theta, block), _floor(num_steps), 5 if quick else 21)


def _digits_benchmark(name: str, target: str) -> Benchmark:
    measure = functools.partial(_over, PlainLoop, _digits, name, _SPLITS)
    return Benchmark(name=f"digits_{name}", target=target, measure=measure)


def _scan_benchmark(name: str) -> Benchmark:
    return Benchmark(name=f"scan_{name}", target="", measure=functools.partial(_over, OneScan, _digits, name, _SPLITS))


def _floor_benchmark(name: str, target: str) -> Benchmark:
    return Benchmark(name=f"floor_{name}", target=target, measure=functools.partial(_over_floor, name))


BENCHMARKS = (
    _digits_benchmark("adafac", ">= 5"),
    _digits_benchmark("adam", ">= 4"),
    _digits_benchmark("celo", ">= 4"),
    _digits_benchmark("mlp", ">= 2.5"),
    _digits_benchmark("dm", ">= 2.5"),
    _digits_benchmark("dm_columns", ">= 2"),
    *(_scan_benchmark(name) for name in (*_LEARNED, "adam") if name != "dm_columns"),
    _floor_benchmark("adam", "<= 1.25"),
    _floor_benchmark("adafac", "<= 2.2"),
    _floor_benchmark("celo", "<= 2.5"),
    Benchmark(
        name="quadratic_adafac",
        target=">= 40",
        measure=functools.partial(_over, PlainLoop, Quadratic, "adafac", ("train",)),
    ),
    Benchmark(
        name="scan_quadratic_adafac",
        target="",
        measure=functools.partial(_over, OneScan, Quadratic, "adafac", ("train",)),
    ),
)
