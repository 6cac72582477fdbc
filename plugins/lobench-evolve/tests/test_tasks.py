"""Few-shot sinusoids, goals, and initial parameters that are learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lobench_evolve.optimizers import LearnedInit
from lobench_evolve.tasks import PointGoals, Sinusoids
from shown import texts_of

import lobench
from lobench import ConfigError, Task
from lobench.extend import as_stepper
from lobench.inner.optimizers import schedule_free_adamw
from lobench.testing.optimizers import OptimizerContract
from lobench.testing.tasks import TaskContract

SHOWN = texts_of("evolve")

KEY = jax.random.key(0)


class TestSinusoids(TaskContract):
    test_batches_depend_on_the_key_alone_and_have_one_shape = None  # it has no dataset

    def task(self) -> Sinusoids:
        return Sinusoids(num_shots=3, hidden_sizes=(4,))


class TestPointGoals(TaskContract):
    test_batches_depend_on_the_key_alone_and_have_one_shape = None  # it has no dataset

    def task(self) -> PointGoals:
        return PointGoals(num_episodes=4, num_moves=3, hidden_sizes=(4,))


class Bowl(Task):
    """Of the shape of what the contract trains."""

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        return {"x": jax.random.normal(key, (3,))}


class TestLearnedInit(OptimizerContract):
    def optimizer(self) -> LearnedInit:
        return LearnedInit(Bowl(), optax.sgd(0.1))


def test_a_sinusoid_is_fitted_at_its_shots_and_judged_everywhere() -> None:
    family = Sinusoids(num_shots=3)
    cfg = {**family.sample(KEY), "x": jnp.array([-0.5, 0.0, 0.5]), "amplitude": jnp.float32(2), "phase": jnp.float32(0)}
    task = family.task_fn(cfg)
    silent = jax.tree.map(jnp.zeros_like, task.init(KEY))
    assert float(task.loss(silent, KEY, None)) == pytest.approx(np.mean((2 * np.sin([-0.5, 0, 0.5])) ** 2), rel=1e-5)
    everywhere = np.mean((2 * np.sin(np.linspace(-5, 5, 101))) ** 2)
    assert float(task.eval_loss_with_aux(silent, None, KEY, None)[0]) == pytest.approx(everywhere, rel=1e-5)


def test_the_gradient_of_a_goal_is_that_of_the_expected_return() -> None:
    """Against finite differences of the expected loss, which noise alone makes smooth here."""
    task = PointGoals(num_episodes=20_000, num_moves=2, hidden_sizes=()).task_fn(jnp.array([0.05, -0.05]))
    params = {**task.init(KEY), "log_std": jnp.full(2, -1.0)}
    params["b0"] = jnp.array([0.1, 0.2])
    gradient = jax.jit(jax.grad(lambda p: task.loss(p, KEY, None)))(params)["b0"]
    value = jax.jit(lambda b0: task.loss({**params, "b0": b0}, KEY, None))
    for axis in range(2):
        step = jnp.zeros(2).at[axis].set(0.05)
        slope = float(value(params["b0"] + step) - value(params["b0"] - step)) / 0.1
        assert float(gradient[axis]) == pytest.approx(slope, abs=0.003)


def test_each_round_collects_anew_with_the_parameters_that_it_has() -> None:
    task = PointGoals().task_fn(jnp.array([0.3, 0.3]))
    params = task.init(KEY)
    first = task.loss(params, jax.random.key(1), None)
    assert first != task.loss(params, jax.random.key(2), None)
    assert first == task.loss(params, jax.random.key(1), None)
    towards = {**params, "b2": jnp.array([1.0, 1.0])}
    assert task.loss(towards, jax.random.key(1), None) < first


def test_policy_gradients_reach_a_goal() -> None:
    task = PointGoals().task_fn(jnp.array([0.3, -0.2]))
    optimizer = optax.sgd(0.3)

    def step(carry: tuple[dict[str, jax.Array], optax.OptState], key: jax.Array) -> tuple[object, None]:
        params, state = carry
        updates, state = optimizer.update(jax.grad(task.loss)(params, key, None), state)
        return (optax.apply_updates(params, updates), state), None

    params = task.init(KEY)
    before = task.eval_loss_with_aux(params, None, KEY, None)[1]["distance"]
    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), jax.random.split(KEY, 200))
    after = task.eval_loss_with_aux(params, None, KEY, None)[1]["distance"]
    assert after < before / 2


@pytest.mark.parametrize("shots", [0, 1.5, True])
def test_shots_that_are_none(shots: object) -> None:
    with pytest.raises(ConfigError, match=SHOWN["sinusoids-num-shots-got-expected"]):
        Sinusoids(num_shots=shots)  # type: ignore[arg-type]


def test_learned_initial_parameters_are_where_training_starts(tmp_path: Path) -> None:
    suite = tmp_path / "few.gin"
    suite.write_text(
        "few/Case.task = @Sinusoids()\nCase.num_inner_steps = 2\nCase.num_seeds = 1\nCase.num_tasks = 3\n"
        "Case.learned_optimizer = @LearnedInit()\nLearnedInit.task = @Sinusoids()\n"
        "LearnedInit.optimizer = @sgd()\nsgd.learning_rate = 0.0\n"
    )
    learned = LearnedInit(Sinusoids(), optax.sgd(0.0))
    theta = learned.init(KEY)
    np.savez(tmp_path / "theta.npz", **{f"theta/{name}": np.asarray(leaf) for name, leaf in theta.items()})
    result = lobench.evaluate(suite, checkpoint=tmp_path / "theta.npz")
    silent = {name: np.zeros_like(leaf) for name, leaf in theta.items()}
    np.savez(tmp_path / "silent.npz", **{f"theta/{name}": leaf for name, leaf in silent.items()})
    nothing = lobench.evaluate(suite, checkpoint=tmp_path / "silent.npz")
    curve, zero = (np.asarray(found.metrics["train/loss"])[0] for found in (result, nothing))
    assert curve[0] == curve[-1] != zero[0]
    amplitudes = [Sinusoids().sample(jax.random.fold_in(jax.random.key(0x10BE), index)) for index in range(3)]
    x = np.linspace(-5, 5, 101)
    expected = np.mean([(cfg["amplitude"] * np.sin(x - cfg["phase"])) ** 2 for cfg in amplitudes])
    assert zero[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("optimizer", [optax.scale(-0.1), schedule_free_adamw(0.1)], ids=["plain", "averaging"])
def test_any_optimizer_adapts_learned_initial_parameters_as_it_would_others(optimizer: Any) -> None:
    class Bowl(Task):
        def init(self, key: jax.Array) -> jax.Array:
            return jnp.ones(3)

        def loss(self, params: jax.Array, key: jax.Array, data: None) -> jax.Array:
            return jnp.sum(params**2)

    def evaluated(optimizer: Any) -> np.ndarray:
        stepper = as_stepper(optimizer, 3)
        params = stepper.initial_params(jnp.ones(3))
        state = stepper.init(params, None, KEY)
        for _ in range(3):
            loss, grads = jax.value_and_grad(lambda at: jnp.sum(at**2))(params)
            state, params, _ = stepper.step(state, params, None, grads, loss, KEY)
        return np.asarray(stepper.eval_params(state, params))

    learned = LearnedInit(Bowl(), optimizer)
    np.testing.assert_array_equal(evaluated(learned.opt_fn(learned.init(KEY), 3)), evaluated(optimizer))
