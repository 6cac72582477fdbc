"""SGD-G and Adam-G: geodesics on the sphere, neuron by neuron, against numpy."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench import Task, with_extra_inputs
from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import adam_g, sgd, sgd_g
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.training.train import TrainingProgram

AXES = {"dense": 1, "kernel": 3, "first": 0, "bias": None}
SHAPES = {"dense": (6, 4), "kernel": (3, 3, 2, 5), "first": (4, 7), "bias": (4,)}
OWN = [name for name, axis in AXES.items() if axis is not None]
MAKE = {"sgd_g": functools.partial(sgd_g, 0.5), "adam_g": functools.partial(adam_g, 0.05)}
NUM_STEPS = 200


def columns(name: str, leaf: Any) -> np.ndarray:
    """Each neuron's weights as a column, float64[inputs, neurons]."""
    return np.moveaxis(np.asarray(leaf, np.float64), AXES[name], -1).reshape(-1, SHAPES[name][AXES[name]])


def drawn(rng: Any) -> dict[str, np.ndarray]:
    return {name: np.float32(rng.standard_normal(shape)) for name, shape in SHAPES.items()}


def grads_at(params: Any, index: Any) -> Any:
    """A gradient that changes from place to place, and from step to step."""
    return jax.tree.map(lambda leaf: jnp.sin(3 * leaf + jnp.arange(leaf.size).reshape(leaf.shape) + index), params)


@functools.cache
def trained(name: str) -> Any:
    """Returns params -> the parameters, the initial ones first, and the gradients and own states of each step."""
    stepper = as_stepper(MAKE[name](rest=sgd(0.1)), NUM_STEPS)
    facts = {"scale_invariant": AXES}

    @jax.jit
    def train(params: Any) -> Any:
        params = stepper.initial_params(params, facts)
        state = stepper.init(params, None, None, facts)

        def step(carry: Any, index: Any) -> Any:
            state, params = carry
            grads = grads_at(params, index)
            state, params, _ = stepper.step(state, params, None, grads, jnp.float32(1), None, None, facts)
            return (state, params), (params, grads, dict(zip(sorted(OWN), state.own, strict=True)))

        _, (path, grads, states) = jax.lax.scan(step, (state, params), jnp.arange(NUM_STEPS))
        return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), params, path), grads, states

    return train


def norms(values: np.ndarray) -> np.ndarray:
    return np.linalg.norm(values, axis=0)


def reference_tangent(gradient: np.ndarray, y: np.ndarray) -> np.ndarray:
    h = gradient - y * (y * gradient).sum(0)
    return h * np.minimum(1, 0.1 / norms(h))


def reference_sgd_g(y: np.ndarray, gradient: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    d = 0.9 * d - 0.5 * reference_tangent(gradient, y)
    length = norms(d)
    return y * np.cos(length) + d / length * np.sin(length), (d / length * np.cos(length) - y * np.sin(length)) * length


def reference_adam_g(
    y: np.ndarray, gradient: np.ndarray, m: np.ndarray, v: np.ndarray, t: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    h = reference_tangent(gradient, y)
    m, v = 0.9 * m + 0.1 * h, 0.99 * v + 0.01 * (h * h).sum(0)
    d = -0.05 * np.sqrt(1 - 0.99**t) / (1 - 0.9**t) * m / np.sqrt(v + 1e-8)
    length = norms(d)
    u = d / length
    moved = y * np.cos(length) + u * np.sin(length)
    return moved, m - (u * m).sum(0) * (np.sin(length) * y + (1 - np.cos(length)) * u), v


@pytest.mark.parametrize("name", MAKE)
def test_each_step_is_that_of_the_reference_and_norms_stay_one(name: str) -> None:
    """The reference takes the program's own place and state before each step: errors do not add up."""
    path, gradients, states = jax.tree.map(np.asarray, trained(name)(drawn(np.random.default_rng(1))))
    for leaf in OWN:
        states_of = states[leaf] if name == "sgd_g" else states[leaf].mu
        before: Any = np.zeros_like(columns(leaf, path[leaf][0]))
        v: Any = np.zeros(before.shape[1])
        for step in range(NUM_STEPS):
            y, gradient = columns(leaf, path[leaf][step]), columns(leaf, gradients[leaf][step])
            y = y / norms(y)
            if name == "sgd_g":
                moved, after = reference_sgd_g(y, gradient, before)
            else:
                moved, after, v = reference_adam_g(y, gradient, before, v, step + 1)
                np.testing.assert_allclose(states[leaf].nu[step].ravel(), v, rtol=1e-4)
            np.testing.assert_allclose(columns(leaf, path[leaf][step + 1]), moved, atol=1e-6)
            before = columns(leaf, states_of[step])
            np.testing.assert_allclose(before, after, atol=1e-6)
        assert np.abs(norms(columns(leaf, path[leaf][-1])) - 1).max() < 2e-7
    np.testing.assert_allclose(path["bias"][1], path["bias"][0] - 0.1 * gradients["bias"][0], rtol=1e-6)


class Rayleigh(Task):
    """-w'Aw / w'w for each of three neurons, each of which is to end at A's top eigenvector."""

    values = np.array([4.0, 2.0, 1.0, 0.5, 0.1])

    def __init__(self) -> None:
        basis = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0]
        self.top, self.matrix = basis[:, 0], np.float32(basis * self.values @ basis.T)

    def init(self, key: jax.Array) -> Any:
        return {"w": jax.random.normal(key, (5, 3))}

    def loss(self, params: Any, key: Any, data: Any) -> jax.Array:
        w = params["w"]
        return -jnp.mean(jnp.sum(w * (self.matrix @ w), axis=0) / jnp.sum(w * w, axis=0))

    def scale_invariant(self, params: Any) -> Any:
        return {"w": 1}


@pytest.mark.parametrize(("name", "made"), [("sgd_g", sgd_g(0.2, 0.0)), ("adam_g", adam_g(0.02, clip=10.0))])
def test_the_rayleigh_quotient_descends_to_the_top_eigenvector(name: str, made: Any) -> None:
    case = Case(num_inner_steps=400, eval_every=20)
    curves = TrainingProgram(case, Rayleigh(), lambda theta: as_stepper(made, 400), 2).run(
        {}, SeedBlock(start=0, size=2)
    )
    assert curves is not None
    losses = np.asarray(curves.metrics["train/loss"])
    assert losses[:, 0].min() > -3.9
    np.testing.assert_allclose(losses[:, -1], -4.0, atol=1e-3)
    if name == "sgd_g":  # without momentum it never goes up
        assert (np.diff(losses, axis=1) < 1e-6).all()


@pytest.mark.parametrize("name", MAKE)
def test_training_starts_at_norm_one_whatever_the_scale(name: str) -> None:
    exact = {"data": "digits", "norm": "batch", "norm_epsilon": 0.0, "hidden_biases": False}
    case = Case(num_inner_steps=NUM_STEPS, eval_batches=0, eval_every=NUM_STEPS, log_every=1)

    def make(theta: Any) -> Any:
        made = MAKE[name]()

        def initial_params(params: Any, scale_invariant: Any) -> Any:
            params = {each: leaf * (theta["scale"] if each in ("w0", "w1") else 1) for each, leaf in params.items()}
            return made.initial_params(params, scale_invariant)

        return as_stepper(
            with_extra_inputs(made.init, made.update, inner=made, initial_params=initial_params), NUM_STEPS
        )

    program = TrainingProgram(case, MLPClassifier(hidden_sizes=(32, 32), **exact), make, 1)
    found = [program.run({"scale": np.float32(scale)}, SeedBlock(start=0, size=1)) for scale in (1, 8)]
    one, eight = (np.asarray(curves.metrics["batch/loss"])[0] for curves in found if curves is not None)
    assert one.tobytes() == eight.tobytes()
    assert one[-20:].mean() < 0.5 * one[0]
