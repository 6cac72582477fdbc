"""Extra inputs of optimizers: computed on request, through whatever wraps them, or refused in a line."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from pages import blocks_of
from shown import texts_of

from lobench import ConfigError, Task, TaskFamily, with_extra_inputs
from lobench.core.case import Case, SeedBlock
from lobench.core.phases import Phase
from lobench.core.result import Curves
from lobench.engine.config.layers import Layers
from lobench.engine.config.suite import specs_in
from lobench.evaluation.runner import BlockRunner
from lobench.inner.adapters import as_stepper
from lobench.inner.tasks.wrappers.batches import BatchSize
from lobench.inner.tasks.wrappers.noise import GradientNoise
from lobench.inner.tasks.wrappers.reparametrised import Reparametrised
from lobench.inner.training.checkpointing import SavedState
from lobench.inner.training.phase_transitions import later_phases, phase_stepper
from lobench.inner.training.train import TrainingProgram

SHOWN = texts_of("inner")

RATE = 0.125


class Several(Task):
    """Losses (a - 1)^2, (a + 2)^2 and b^2; the memory's is 3 a + the steps so far, which the model state counts."""

    num_losses = 3

    def init_with_state(self, key: jax.Array) -> Any:
        return {"a": jax.random.uniform(key), "b": jnp.ones((2, 3))}, jnp.float32(0)

    def losses(self, params: Any, state: Any, key: Any, data: Any) -> jax.Array:
        return jnp.stack([(params["a"] - 1) ** 2, (params["a"] + 2) ** 2, jnp.sum(params["b"] ** 2)])

    def loss_with_state(self, params: Any, state: Any, key: Any, data: Any) -> Any:
        return self.losses(params, state, key, data).mean(), state + 1

    def memory_loss(self, params: Any, state: Any, key: Any) -> jax.Array:
        return (3 + state) * params["a"]

    def scale_invariant(self, params: Any) -> Any:
        return {"a": None, "b": -1}


class Apart(Several):
    """A family's task: its first loss counts more."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def losses(self, params: Any, state: Any, key: Any, data: Any) -> jax.Array:
        return super().losses(params, state, key, data) * jnp.stack([self.weight, 1.0, 1.0])


class Family(TaskFamily):
    def sample(self, key: jax.Array) -> Any:
        return 1 + jax.random.uniform(key)

    def task_fn(self, cfg: Any) -> Task:
        return Apart(cfg)


def as_requested(kind: str, seen: Any = None) -> Any:
    """SGD that takes its gradient from its extra inputs; `seen` is told what init got."""

    def init(params: Any, **facts: Any) -> Any:
        if seen is not None:
            seen.append(facts)
        return {"count": jnp.int32(0)}

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        if kind == "memory":
            moves = extra["memory"]
        elif kind == "task_losses":
            moves = extra["weighted_gradient"](jnp.full(extra["task_losses"].shape, 1 / 3))
        elif kind == "task_gradients":
            moves = jax.tree.map(lambda leaf: leaf.mean(axis=0), extra["task_gradients"])
        else:
            moves = jax.tree.map(jnp.add, grads, extra["memory"])
            assert extra["scale_invariant"] == {"a": None, "b": 1} and extra["task_losses"].shape == (3,)
        return jax.tree.map(lambda leaf: -RATE * leaf, moves), {"count": state["count"] + 1}

    extra_inputs = ("memory", "task_losses", "scale_invariant") if kind == "all" else (kind,)
    return with_extra_inputs(init, update, extra_inputs)


def run(task: Any, optimizer: Any, *, thetas: Any = None, **values: Any) -> Any:
    case = Case(**{"num_inner_steps": 4, "eval_every": 1, "num_tasks": 2, **values})
    make = optimizer if thetas is not None else lambda theta: optimizer
    program = TrainingProgram(case, task, lambda theta: as_stepper(make(theta), case.num_inner_steps), 2)
    block = SeedBlock(start=3, size=2)
    return program.run_many(thetas, block) if thetas is not None else program.run({}, block)


def losses(curves: Curves) -> np.ndarray:
    return np.asarray(curves.metrics["train/loss"])


@pytest.mark.parametrize("kind", ["task_losses", "task_gradients"])
@pytest.mark.parametrize("task", [Several(), Family()])
def test_the_mean_of_several_losses_is_the_loss(kind: str, task: Any) -> None:
    np.testing.assert_allclose(losses(run(task, as_requested(kind))), losses(run(task, optax.sgd(RATE))), rtol=1e-5)


def test_the_memory_is_that_of_the_model_state_before_the_step() -> None:
    found = losses(run(Several(), as_requested("memory")))
    at = np.float64(jax.vmap(lambda seed: start(seed))(jnp.arange(3, 5)))
    for step in range(5):
        np.testing.assert_allclose(found[:, step], ((at - 1) ** 2 + (at + 2) ** 2 + 6) / 3, rtol=1e-5)
        at = at - RATE * (3 + step)


def start(seed: jax.Array) -> jax.Array:
    from lobench.inner.training.streams import INIT, Replica, stream

    return jax.random.uniform(stream(Replica(seed.astype(jnp.uint32), jnp.uint32(0)), INIT))


def gradient_and_memory() -> Any:
    """The same as `as_requested("all")`, by shape and not by `with_extra_inputs`."""

    class ByShape:
        extra_inputs = ("memory", "task_losses", "scale_invariant")

        def init(self, params: Any, num_losses: int) -> Any:
            return jnp.zeros(num_losses)

        def update(self, grads: Any, state: Any, params: Any, *, memory: Any, task_losses: Any, **_: Any) -> Any:
            return jax.tree.map(lambda one, other: -RATE * (one + other), grads, memory), task_losses

    return ByShape()


WRAPPED = {
    "by shape": lambda made: gradient_and_memory(),
    "chain": lambda made: optax.chain(optax.identity(), optax.chain(made)),
    "injected": lambda made: optax.inject_hyperparams(lambda rate: optax.chain(made, optax.scale(rate)))(rate=1.0),
    "every one": lambda made: optax.MultiSteps(made, every_k_schedule=1),
    "inner": lambda made: with_extra_inputs(made.init, lambda *args, **extra: made.update(*args, **extra), inner=made),
    "inner chain": lambda made: around(optax.chain(made)),
}


def around(inner: Any) -> Any:
    return with_extra_inputs(inner.init, lambda *args, **extra: inner.update(*args, **extra), inner=inner)


@pytest.mark.parametrize("wrapper", WRAPPED)
def test_several_inputs_pass_through_what_wraps_an_optimizer(wrapper: str) -> None:
    seen: list[Any] = []
    plain = losses(run(Several(), as_requested("all", seen)))
    assert seen[-1] == {"scale_invariant": {"a": None, "b": 1}, "num_losses": 3}
    np.testing.assert_allclose(losses(run(Several(), WRAPPED[wrapper](as_requested("all")))), plain, rtol=1e-5)


def test_a_part_of_the_parameters_gets_its_part_of_the_inputs() -> None:
    def update(grads: Any, state: Any, params: Any = None, *, memory: Any, **_: Any) -> Any:
        return jax.tree.map(lambda grad, each: 0 * grad - RATE * each, grads, memory), state

    own = with_extra_inputs(lambda params: (), update, ("memory",))
    parts = optax.partition({"own": own, "rest": optax.sgd(RATE)}, {"a": "own", "b": "rest"})
    found = losses(run(Several(), parts))
    only_b = np.float64(6.0) * (1 - 2 * RATE / 3) ** (2 * np.arange(5))
    only_a = losses(run(Several(), as_requested("memory"))) - 2
    np.testing.assert_allclose(found, only_a + only_b / 3, rtol=1e-5)


@pytest.mark.parametrize("sessions", ["shared", "synced", "mean"])
def test_replicas_that_train_one_set_of_parameters_get_it_each(sessions: str) -> None:
    """None of them reads data, so that a round of two shared turns is two steps, and a mean of two is one."""
    values = {"sessions": sessions, "num_lanes": 2, "num_inner_steps": 2}
    for kind in ("task_losses", "task_gradients"):
        extra_values, plain = (losses(run(Several(), each, **values)) for each in (as_requested(kind), optax.sgd(RATE)))
        np.testing.assert_allclose(extra_values, plain, rtol=1e-5)
    assert np.isfinite(losses(run(Several(), as_requested("all"), **values))).all()


def test_several_thetas_are_one_program() -> None:
    def make(theta: Any) -> Any:
        return optax.chain(as_requested("task_losses"), optax.scale(theta["scale"]))

    both = run(Several(), make, thetas=[{"scale": np.float32(1)}, {"scale": np.float32(0.5)}])
    for curves, rate in zip(both, (RATE, RATE / 2), strict=True):
        np.testing.assert_allclose(losses(curves), losses(run(Several(), optax.sgd(rate))), rtol=1e-5)


class Kept:
    """Keeps one state in memory; `upto` is the furthest that it gives back."""

    def __init__(self) -> None:
        self.states: list[SavedState] = []

    def load(self) -> Any:
        return (self.states[0].leaves, self.states[0].header) if self.states else None

    def save(self, state: SavedState, *, is_final: bool) -> None:
        self.states.append(state)

    def refuse(self, why: str) -> None:
        raise AssertionError(why)


def test_phases_and_saved_states_go_on_with_them() -> None:
    phases = [Phase(num_inner_steps=2, optimizer=each, opt_state="reset") for each in (optax.sgd(RATE), None)]
    phases[1] = Phase(num_inner_steps=2, optimizer=as_requested("all"), opt_state="reset")
    case = Case(num_inner_steps=4, eval_every=1, num_seeds=2, phases=phases, save_every=3)
    make = lambda index, theta: phase_stepper(case, index, theta)  # noqa: E731
    later = later_phases(case, make)
    block, kept = SeedBlock(start=3, size=2), Kept()

    def program() -> TrainingProgram:
        return TrainingProgram(case, Several(), lambda theta: make(0, theta), 2, (), later)

    whole = program().run({}, block, saves=kept)
    assert kept.states[0].header["step"] == 3
    again = program().run({}, block, saves=kept)
    assert whole is not None and again is not None and again.resumed_at == 3
    assert losses(whole).tobytes() == losses(again).tobytes()
    first_half = losses(run(Several(), optax.sgd(RATE)))
    assert losses(whole)[:, :3].tobytes() == first_half[:, :3].tobytes()
    assert abs(losses(whole)[:, 3:] - first_half[:, 3:]).min() > 0.01


def test_what_nobody_requests_is_not_computed() -> None:
    class Costly(Several):
        def losses(self, *args: Any) -> Any:
            raise AssertionError("losses")

        def loss_with_state(self, params: Any, state: Any, key: Any, data: Any) -> Any:
            return params["a"] ** 2, state

        memory_loss = scale_invariant = losses

    made = as_requested("all")  # one is there
    assert np.isfinite(losses(run(Costly(), optax.sgd(RATE)))).all()
    del made


class Plain(Task):
    def init(self, key: jax.Array) -> Any:
        return {"a": jnp.ones(3)}

    def loss(self, params: Any, key: Any, data: Any) -> Any:
        return jnp.sum(params["a"] ** 2)


class Uncounted(Several):
    num_losses = 2


class Shapeless(Several):
    def scale_invariant(self, params: Any) -> Any:
        return {"a": None}


class Axisless(Several):
    def scale_invariant(self, params: Any) -> Any:
        return {"a": None, "b": 2}


@pytest.mark.parametrize(
    ("task", "requested", "named"),
    [
        (Plain(), "memory", "Plain"),
        (Plain(), "task_gradients", "Plain"),
        (Plain(), "scale_invariant", "Plain"),
        (Uncounted(), "task_losses", "Uncounted.losses"),
        (Shapeless(), "scale_invariant", "Shapeless.scale_invariant"),
        (Axisless(), "scale_invariant", "Axisless.scale_invariant"),
        (GradientNoise(task=Several()), "memory", "Several"),
    ],
)
def test_what_the_task_lacks_is_refused_in_a_line_that_names_the_task(task: Any, requested: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(task, optax.chain(as_requested(requested)))
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_a_wrapper_that_keeps_the_loss_passes_on_what_the_task_gives() -> None:
    task = Reparametrised(task=Several(), scale=2.0)
    assert task.scale_invariant({"a": 0, "b": 0}) == {"a": None, "b": -1}
    params = {"a": jnp.float32(0.5), "b": jnp.ones((2, 3))}
    assert task.num_losses == 3 and task.memory_loss(params, jnp.float32(0), None) == 3 * 1.0
    assert task.losses(params, None, None, None).tolist() == [0.0, 9.0, 24.0]
    assert np.isfinite(losses(run(task, as_requested("all")))).all()
    from lobench.inner.tasks.image import DigitsMLP

    assert not hasattr(BatchSize(task=DigitsMLP(), batch_size=2), "memory_loss")


def test_the_example_of_the_docs() -> None:
    [text] = [block.text for block in blocks_of("suites.md") if block.title == "mixing.py"]
    code = "".join(text.partition("@lobench.configurable")[1:])
    names = {
        "lobench": types.SimpleNamespace(configurable=lambda made: made, with_extra_inputs=with_extra_inputs),
        "jax": jax,
    }
    exec(code, {**names, "optax": optax}, names)
    found = losses(run(Several(), names["remembering"](share=1.0, inner=optax.sgd(RATE))))
    np.testing.assert_allclose(found, losses(run(Several(), as_requested("memory"))), rtol=1e-5)


def test_an_unknown_input_is_refused() -> None:
    with pytest.raises(ConfigError, match=SHOWN["requests-memroy-expected-one-of"]):
        as_requested("memroy")


def test_outside_of_an_inner_program_it_says_that_nothing_computes_it() -> None:
    stepper, params = as_stepper(as_requested("memory"), 10), {"a": jnp.ones(3)}
    with pytest.raises(ConfigError, match=SHOWN["as-requested-requests-memory-which"]):
        stepper.step({"count": jnp.int32(0)}, params, None, params, jnp.float32(1), jax.random.key(0))


SUITE = """
import lobench.inner.tasks
import lobench.inner.optimizers
import their_optimizers
x/Case.task = @{task}()
x/Case.num_inner_steps = 2
x/Case.optimizer = @optax.chain()
optax.chain.args = (@optax.clip(), @their_sgd())
optax.clip.max_delta = 1.0
"""
THEIRS = """
import lobench
import optax

@lobench.configurable
def their_sgd():
    inner = optax.sgd(0.1)
    return lobench.with_extra_inputs(inner.init, inner.update, ("memory",), inner=inner)
"""


@pytest.mark.parametrize("task", ["DigitsMLP", "QuadraticFamily"])
def test_a_case_whose_task_lacks_it_does_not_bind(task: str, tmp_path: Path) -> None:
    (tmp_path / "x.gin").write_text(SUITE.format(task=task))
    (tmp_path / "their_optimizers.py").write_text(THEIRS)
    [spec] = specs_in(tmp_path / "x.gin")
    with pytest.raises(ConfigError, match=SHOWN["x-gin-case-x-requests"]) as caught:
        BlockRunner(Layers()).bind(spec, "")
    assert "\n" not in str(caught.value)
