"""Benchmarks of batches that a Python iterator yields: they are read while the program computes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import inner
import numpy as np
from harness import Benchmark, Rounds, seconds_of

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import AdafacMLPLOpt
from lobench.inner.task import Datasets, IteratorDataset
from lobench.inner.tasks.image import DigitsMLP
from lobench.inner.training.train import TrainingProgram

__all__ = ["BENCHMARKS"]

_BATCH = 512


def _batches(seconds: float, *, drawn: bool) -> Any:
    """Returns seed -> batches of digits, each of which takes so long to come from a disk, say."""
    task = DigitsMLP(hidden_sizes=(32,), batch_size=_BATCH)
    assert task.datasets is not None
    arrays = {name: np.asarray(leaf) for name, leaf in task.datasets.train.arrays.items()}

    def batches(seed: int) -> Iterator[Any]:
        generator = np.random.default_rng(seed)
        first = {name: leaf[:_BATCH] for name, leaf in arrays.items()}
        for _ in itertools.count():
            if seconds:
                time.sleep(seconds)
            if drawn:
                chosen = generator.integers(0, len(arrays["label"]), _BATCH)
                yield {name: leaf[chosen] for name, leaf in arrays.items()}
            else:
                yield first

    return batches


def _program(batches: Any, num_steps: int) -> TrainingProgram:
    task = DigitsMLP(hidden_sizes=(32,), batch_size=_BATCH)
    task.datasets = Datasets(train=IteratorDataset(batches))
    case = Case(num_inner_steps=num_steps, num_seeds=1, eval_every=num_steps, eval_batches=0)
    return TrainingProgram(case, task, lambda theta: as_stepper(AdafacMLPLOpt().opt_fn(theta, num_steps), num_steps), 1)


def _fed(quick: bool) -> Rounds:
    """Seconds of a training over those of its longer half: reading as slow as computing is the worst case."""
    num_steps = 300 if quick else 1500
    theta, block = AdafacMLPLOpt().init(inner.jax.random.key(7)), SeedBlock(start=0, size=1)
    computing = _program(_batches(0.0, drawn=False), num_steps)
    computing.run(theta, block)
    seconds = seconds_of(lambda: computing.run(theta, block)) / num_steps
    batches = _batches(0.8 * seconds, drawn=True)
    together = _program(batches, num_steps)
    together.run(theta, block)

    def read() -> None:
        for _ in itertools.islice(batches(0), num_steps):
            pass

    ratios = []
    for _ in range(3 if quick else 9):
        alone = seconds_of(lambda: computing.run(theta, block)), seconds_of(read)
        ratios.append(seconds_of(lambda: together.run(theta, block)) / max(alone))
    what = f"digits MLP, AdafacMLPLOpt, {num_steps:,} steps on batches that take a while: over the longer of both"
    return Rounds(what=what, ratios=ratios)


BENCHMARKS = (Benchmark(name="fed", target="<= 1.05", measure=_fed),)
