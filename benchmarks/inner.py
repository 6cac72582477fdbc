"""Benchmarks of inner training: against the plain loop, against what any program must do, seeds and thetas together."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain_optimizers
from harness import Benchmark, Rounds, interleaved, seconds_of
from plain_loop import OneScan, PlainLoop

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import claim_backend, compiler_options
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


def _case(
    num_steps: int, num_cpus: int = 1, *, eval_every: int = _EVAL_EVERY, eval_batches: int = _EVAL_BATCHES
) -> Case:
    return Case(
        num_inner_steps=num_steps,
        num_seeds=1,
        eval_every=eval_every,
        log_every=1,
        eval_batches=eval_batches,
        num_cpus=num_cpus,
    )


def _theta(name: str, seed: int = 7) -> Any:
    return _LEARNED[name][0].init(jax.random.key(seed)) if name in _LEARNED else {}


def _optimizer(name: str, num_steps: int = 1000) -> Any:
    """Returns ours of that name as a transformation of gradients."""
    if name not in _LEARNED:
        return optax.with_extra_args_support(optax.adam(1e-3))
    return _LEARNED[name][0].opt_fn(_theta(name), num_steps)


def _program(
    task: Task, name: str, num_steps: int, num_seeds: int = 1, num_cpus: int = 1, **evaluations: int
) -> TrainingProgram:
    case = _case(num_steps, num_cpus, **evaluations)
    if name == "adam":
        return TrainingProgram(case, task, lambda theta: as_stepper(optax.adam(1e-3), num_steps), num_seeds)
    learned = _LEARNED[name][0]
    return TrainingProgram(case, task, lambda theta: as_stepper(learned.opt_fn(theta, num_steps), num_steps), num_seeds)


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


def _claim(num_cpus: int) -> None:
    if not claim_backend(num_cpus):
        raise SystemExit(f"jax does not compute with {num_cpus} threads here; set none of its flags")


def _seeds(quick: bool) -> Rounds:
    _claim(2)
    num_steps = 100 if quick else 500
    together, alone = (_program(_digits(), "adafac", num_steps, width, num_cpus=2) for width in (8, 1))
    theta = _theta("adafac")

    def one_by_one() -> None:
        for seed in range(8):
            alone.run(theta, SeedBlock(start=seed, size=1))

    what = f"digits MLP, AdafacMLPLOpt, {num_steps} steps: 8 runs of one seed over 8 seeds in one program"
    return interleaved(what, one_by_one, lambda: together.run(theta, SeedBlock(start=0, size=8)), 3 if quick else 7)


def _checkpoints(make_task: Callable[[], Task], num_cpus: int, quick: bool) -> Rounds:
    _claim(num_cpus)
    num_steps = 100 if quick else 500
    program = _program(make_task(), "adafac", num_steps, num_cpus=num_cpus)
    block = SeedBlock(start=0, size=1)
    thetas = [_theta("adafac", seed) for seed in range(8)]

    def one_by_one() -> None:
        for theta in thetas:
            program.run(theta, block)

    task = _WORDS[make_task]
    what = f"{task}, AdafacMLPLOpt, {num_steps} steps: 8 checkpoints one by one over 8 in one program"
    return interleaved(what, one_by_one, lambda: program.run_many(thetas, block), 3 if quick else 7)


_FIRST_RESULT = """
import jax, lobench
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
import inner
from lobench.core.case import SeedBlock
inner._program(inner._digits(), "adafac", 100).run(inner._theta("adafac"), SeedBlock(start=0, size=1))
"""


def _first_result(cache: Path) -> None:
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", _FIRST_RESULT], check=True, env=environment, cwd=Path(__file__).parent)


def _cold_start(quick: bool) -> Rounds:
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        _first_result(warm)
        colds = [Path(folder) / f"cold{i}" for i in range(2 if quick else 5)]
        ratios = [
            seconds_of(functools.partial(_first_result, cold)) / seconds_of(functools.partial(_first_result, warm))
            for cold in colds
        ]
    what = "a fresh process to its first result: without over with a warm persistent compilation cache"
    return Rounds(what=what, ratios=ratios)


_WORKER = """
import sys, inner
from lobench.core.case import SeedBlock
program, theta = inner._program(inner._digits(), "adafac", 1000), inner._theta("adafac")
program.run(theta, SeedBlock(start=0, size=1))
print("warm", flush=True)
for line in sys.stdin:
    for seed in range(int(line)):
        program.run(theta, SeedBlock(start=seed, size=1))
    print("done", flush=True)
"""


class _Worker:
    """A process that evaluates blocks of the digits case on some threads, compiled beforehand."""

    def __init__(self, num_cpus: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
            env={**os.environ, "NPROC": str(num_cpus)},
        )
        self.wait()

    def start(self, count: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"a worker ended with code {self._process.wait()}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _two_workers(quick: bool) -> Rounds:
    count = 4 if quick else 12
    workers = [_Worker(1), _Worker(1), _Worker(2)]

    def run(chosen: Sequence[_Worker]) -> None:
        for worker in chosen:
            worker.start(count // len(chosen))
        for worker in chosen:
            worker.wait()

    what = f"{count} results of 1,000 steps: two workers of one core over one worker of two cores, results per second"
    found = interleaved(what, lambda: run(workers[2:]), lambda: run(workers[:2]), 3 if quick else 7)
    for worker in workers:
        worker.close()
    return Rounds(what=found.what, ratios=found.ratios)  # what works is in other processes


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
    Benchmark(name="seeds_together", target=">= 1.6", measure=_seeds, threads=2),
    Benchmark(
        name="checkpoints_together_digits",
        target=">= 1.4",
        measure=functools.partial(_checkpoints, _digits, 2),
        threads=2,
    ),
    Benchmark(
        name="checkpoints_together_quadratic",
        target=">= 2.5",
        measure=functools.partial(_checkpoints, Quadratic, 1),
    ),
    Benchmark(name="compilation_cache", target=">= 2.5", measure=_cold_start),
    Benchmark(name="two_workers", target=">= 1.7", measure=_two_workers),
)
