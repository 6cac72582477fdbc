"""Small trainings whose states are saved: tasks, optimizers and phases, and files that are the states of each step."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench.core.case import Case, SeedBlock
from lobench.core.phases import Phase
from lobench.core.result import Curves
from lobench.engine.store.states import BlockStates
from lobench.inner.adapters import as_learned_optimizer, as_stepper
from lobench.inner.optimizer import LearnedOptimizer
from lobench.inner.optimizers import adam, schedule_free_adamw
from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, Task
from lobench.inner.training.phase_transitions import later_phases, phase_stepper
from lobench.inner.training.train import TrainingProgram

BLOCK = SeedBlock(start=3, size=2)
ROWS = np.asarray(np.random.default_rng(0).normal(size=(40, 3)), np.float32)


class Batches:
    """An iterator that says where it is, as grain's do; `opened` counts how many batches were read at all."""

    read = 0

    def __init__(self, seed: int) -> None:
        self._seed, self._at = seed, 0

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> np.ndarray:
        Batches.read += 1
        self._at += 1
        return np.roll(ROWS, self._seed + self._at, axis=0)[:4] * np.float32(self._at % 3)

    def get_state(self) -> dict[str, int]:
        return {"at": self._at}

    def set_state(self, state: dict[str, int]) -> None:
        self._at = state["at"]


def forgetful(seed: int) -> Iterator[np.ndarray]:
    return (np.roll(ROWS, seed + at, axis=0)[:4] * np.float32(at % 3) for at in itertools.count(1))


_DATA = {
    "array": lambda: ArrayDataset(ROWS, 4),
    "replayed": lambda: IteratorDataset(forgetful),
    "positioned": lambda: IteratorDataset(Batches),
}


class Regression(Task):
    """A small layer, with noise in its loss."""

    def __init__(self, data: str = "array") -> None:
        # An array's batches are drawn in the program, which takes a second to compile: one split is enough.
        test = None if data == "array" else ArrayDataset(ROWS[:8], 4)
        self.datasets = Datasets(train=_DATA[data](), test=test)

    def init(self, key: jax.Array) -> Any:
        drawn = jax.random.uniform(key, (12,), minval=-1.0)
        return {"w": drawn[:8].reshape(2, 4), "b": [drawn[8:]]}

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        hidden = jnp.tanh(data[:, :2] @ params["w"] + params["b"][0])
        return jnp.mean((hidden.sum(1) - data[:, 2] + 0.1 * jax.random.uniform(key, (data.shape[0],))) ** 2)


class Counting(Task):
    """Has a state beside its parameters, and says more of a batch than its loss."""

    def __init__(self, data: str = "array") -> None:
        self.datasets = Datasets(train=_DATA[data]())

    def init_with_state(self, key: jax.Array) -> Any:
        return jax.random.uniform(key, (3,)), {"mean": jnp.zeros(3), "count": jnp.int32(0)}

    def loss_with_state_and_aux(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
        mean = 0.9 * state["mean"] + 0.1 * data.mean(0)
        loss = jnp.mean((data @ params - (data - mean).sum(1)) ** 2)
        return loss, {"mean": mean, "count": state["count"] + 1}, {"seen": state["count"].astype(jnp.float32)}


class Bowl(Task):
    """Noise in its loss, a state beside its parameters, and no data: it compiles in a third of the others' time."""

    def init_with_state(self, key: jax.Array) -> Any:
        return jnp.linspace(0.5, 2.0, 3), {"count": jnp.int32(0)}

    def loss_with_state_and_aux(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
        loss = jnp.sum(params**2) + jax.random.uniform(key) * jnp.sin(params).sum()
        return loss, {"count": state["count"] + 1}, {"seen": state["count"].astype(jnp.float32)}


class Rated(LearnedOptimizer):
    """A learned optimizer that hangs on the length of its phase, and keeps a key in its state."""

    def init(self, key: jax.Array) -> Any:
        return {"rate": jnp.float32(0.05)}

    def opt_fn(self, theta: Any, num_steps: int | None = None) -> Any:
        def init(params: Any) -> Any:
            return jnp.int32(0), jax.random.key(7), jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)

        def update(grads: Any, state: Any, params: Any) -> Any:
            count, key, slow = state
            key, use = jax.random.split(key)
            share = theta["rate"] * (1 - count / num_steps) * jax.random.uniform(use)
            slow = jax.tree.map(lambda old, new: (0.9 * old + 0.1 * new).astype(jnp.bfloat16), slow, grads)
            return jax.tree.map(lambda new: -share * new.astype(jnp.float32), slow), (count + 1, key, slow)

        return optax.GradientTransformation(init, update)


OPTIMIZERS: dict[str, Any] = {
    "adam": lambda: adam(optax.cosine_decay_schedule(0.1, 15)),
    "schedule_free": lambda: schedule_free_adamw(0.05),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.05, momentum=0.9)),
    "learned": Rated,
}


def phases_of(optimizer: str, count: int, steps: int = 20) -> tuple[Phase, ...]:
    """Returns one phase, or two: the second keeps the state of all but the learned optimizer, whose state is anew."""
    made = OPTIMIZERS[optimizer]()
    field = "learned_optimizer" if isinstance(made, LearnedOptimizer) else "optimizer"
    first = Phase(num_inner_steps=steps if count == 1 else steps - 7, **{field: made})
    if count == 1:
        return (first,)
    opt_state = "reset" if field == "learned_optimizer" else "keep"
    return first, Phase(num_inner_steps=7, opt_state=opt_state, **{field: made})


def program_of(case: Case, task: Any, num_seeds: int = BLOCK.size) -> TrainingProgram:
    if case.phases:
        later = later_phases(case, partial(phase_stepper, case))
        return TrainingProgram(case, task, partial(phase_stepper, case, 0), num_seeds, later=later)
    stepper = as_stepper(case.optimizer, case.num_inner_steps)
    return TrainingProgram(case, task, lambda theta: stepper, num_seeds)


def case_of(phases: tuple[Phase, ...], **values: Any) -> Case:
    total = sum(phase.num_inner_steps or 0 for phase in phases)
    return Case(**{"num_inner_steps": total, "phases": phases, "eval_every": 6, "log_every": 4, **values})


def theta_of(case: Case) -> Any:
    learned = next((phase.learned_optimizer for phase in case.phases if phase.learned_optimizer is not None), None)
    return {} if learned is None else as_learned_optimizer(learned).init(jax.random.key(0))


class Copies(BlockStates):
    """Keeps a copy of each state beside those that are removed."""

    __slots__ = ("copies",)

    def save(self, state: Any, *, is_final: bool) -> None:
        BlockStates.save(self, state, is_final=is_final)
        if self._own_path is not None:
            self.copies.mkdir(exist_ok=True)
            shutil.copy(self._own_path, self.copies / str(state[1]["step"]))


def states_in(folder: Path, case: Case, output: list[str] | None = None, **values: Any) -> BlockStates:
    """Returns the states of a case in a folder; equal prefixes stand for equal beginnings."""
    prefixes = [f"{index:064x}" for index in range(max(len(case.phases), 1))]
    lines = output if output is not None else []
    given = {
        "folder": folder,
        "prefix_hashes": prefixes,
        "block": BLOCK,
        "owner": "o" * 16,
        "program": "ours",
        "where": "s/c",
    }
    return values.pop("kind", BlockStates)(**{**given, "log": lines.append, **values})


def bits(curves: Curves | None) -> dict[str, bytes]:
    assert curves is not None
    found = {name: values.tobytes() for name, values in curves.metrics.items()}
    return found | {"diverged": repr(curves.diverged_at).encode()}
