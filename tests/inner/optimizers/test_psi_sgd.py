"""PSI-SGD: the scale of scale-invariant weights changes no bit of the losses, and overflow protection neither."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lobench import with_extra_inputs
from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.optimizers import momentum, psi_sgd
from lobench.inner.tasks.convolutional import ConvClassifier
from lobench.inner.tasks.multilayer import MLPClassifier
from lobench.inner.training.train import TrainingProgram

NUM_STEPS = 200
EXACT = {"data": "digits", "norm": "batch", "norm_epsilon": 0.0}
MLP = MLPClassifier(hidden_sizes=(32, 32), hidden_biases=False, **EXACT)


def starting(made: Any, scale: Any) -> Any:
    """The optimizer, started at scale-invariant weights times `scale`."""

    def initial_params(params: Any, scale_invariant: Any) -> Any:
        return {name: leaf * (1 if scale_invariant[name] is None else scale) for name, leaf in params.items()}

    return with_extra_inputs(made.init, made.update, ("scale_invariant",), inner=made, initial_params=initial_params)


def losses(make: Any, settings: Any, task: Any = MLP, num_steps: int = NUM_STEPS) -> np.ndarray:
    """Returns the batches' losses of one seed for each setting, all of one program, float32[settings, steps]."""
    case = Case(num_inner_steps=num_steps, eval_batches=0, eval_every=num_steps, log_every=1, num_seeds=1)
    program = TrainingProgram(case, task, lambda theta: as_stepper(make(**theta), num_steps), 1)
    found = []
    for each in settings:
        curves = program.run({name: np.float32(value) for name, value in each.items()}, SeedBlock(start=0, size=1))
        assert curves is not None
        found.append(np.asarray(curves.metrics["batch/loss"])[0])
    return np.stack(found)


def from_scale(scale: Any, decay: Any, *, made: Any = psi_sgd, rate: float = 0.1, **values: Any) -> Any:
    return starting(made(rate, decay, **values), scale)


@pytest.mark.parametrize("task", [MLP, ConvClassifier(channels=(4,), **EXACT)])
def test_weights_eight_times_as_large_give_the_same_bits(task: Any) -> None:
    grid = [{"scale": scale, "decay": decay} for decay in (0.0, 0.9) for scale in (1.0, 8.0, 3.0)]
    steps = NUM_STEPS if task is MLP else 20
    found = losses(from_scale, grid, task, steps)
    assert np.isfinite(found).all() and (found[:, -5:].mean(axis=1) < 0.9 * found[:, 0]).all()
    for one, eight, three in (found[:3], found[3:]):
        assert one.tobytes() == eight.tobytes()
        assert one.tobytes() != three.tobytes()
        if task is MLP:
            np.testing.assert_allclose(three, one, atol=2e-5)


def test_plain_sgd_does_not() -> None:
    grid = [{"scale": scale, "decay": decay} for decay in (0.0, 0.9) for scale in (1.0, 8.0)]
    found = losses(functools.partial(from_scale, made=momentum), grid)
    for one, eight in (found[:2], found[2:]):
        assert np.abs(one - eight).max() > 0.5


def test_protection_against_overflow_changes_no_bit() -> None:
    """Norms that begin at 2^13 pass 2^16 within the training: at rate 2 they grow 9,000 times as large."""
    make = lambda protect, **values: from_scale(protect=protect > 0, **values)  # noqa: E731
    sizes = [{"scale": 2.0**13, "decay": 0.0, "rate": 2.0}, {"scale": 2.0**13, "decay": 0.9, "rate": 0.5}]
    sizes += [{"scale": scale, "decay": 0.0, "rate": 0.1} for scale in (1.0, 2.0**40, 2.0**-40)]
    grid = [{**each, "protect": protect} for each in sizes for protect in (0.0, 1.0)]
    found = losses(make, grid).reshape(len(sizes), 2, NUM_STEPS)
    assert np.isfinite(found).all()
    for free, kept in found:
        assert free.tobytes() == kept.tobytes()
    assert len({kept.tobytes() for kept in found[2:, 1]}) == 1


AXES = {"dense": 1, "kernel": 3, "first": 0}
SHAPES = {"dense": (6, 4), "kernel": (3, 3, 2, 5), "first": (4, 7)}


def columns(values: Any) -> dict[str, np.ndarray]:
    return {
        name: np.moveaxis(np.asarray(leaf, np.float64), AXES[name], -1).reshape(-1, SHAPES[name][AXES[name]])
        for name, leaf in values.items()
    }


def neurons(rng: Any, scale: float = 1.0) -> dict[str, np.ndarray]:
    return {name: np.float32(scale * rng.standard_normal(shape)) for name, shape in SHAPES.items()}


@functools.cache
def one_step(decay: float, protect: bool) -> Any:
    stepper = as_stepper(psi_sgd(0.5, decay, protect=protect), 10)

    @jax.jit
    def step(params: Any, first: Any, second: Any) -> Any:
        facts = {"scale_invariant": AXES}
        state = stepper.init(params, None, None, facts)
        state, params, _ = stepper.step(state, params, None, first, jnp.float32(0), None, None, facts)
        return params, stepper.step(state, params, None, second, jnp.float32(0), None, None, facts)[1]

    return step


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(-3, 3))
def test_norms_grow_by_their_law(seed: int, exponent: int) -> None:
    """|w'|^2 = |w|^2 (1 + rate^2 |w|^2 |grad|^2) for a gradient that is orthogonal to w, each neuron by itself."""
    rng = np.random.default_rng(seed)
    params, grads = neurons(rng, 2.0**exponent), neurons(rng, 2.0**-exponent)
    for name, axis in AXES.items():
        w, g = (np.moveaxis(np.float64(each[name]), axis, -1) for each in (params, grads))
        inside = tuple(range(w.ndim - 1))
        g = g - w * (w * g).sum(inside) / (w * w).sum(inside)
        grads[name] = np.float32(np.moveaxis(g, -1, axis))
    after, _ = one_step(0.0, False)(params, grads, grads)
    w, g, moved = columns(params), columns(grads), columns(after)
    for name in AXES:
        before = (w[name] ** 2).sum(0)
        expected = before * (1 + 0.25 * before * (g[name] ** 2).sum(0))
        np.testing.assert_allclose((moved[name] ** 2).sum(0), expected, rtol=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(-40, 40))
def test_a_power_of_two_on_a_neuron_is_a_power_of_two_afterwards(seed: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    params, first, second = neurons(rng), neurons(rng), neurons(rng)
    scaled = {name: leaf * np.float32(2.0**exponent) for name, leaf in params.items()}
    first_scaled = {name: leaf * np.float32(2.0**-exponent) for name, leaf in first.items()}
    middle, one = one_step(0.5, True)(params, first, second)
    middle_scaled, _ = one_step(0.5, True)(scaled, first_scaled, second)
    # The gradient at weights that were protected is that of their new scale.
    second_scaled = {name: leaf / np.asarray(middle_scaled[name] / middle[name]) for name, leaf in second.items()}
    _, other = one_step(0.5, True)(scaled, first_scaled, second_scaled)
    for name in AXES:
        ratio = columns(other)[name] / columns(one)[name]
        assert (ratio == ratio[:1]).all() and (np.frexp(ratio)[0] == 0.5).all()
        norms = np.linalg.norm(columns(other)[name], axis=0)
        assert (norms <= 2.0**17).all() and (norms >= 2.0**-16).all()


def test_the_gradient_is_orthogonal_to_each_neuron() -> None:
    params, state = MLP.init_with_state(jax.random.key(1))
    batch = MLP.datasets.train.sample(jax.random.key(2))
    grads = jax.jit(jax.grad(lambda params: MLP.loss_with_state(params, state, None, batch)[0]))(params)
    axes = MLP.scale_invariant(params)
    assert {name for name, axis in axes.items() if axis is not None} == {"w0", "w1"}
    for name in ("w0", "w1"):
        w, g = (np.asarray(each[name], np.float64) for each in (params, grads))
        cosines = (w * g).sum(0) / np.linalg.norm(w, axis=0) / np.maximum(np.linalg.norm(g, axis=0), 1e-30)
        assert np.abs(cosines).max() < 1e-6
