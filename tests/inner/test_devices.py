"""Replicas and thetas over the devices of a process: the numbers of the parts alone, always the same bits."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import dataclasses, itertools
import jax, jax.numpy as jnp, numpy as np, optax
from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.backend import claim_backend
from lobench.inner.optimizers import LearnableAdam
from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, Task, TaskFamily
from lobench.inner.training.train import TrainingProgram

class Fed(Task):
    def __init__(self):
        def batches(seed):
            return (np.float32([seed + 1, step]) for step in itertools.count())
        self.datasets = Datasets(train=IteratorDataset(batches), test=IteratorDataset(batches))
    def init(self, key):
        return jax.random.uniform(key, (2,))
    def loss(self, params, key, data):
        return ((params - data) ** 2).sum()

class Drawn(Task):
    def __init__(self):
        rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
        self.datasets = Datasets(train=ArrayDataset(rows, 8))
    def init(self, key):
        return jax.random.uniform(key, (3,))
    def loss(self, params, key, data):
        return ((jnp.tanh(data @ params) - data[:, 0]) ** 2).mean()

class Shifted(TaskFamily):
    def sample(self, key):
        return jax.random.uniform(key)
    def task_fn(self, shift):
        class Bowl(Task):
            def init(self, key):
                return jax.random.uniform(key, (3,))
            def loss(self, params, key, data):
                return ((params - shift) ** 2).sum()
        return Bowl()

def curves(found):
    return {**{name: np.asarray(values) for name, values in found.metrics.items()}, "at": np.asarray(found.diverged_at)}

def joined(*parts):
    return {name: np.concatenate([curves(part)[name] for part in parts]) for name in curves(parts[0])}

def same(left, right, rtol=1e-5):
    assert left.keys() == right.keys() and len(left) > 1
    for name, values in left.items():
        np.testing.assert_allclose(values, right[name], rtol=rtol, err_msg=name)

assert claim_backend(2) and len(jax.devices()) == 2
learned = LearnableAdam()
thetas = [learned.init(jax.random.key(seed)) for seed in range(4)]
case = Case(num_inner_steps=120, eval_every=40, log_every=1, num_cpus=2, num_tasks=2)

def program(task, seeds, num_cpus):
    alone = dataclasses.replace(case, num_cpus=num_cpus)
    return TrainingProgram(alone, task, lambda theta: as_stepper(learned.opt_fn(theta, 120), 120), seeds)

for task in (Drawn(), Fed(), Shifted()):
    half = program(task, 2, 1)
    halves = [half.run(thetas[0], SeedBlock(start=start, size=2)) for start in (0, 2)]
    whole = program(task, 4, 2)
    block = SeedBlock(start=0, size=4)
    first = curves(whole.run(thetas[0], block))
    same(first, joined(*halves))
    again = whole.run(thetas[0], block)
    same(curves(again), first, rtol=0)
    assert again.compile_seconds == 0
    odd = SeedBlock(start=0, size=3)  # two devices cannot have equally many
    if isinstance(task, Fed):
        same(curves(program(task, 3, 2).run(thetas[0], odd)), curves(program(task, 3, 1).run(thetas[0], odd)))
    if isinstance(task, Drawn):
        unseen = dataclasses.replace(case, eval_batches=0, eval_every=50, log_every=7)
        make = lambda theta: as_stepper(learned.opt_fn(theta, 120), 120)
        sides = [TrainingProgram(dataclasses.replace(unseen, num_cpus=cpus), task, make, 4) for cpus in (1, 2)]
        same(*(curves(side.run(thetas[0], block)) for side in sides))
    if isinstance(task, Shifted):  # thetas on data that are fed come below
        one, block = program(task, 1, 1), SeedBlock(start=0, size=1)
        many = program(task, 1, 2).run_many(thetas, block)
        for found, alone in zip(many, one.run_many(thetas[:2], block) + one.run_many(thetas[2:], block), strict=True):
            same(curves(found), curves(alone))

def with_settings(seeds, num_cpus):
    alone, usual = dataclasses.replace(case, num_cpus=num_cpus), (0.5, 0.5)
    rule = lambda theta, rate, decay: as_stepper(optax.sgd(rate * jnp.exp(theta), momentum=decay), 120)
    return TrainingProgram(alone, Fed(), rule, seeds, usual)

sides, block = [with_settings(4, cpus) for cpus in (1, 2)], SeedBlock(start=0, size=4)
rates = [np.float32(0.0), np.float32(-1.0)]
for number, settings in enumerate([(0.1, 0.5), (0.2, 0.9)]):
    found = [side.run(rates[0], block, settings=settings) for side in sides]
    same(*map(curves, found))
    assert all((one.compile_seconds == 0) == bool(number) for one in found)
    single = SeedBlock(start=0, size=1)
    sets = [with_settings(1, cpus).run_many(rates, single, settings=settings) for cpus in (1, 2)]
    for one, other in zip(*sets, strict=True):
        same(curves(one), curves(other))
"""


@pytest.mark.usefixtures("any_program_is_forked")
def test_what_is_spread_is_what_its_parts_are_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
