"""A-GEM's gradient: itself where the memory agrees, and nothing against the memory where it does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import adam, agem, schedule_free_adamw, sgd
from lobench.inner.optimizers.agem import remove_conflict_with_memory
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.training.train import TrainingProgram

SHAPES = {"w": (3, 4), "b": (5,), "s": ()}
KEY = jax.random.key(0)


@jax.jit
def agreed(grads: Any, memory: Any) -> Any:
    return remove_conflict_with_memory(grads, memory)


def tree(values: np.ndarray) -> dict[str, np.ndarray]:
    parts = np.split(np.float32(values), [12, 17])
    return {name: part.reshape(SHAPES[name]) for name, part in zip(SHAPES, parts, strict=True)}


def flat(values: Any) -> np.ndarray:
    return np.concatenate([np.asarray(values[name], np.float64).ravel() for name in SHAPES])


@st.composite
def pairs(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of any size, and any angle between them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, other = rng.standard_normal((2, 18))
    other = draw(st.sampled_from([-1.0, -0.1, 0.0, 0.1, 1.0])) * first + draw(st.sampled_from([0, 1e-4, 1.0])) * other
    scales = [10.0 ** draw(st.integers(-15, 15)) for _ in range(2)]
    return np.float32(first * scales[0]), np.float32(other * scales[1])


@settings(deadline=None, max_examples=200)
@given(pairs())
def test_it_never_goes_against_the_memory_and_is_itself_where_they_agree(pair: Any) -> None:
    grads, memory = map(tree, pair)
    found, g, r = flat(agreed(grads, memory)), flat(grads), flat(memory)
    sizes = np.linalg.norm(g) * np.linalg.norm(r)
    assert found @ r >= -1e-6 * sizes
    assert np.linalg.norm(found) <= np.linalg.norm(g) * (1 + 1e-6)
    if g @ r >= 1e-6 * sizes or not r.any():
        assert found.tobytes() == g.tobytes()
    if g @ r < 0:
        np.testing.assert_allclose(found, g - (g @ r) / (r @ r) * r, atol=2e-6 * np.abs(g).max())


def stepping(optimizer: Any) -> Callable[[Any, Any], np.ndarray]:
    """Returns a function of (grads, memory): the parameters that two updates make, where they are evaluated."""
    stepper, start = as_stepper(optimizer, 2), tree(np.linspace(-1, 1, 18))
    extra_values = stepper.extra_inputs(start)
    assert extra_values in ({}, {"memory": "agem"})

    # At LLVM's lowest level two programs round in other places.
    @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 1})
    def train(params: Any, grads: Any, memory: Any) -> Any:
        state = stepper.init(params, None, KEY)
        for _ in range(2):
            given = {"memory": memory} if extra_values else {}
            state, params, _ = stepper.step(state, params, None, grads, jnp.float32(1), KEY, lambda at: 0, given)
        return stepper.eval_params(state, params)

    return lambda grads, memory: flat(train(start, grads, memory))


@pytest.mark.parametrize("inner", [sgd(), adam(0.1), optax.sgd(0.1), schedule_free_adamw(0.1)])
def test_it_is_its_inner_optimizer_where_the_memory_is_empty_or_agrees(inner: Any) -> None:
    grads = tree(np.cos(np.arange(18)))
    plain, stepped = stepping(inner)(grads, grads), stepping(agem(inner=inner))
    for memory in (tree(np.zeros(18)), grads):
        assert stepped(grads, memory).tobytes() == plain.tobytes()


def test_the_inner_optimizer_sees_the_projected_gradient_alone() -> None:
    start = np.linspace(-1, 1, 18)
    grads, against = tree(start), tree(-start)
    assert np.abs(stepping(agem())(grads, against) - start).max() < 1e-6

    def update(grads: Any, state: Any, params: Any = None, *, grad: Any, **_: Any) -> Any:
        return jax.tree.map(lambda each: -each, grad), state

    seen = optax.GradientTransformationExtraArgs(lambda params: (), update)
    assert np.abs(stepping(agem(inner=seen))(grads, against) - start).max() < 1e-6


class Remembering(MLPClassifier):
    """Remembers a batch of digits, or nothing."""

    def __init__(self, *, remembers: bool) -> None:
        super().__init__(data="digits", hidden_sizes=(8,))
        self.remembers, self.batch = remembers, self.datasets.train.sample(KEY)  # type: ignore[union-attr]

    def memory_loss(self, params: Any, state: Any, key: Any) -> jax.Array:
        return self.loss_with_state(params, state, key, self.batch)[0] * self.remembers


def losses(optimizer: Any, *, remembers: bool) -> bytes:
    case = Case(num_inner_steps=10, eval_batches=0, eval_every=10, log_every=1)
    program = TrainingProgram(case, Remembering(remembers=remembers), lambda theta: as_stepper(optimizer, 10), 1)
    curves = program.run({}, SeedBlock(start=0, size=1))
    assert curves is not None
    return np.asarray(curves.metrics["batch/loss"]).tobytes()


def test_in_a_training_it_is_sgd_to_the_last_bit_as_long_as_the_memory_agrees() -> None:
    plain = losses(sgd(), remembers=True)
    for remembers in (False, True):
        assert losses(agem(inner=sgd()), remembers=remembers) == plain
