"""Parameters of a task that are not trained, and `optax.lookahead`."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from shown import texts_of

from lobench.core.case import Case, SeedBlock
from lobench.core.errors import ConfigError
from lobench.core.result import Curves
from lobench.inner.adapters import as_stepper
from lobench.inner.task import Task, TaskFamily
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")

TARGET = jnp.asarray([3.0, -2.0])


class Bowl(Task):
    """A bowl whose curvature and number of dimensions are leaves of its parameters if it has constants."""

    def __init__(self, *, has_constants: bool) -> None:
        self._has_constants = has_constants

    def init_with_state(self, key: jax.Array) -> Any:
        weights = jax.random.normal(key, (2,))
        constants = {"count": jnp.int32(4), "is_on": jnp.array(True), "power": 2} if self._has_constants else {}
        return {"weights": weights, **constants}, jnp.int32(0)

    def loss_with_state(self, params: Any, state: Any, key: jax.Array, data: Any) -> Any:
        count, is_on, power = (params.get(name, value) for name, value in (("count", 4), ("is_on", True), ("power", 2)))
        return jnp.where(is_on, count, 0) * jnp.sum((params["weights"] - TARGET) ** power), state + 1


class BowlFamily(TaskFamily):
    def sample(self, key: jax.Array) -> Any:
        return jax.random.uniform(key)

    def task_fn(self, cfg: Any) -> Task:
        return Bowl(has_constants=True)


class Net(eqx.Module):
    layer: eqx.nn.Linear
    activation: Any
    steps: jax.Array

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return self.activation(self.layer(inputs)) * self.steps


class NetTask(Task):
    def init(self, key: jax.Array) -> Any:
        return Net(eqx.nn.Linear(2, 2, key=key), jax.nn.relu, jnp.int32(3))

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return jnp.sum((params(jnp.ones(2)) - 5.0) ** 2)


def run(task: Any, optimizer: Any, num_seeds: int = 3, **values: Any) -> Curves:
    case = Case(num_inner_steps=9, eval_every=3, **values)
    program = TrainingProgram(case, task, lambda theta: as_stepper(optimizer, 9), num_seeds)
    curves = program.run({}, SeedBlock(start=0, size=num_seeds))
    assert curves is not None
    return curves


@pytest.mark.parametrize("optimizer", [optax.sgd(0.02), optax.adamw(0.1), optax.adafactor(0.1)])
def test_integer_and_boolean_leaves_are_constants(optimizer: Any) -> None:
    with_constants, without = (run(Bowl(has_constants=has), optimizer) for has in (True, False))
    np.testing.assert_allclose(with_constants.metrics["train/loss"], without.metrics["train/loss"], rtol=1e-5)
    assert with_constants.num_params == without.num_params == 2


@pytest.mark.parametrize("sessions", ["shared", "synced", "mean"])
def test_constants_are_common_to_replicas(sessions: str) -> None:
    curves = [
        run(Bowl(has_constants=has), optax.sgd(0.02), sessions=sessions, num_lanes=2).metrics["train/loss"]
        for has in (True, False)
    ]
    np.testing.assert_allclose(*map(np.asarray, curves), rtol=1e-6)


def test_tasks_of_a_family_have_constants() -> None:
    assert run(BowlFamily(), optax.sgd(0.02)).metrics["train/loss"].tolist()[0][-1] < 10.0


def test_an_equinox_module_is_trained_where_it_is_floating_point() -> None:
    curves = run(NetTask(), optax.adam(0.1))
    losses = np.asarray(curves.metrics["train/loss"])
    assert (losses[:, -1] < losses[:, 0]).all()
    model = NetTask().init(jax.random.key(0))
    assert curves.num_params == sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


def test_parameters_without_a_floating_point_leaf_are_refused() -> None:
    class Integers(Bowl):
        def init_with_state(self, key: jax.Array) -> Any:
            return {"count": jnp.int32([1, 2])}, None

    with pytest.raises(ConfigError, match=SHOWN["no-parameter-to-train-got"]):
        run(Integers(has_constants=True), optax.sgd(0.1))


def test_a_key_among_the_parameters_is_refused() -> None:
    class Keyed(Bowl):
        def init_with_state(self, key: jax.Array) -> Any:
            return {"weights": jnp.ones(2), "key": jax.random.key(0)}, None

    with pytest.raises(ConfigError, match=SHOWN["elements-of-a-parameter-of"]):
        run(Keyed(has_constants=True), optax.sgd(0.1))


def test_lookahead_equals_optaxs_own_loop() -> None:
    make = lambda: optax.lookahead(optax.adam(0.1), sync_period=2, slow_step_size=0.5)  # noqa: E731
    losses = np.asarray(run(Bowl(has_constants=False), make(), num_seeds=1).metrics["train/loss"])[0]
    task, optimizer = Bowl(has_constants=False), make()
    start = {"weights": None}

    class Probe(Bowl):
        def init_with_state(self, key: jax.Array) -> Any:
            params, state = super().init_with_state(key)
            jax.debug.callback(lambda weights: start.update(weights=weights), params["weights"])
            return params, state

    run(Probe(has_constants=False), optax.sgd(0.1), num_seeds=1)
    params = optax.LookaheadParams.init_synced({"weights": jnp.asarray(start["weights"]).reshape(2)})
    opt_state, expected = optimizer.init(params), []

    def loss(at: Any) -> jax.Array:
        return task.loss_with_state(at, 0, None, None)[0]  # type: ignore[arg-type]

    for step in range(10):
        if step % 3 == 0:
            expected.append(float(loss(params.slow)))
        updates, opt_state = optimizer.update(jax.grad(loss)(params.fast), opt_state, params)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_lookahead_inside_a_chain_is_refused() -> None:
    chain = optax.chain(optax.clip(1.0), optax.lookahead(optax.sgd(0.1), 2, 0.5))
    with pytest.raises(ConfigError, match=SHOWN["optax-lookahead-is-inside-another"]):
        run(Bowl(has_constants=False), chain)
