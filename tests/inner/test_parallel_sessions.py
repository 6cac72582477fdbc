"""Replicas that train one set of parameters: one stream, a delayed recursion, the large batch."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.result import Curves
from lobench.engine.config.bound import bind_case
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.inner import schedules
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import LearnableAdam
from lobench.inner.task import ArrayDataset, Datasets, IteratorDataset, SampledDataset, Task, TaskFamily
from lobench.inner.training.parallel_sessions import num_updates
from lobench.inner.training.streams import DATA, Replica, key_of, stream
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")

ROUNDS = 12


class Regression(Task):
    """Least squares on batches that a key, an iterator or an array gives; each seed has other ones."""

    def __init__(self, train: Any) -> None:
        self.datasets = Datasets(train=train, test=SampledDataset(batch))

    def init(self, key: jax.Array) -> Any:
        return {"w": jnp.linspace(-1, 1, 5, dtype=jnp.float32), "b": jnp.float32(0)}

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        found = jnp.tanh(data @ params["w"] + params["b"])
        return jnp.mean((found - jnp.sin(data[:, 0])) ** 2)


def batch(key: jax.Array) -> jax.Array:
    return jax.random.uniform(key, (8, 5), minval=-2.0, maxval=2.0)


def of_step(seed: int, step: int) -> np.ndarray:
    return np.asarray(batch(jax.random.fold_in(stream(Replica(np.uint32(seed), np.uint32(0)), DATA), step)))


def streamed(seed: int) -> Iterator[np.ndarray]:
    return (of_step(seed, step) for step in itertools.count())


def interleaved(count: int) -> Any:
    def batches(seed: int) -> Iterator[np.ndarray]:
        return (of_step(seed * count + turn, step) for step in itertools.count() for turn in range(count))

    return batches


def run(task: Any, *, optimizer: Any = None, num_seeds: int = 1, theta: Any = None, **values: Any) -> Curves:
    case = Case(**{"num_inner_steps": ROUNDS, "eval_every": 3, "eval_batches": 2, **values})
    steps = case.num_inner_steps * num_updates(case)
    if optimizer is None:
        optimizer = optax.adam(0.05)
    make = optimizer if theta is not None else (lambda theta: optimizer)
    program = TrainingProgram(case, task, lambda theta: as_stepper(make(theta), steps), num_seeds)
    curves = program.run(theta or {}, SeedBlock(start=0, size=num_seeds))
    assert curves is not None
    return curves


def losses(curves: Curves, name: str = "test/loss") -> np.ndarray:
    return np.asarray(curves.metrics[name])


SAMPLED, STREAMED = SampledDataset(batch), IteratorDataset(streamed)


@pytest.mark.parametrize(("sessions", "train"), [("shared", SAMPLED), ("synced", STREAMED), ("mean", SAMPLED)])
def test_one_replica_is_a_training_of_its_own_to_the_bit(sessions: str, train: Any) -> None:
    apart = run(Regression(train), num_seeds=2, log_every=1)
    alone = run(Regression(train), num_seeds=2, log_every=1, sessions=sessions, num_lanes=1)
    assert {name: value.tobytes() for name, value in apart.metrics.items()} == {
        name: value.tobytes() for name, value in alone.metrics.items()
    }


@pytest.mark.parametrize(("num_replicas", "num_seeds"), [(2, 2), (4, 1)])
def test_shared_replicas_are_one_stream_to_the_bit(num_replicas: int, num_seeds: int) -> None:
    """The same as one training on the interleaving of their batches, of as many updates."""
    one = run(
        Regression(IteratorDataset(interleaved(num_replicas))),
        num_seeds=num_seeds,
        num_inner_steps=ROUNDS * num_replicas,
        eval_every=3 * num_replicas,
        optimizer=optax.adam(schedules.cosine(peak=0.05)),
    )
    replicas = run(
        Regression(IteratorDataset(streamed)),
        num_seeds=num_seeds,
        sessions="shared",
        num_lanes=num_replicas,
        optimizer=optax.adam(schedules.cosine(peak=0.05)),
    )
    assert replicas.metrics["train/loss"].shape == (num_seeds, 5)
    # The batches of evaluations are those of seed * num_replicas in the one and of seed in the other.
    assert losses(replicas)[0].tobytes() == losses(one)[0].tobytes()
    sampled = run(
        Regression(SampledDataset(batch)),
        num_seeds=num_seeds,
        sessions="shared",
        num_lanes=num_replicas,
        optimizer=optax.adam(schedules.cosine(peak=0.05)),
    )
    np.testing.assert_allclose(losses(sampled), losses(replicas), rtol=1e-6)


HESSIAN = np.diag([1.0, 0.5, 0.1]) + 0.05
ETA = 0.3


class Bowl(Task):
    def init(self, key: jax.Array) -> Any:
        return jnp.asarray([1.0, -2.0, 3.0])

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return params @ jnp.asarray(HESSIAN, jnp.float32) @ params / 2


@pytest.mark.parametrize(("sessions", "num_replicas"), [("synced", 2), ("synced", 4), ("shared", 4), ("mean", 4)])
def test_staleness_is_that_of_the_recursion(sessions: str, num_replicas: int) -> None:
    """w_{t+1} = w_t - eta H w_{t-s}: s is num_replicas - 1 where synced, and else 0."""
    curves = run(
        Bowl(), optimizer=optax.sgd(ETA), sessions=sessions, num_lanes=num_replicas, eval_every=1, eval_batches=1
    )
    delay = num_replicas - 1 if sessions == "synced" else 0
    updates = ROUNDS * (num_replicas if sessions != "mean" else 1)
    path = [np.asarray([1.0, -2.0, 3.0])]
    for update in range(updates):
        path.append(path[-1] - ETA * HESSIAN @ path[max(update - delay, 0)])
    wanted = [at @ HESSIAN @ at / 2 for at in path[:: updates // ROUNDS]]
    np.testing.assert_allclose(losses(curves, "train/loss")[0], wanted, rtol=1e-6)


def test_the_mean_of_the_replicas_is_the_large_batch() -> None:
    def large(seed: int) -> Iterator[np.ndarray]:
        return (
            np.concatenate([of_step(4 * seed + replica, step) for replica in range(4)]) for step in itertools.count()
        )

    one = run(Regression(IteratorDataset(large)), eval_batches=0)
    replicas = run(Regression(IteratorDataset(streamed)), sessions="mean", num_lanes=4, eval_batches=0)
    np.testing.assert_allclose(losses(replicas, "train/loss"), losses(one, "train/loss"), rtol=1e-6)


def arrays() -> ArrayDataset:
    return ArrayDataset(np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32), 8)


@functools.cache
def apart() -> Curves:
    return run(Regression(arrays()))


@pytest.mark.parametrize("sessions", ["shared", "synced", "mean"])
def test_replicas_draw_batches_of_their_own_and_a_group_is_the_same_beside_others(sessions: str) -> None:
    task = Regression(arrays())
    values = {"sessions": sessions, "num_lanes": 3}
    two, one = run(task, num_seeds=2, **values), run(task, num_seeds=1, **values)
    np.testing.assert_allclose(losses(two)[:1], losses(one), rtol=1e-5)
    assert not np.allclose(losses(two)[0], losses(two)[1])
    assert not np.allclose(losses(one), losses(apart())), "three replicas see more than one does"


class Shifted(TaskFamily):
    def __init__(self) -> None:
        self.datasets = Datasets(train=SampledDataset(batch), test=SampledDataset(batch))

    def sample(self, key: jax.Array) -> Any:
        return jax.random.normal(key)

    def task_fn(self, cfg: Any) -> Task:
        task = Regression(SampledDataset(batch))
        task.init = lambda key: {"w": jnp.full(5, cfg), "b": jnp.float32(0)}  # type: ignore[method-assign]
        return task


@pytest.mark.parametrize("sessions", ["shared", "synced", "mean"])
def test_a_seed_of_a_family_is_a_group_for_each_of_its_tasks(sessions: str) -> None:
    family = run(Shifted(), num_seeds=2, num_tasks=2, sessions=sessions, num_lanes=3)
    assert np.isfinite(losses(family)).all() and losses(family).shape == (2, 5)


def test_learned_optimizers_schedules_and_many_thetas_take_turns_too() -> None:
    values: dict[str, Any] = {"sessions": "synced", "num_lanes": 3}
    learned = LearnableAdam(initial_lr=0.05)
    theta = learned.init(jax.random.key(0))
    task = Regression(SampledDataset(batch))
    by_theta = run(task, optimizer=lambda theta: learned.opt_fn(theta, 12), theta=theta, **values)
    np.testing.assert_allclose(losses(by_theta), losses(run(task, **values)), rtol=1e-4)
    case = Case(num_inner_steps=6, eval_every=3, **values)
    make = lambda rate: as_stepper(optax.sgd(schedules.plateau(rate=rate, patience=2, window=1)), 18)  # noqa: E731
    program = TrainingProgram(case, task, make, 1)
    block, rates = SeedBlock(start=0, size=1), [np.float32(0.1), np.float32(0.2)]
    many = program.run_many(rates, block)
    assert many is not None
    for rate, curves in zip(rates, many, strict=True):
        alone = program.run(rate, block)
        assert alone is not None
        np.testing.assert_allclose(losses(curves), losses(alone), rtol=1e-5)


def test_a_replica_that_diverges_takes_its_group_with_it_and_no_other() -> None:
    def broken(seed: int) -> Iterator[np.ndarray]:
        return (
            of_step(seed, step) if (seed, step) != (4, 5) else np.full((8, 5), np.inf) for step in itertools.count()
        )

    curves = run(Regression(IteratorDataset(broken)), num_seeds=2, sessions="mean", num_lanes=3)
    assert curves.diverged_at == (-1, 5)


def test_model_state_goes_from_turn_to_turn() -> None:
    class Counts(Bowl):
        def init_with_state(self, key: jax.Array) -> Any:
            return self.init(key), {"turns": jnp.int32(0), "average": jnp.float32(0)}

        def loss_with_state_and_aux(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
            after = {"turns": state["turns"] + 1, "average": state["average"] + 2.0}
            return self.loss(params, key, data), after, {"turns": state["turns"].astype(jnp.float32)}

    for sessions, wanted in (("shared", [0, 9, 18]), ("synced", [0, 9, 18]), ("mean", [0, 3, 6])):
        curves = run(Counts(), optimizer=optax.sgd(0.1), num_inner_steps=6, sessions=sessions, num_lanes=3)
        assert losses(curves, "train/turns")[0].tolist() == wanted


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (
            "Case.sessions = 'shard'",
            SHOWN["case-sessions-got-shard-expected"],
        ),
        (
            "Case.sessions = 'shared'",
            SHOWN["shared-does-not-say-how"],
        ),
        (
            "Case.num_lanes = 4",
            SHOWN["case-num-lanes-replicas-that"],
        ),
        ("Case.sessions = 'mean'\nCase.num_lanes = 0", SHOWN["case-num-lanes-got-0"]),
        ("Case.sessions = 3\nCase.num_lanes = 2", SHOWN["case-sessions-got-3-expected"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_built(tmp_path: Path, bindings: str, message: str) -> None:
    path = tmp_path / "s" / "x.gin"
    path.parent.mkdir()
    path.write_text(f"a/Case.task = @Quadratic()\n{bindings}\n")
    (spec,) = specs_in(path)
    with pytest.raises(ConfigError, match=message):
        bind_case(spec, Layers(gin_modules=("lobench.inner.tasks",)), build=False)


def test_sessions_are_another_problem_for_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "s" / "x.gin"
    path.parent.mkdir()
    problems = set()
    for lines in ("", "Case.sessions = 'apart'", "Case.sessions = 'mean'\nCase.num_lanes = 2"):
        path.write_text(f"a/Case.task = @Quadratic()\n{lines}\n")
        (spec,) = specs_in(path)
        problems.add(bind_case(spec, Layers(gin_modules=("lobench.inner.tasks",)), build=False).info.problem)
    assert len(problems) == 2
    assert key_of(0).shape == ()
