"""Weighters: what must hold for any losses and gradients, and their formulas in numpy, written apart."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner.optimizers import adam, schedule_free_adamw, sgd, weighters

SHOWN = texts_of("inner")

K, STEPS, NUM_PARAMS = 3, 7, 5
WEIGHTERS = {
    "constant_weights": {"weights": (0.5, 1.0, 1.5)},
    "uncertainty": {},
    "gradnorm": {"weight_rate": 0.1},
    "dwa": {"window": 2},
    "lbtw": {"window": 3},
    "mldw": {},
    "slw": {},
    "slaw": {},
    "noisy": {},
    "random_walk": {},
}


class Path(NamedTuple):
    """What a weighter did with given losses float[STEPS, K] and gradients float[STEPS, K, NUM_PARAMS]."""

    before: np.ndarray  # weights that the state held before each step, [STEPS, K]
    after: np.ndarray
    moves: np.ndarray  # the updates of the parameters, by SGD with a rate of 1


@functools.cache
def _compiled(name: str) -> Any:
    optimizer = getattr(weighters, name)(sgd(1.0), **WEIGHTERS.get(name, {}))

    def path(losses: jax.Array, gradients: jax.Array, key: jax.Array) -> Path:
        params = jnp.zeros(NUM_PARAMS)

        def step(state: Any, seen: Any) -> Any:
            losses, gradients, key = seen
            given = {"task_losses": losses, "weighted_gradient": lambda weights: weights @ gradients}
            updates, new = optimizer.update(
                gradients.mean(axis=0), state, params, task_gradients=gradients, key=key, value=losses.mean(), **given
            )
            return new, Path(state.weights, new.weights, updates)

        start = optimizer.init(params, num_losses=losses.shape[1])
        return jax.lax.scan(step, start, (losses, gradients, jax.random.split(key, len(losses))))[1]

    return jax.jit(path)


def path(name: str, losses: np.ndarray, gradients: np.ndarray, seed: int = 0) -> Path:
    found = _compiled(name)(np.float32(losses), np.float32(gradients), jax.random.key(seed))
    return Path(*(np.asarray(each) for each in found))


def gradients_of(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape or (STEPS, K, NUM_PARAMS)).astype(np.float32)


positive = st.floats(2**-10, 2**10, width=32)
losses_of_steps = st.lists(st.tuples(positive, positive, positive), min_size=STEPS, max_size=STEPS).map(np.asarray)
# Of a unit: a loss times another factor is rounded, and a weight may hang on the difference of two losses.
powers = st.integers(-10, 10).map(lambda exponent: 2.0**exponent)
seeds = st.integers(0, 2**31)
few = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("name", WEIGHTERS)
@few
@given(losses=losses_of_steps, seed=seeds)
def test_weights_sum_to_k_and_the_step_is_the_inner_ones_by_the_weighted_mean(
    name: str, losses: np.ndarray, seed: int
) -> None:
    gradients = gradients_of(seed)
    found = path(name, losses, gradients, seed)
    np.testing.assert_allclose(found.after.sum(axis=1), K, rtol=1e-5)
    assert (found.after >= 0).all()
    used = found.after if name in ("slw", "slaw") else found.before
    expected = -np.einsum("tk,tkp->tp", used, gradients) / K
    np.testing.assert_allclose(found.moves, expected, atol=1e-5)


@pytest.mark.parametrize("name", WEIGHTERS)
def test_losses_and_gradients_of_zero_leave_numbers(name: str) -> None:
    """A task that is solved, and one whose loss does not move, at once and later."""
    losses = np.ones((STEPS, K))
    losses[2:, 0] = 0
    gradients = gradients_of(0)
    gradients[2:, 0] = 0
    for found in (path(name, losses, gradients), path(name, 0 * losses, 0 * gradients)):
        assert np.isfinite(found.after).all() and np.isfinite(found.moves).all()
        np.testing.assert_allclose(found.after.sum(axis=1), K, rtol=1e-5)


@few
@given(losses=losses_of_steps, seed=seeds, factor=powers, index=st.integers(0, K - 1))
def test_a_loss_in_other_units_changes_no_direction_of_slw_and_slaw(
    losses: np.ndarray, seed: int, factor: float, index: int
) -> None:
    losses, gradients, units = np.float32(losses), gradients_of(seed), np.ones(K, np.float32)
    units[index] = factor
    for name in ("slw", "slaw"):
        one = path(name, losses, gradients).moves
        other = path(name, losses * units, gradients * units[:, None]).moves
        lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
        cosine = np.sum(one.astype(np.float64) * other, axis=1) / lengths
        assert (cosine > 1 - 1e-6)[lengths > 1e-30].all(), (name, cosine)


@few
@given(losses=losses_of_steps, factor=powers, index=st.integers(0, K - 1))
def test_a_loss_in_other_units_changes_no_weight_of_dwa_lbtw_and_mldw(
    losses: np.ndarray, factor: float, index: int
) -> None:
    losses, gradients, units = np.float32(losses), gradients_of(0), np.ones(K, np.float32)
    units[index] = factor
    for name in ("dwa", "lbtw", "mldw"):
        one, other = (path(name, each, gradients).after for each in (losses, losses * units))
        np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=name)


@few
@given(losses=losses_of_steps, seed=seeds, rate=positive)
def test_gradnorm_stays_at_1_where_rates_and_gradients_are_equal(losses: np.ndarray, seed: int, rate: float) -> None:
    losses = np.float32(losses)[:1] * np.linspace(1, 0.5, STEPS, dtype=np.float32)[:, None]
    gradients = gradients_of(seed)
    gradients *= np.float32(rate) / np.linalg.norm(gradients, axis=2, keepdims=True)
    np.testing.assert_allclose(path("gradnorm", losses, gradients).after, 1.0, rtol=1e-6)


def test_uncertaintys_optimum_is_the_log_of_the_loss() -> None:
    losses = jnp.asarray([0.1, 1.0, 30.0])
    optimizer = weighters.uncertainty(adam(0.05))

    def step(state: Any, key: jax.Array) -> Any:
        given = {"task_losses": losses, "weighted_gradient": lambda weights: jnp.zeros(2)}
        return optimizer.update(jnp.zeros(2), state, jnp.zeros(2), key=key, value=losses.mean(), **given)[1], None

    start = optimizer.init(jnp.zeros(2), num_losses=3)
    end = jax.lax.scan(step, start, jax.random.split(jax.random.key(0), 1000))[0]
    np.testing.assert_allclose(end.memory, np.log(losses), atol=1e-3)
    np.testing.assert_allclose(end.weights, 3 * (1 / losses) / np.sum(1 / losses), rtol=2e-3)


def gradnorm_in_numpy(losses: np.ndarray, gradients: np.ndarray, alpha: float, rate: float) -> np.ndarray:
    """Returns the weights after each step: algorithm 1 of Chen et al. 2018, with Kingma and Ba's Adam.

    Lengths that meet their targets but for rounding are another example.
    """
    weights, mean, square, path = np.ones(K), np.zeros(K), np.zeros(K), []
    for t, (now, gradient) in enumerate(zip(losses.astype(float), gradients.astype(float), strict=True), 1):
        lengths = np.array([np.sqrt(np.sum(each**2)) for each in gradient])
        ratio = now / losses[0]
        target = np.mean(weights * lengths) * (ratio / ratio.mean()) ** alpha
        assume(np.abs(weights * lengths / target - 1).min() > 1e-4)
        slope = np.sign(weights * lengths - target) * lengths
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weights = weights - rate * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)
        weights = K * weights / weights.sum()
        path.append(weights)
    return np.stack(path)


def dwa_in_numpy(losses: np.ndarray, window: int, temperature: float) -> np.ndarray:
    path = []
    for t in range(1, len(losses) + 1):
        means = [losses[i * window : (i + 1) * window].mean(axis=0) for i in range(t // window)]
        powers = np.exp(means[-1] / means[-2] / temperature) if len(means) > 1 else np.ones(K)
        path.append(K * powers / powers.sum())
    return np.stack(path)


def slaw_in_numpy(losses: np.ndarray, decay: float) -> np.ndarray:
    first, second, path = losses[0].astype(float), losses[0].astype(float) ** 2, []
    for t, now in enumerate(losses.astype(float)):
        first, second = decay * first + (1 - decay) * now, decay * second + (1 - decay) * now**2
        deviation = np.sqrt(np.maximum(second - first**2, 0)) if t else first
        path.append(K / deviation / np.sum(1 / deviation))
    return np.stack(path)


@few
@given(seed=seeds)
def test_each_step_is_the_formulas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    apart = np.tile(np.linspace(0.5, 2.0, STEPS), (K, 1))  # the deviation of two equal losses would be rounding
    losses, gradients = rng.permuted(apart, axis=1).T.astype(np.float32), gradients_of(seed)
    expected = {
        "gradnorm": gradnorm_in_numpy(losses, gradients, alpha=1.5, rate=0.1),
        "dwa": dwa_in_numpy(losses, window=2, temperature=2.0),
        "slaw": slaw_in_numpy(losses, decay=0.99),
    }
    for name, weights in expected.items():
        np.testing.assert_allclose(path(name, losses, gradients).after, weights, rtol=2e-4, err_msg=name)


def surgery_in_numpy(gradients: np.ndarray, orders: Any) -> np.ndarray:
    """Returns the mean of the projected gradients: algorithm 1 of Yu et al. 2020, each with an order of the others."""
    left = []
    for gradient, order in zip(gradients, orders, strict=True):
        gradient = gradient.copy()
        for other in order:
            product = gradient @ gradients[other]
            if product < 0:
                gradient -= product / (gradients[other] @ gradients[other]) * gradients[other]
        left.append(gradient)
    return np.mean(left, axis=0)


def test_pcgrad_is_the_algorithms_in_every_order() -> None:
    gradients = gradients_of(3, 1, K, NUM_PARAMS)
    gradients[0, 1], gradients[0, 2] = -gradients[0, 0] + gradients[0, 1], -gradients[0, 0] + gradients[0, 2]
    orders = [list(itertools.permutations([j for j in range(K) if j != i])) for i in range(K)]
    possible = [surgery_in_numpy(gradients[0].astype(float), order) for order in itertools.product(*orders)]
    met = set()
    for seed in range(100):
        move = path("pcgrad", np.ones((1, K)), gradients, seed).moves[0]
        distances = [np.abs(move + each).max() for each in possible]
        assert min(distances) < 1e-5
        met |= {index for index, distance in enumerate(distances) if distance < 1e-5}
    assert met == set(range(len(possible)))


@few
@given(seed=seeds, lengths=st.tuples(positive, positive), lean=st.floats(-1, 1))
@example(seed=690, lengths=(748.0, 2**-9), lean=-1.0)  # nearly opposite
def test_pcgrad_of_two_goes_against_neither(seed: int, lengths: tuple[float, float], lean: float) -> None:
    one, other = gradients_of(seed, 2, NUM_PARAMS)
    pair = np.float32(np.stack([lengths[0] * one, lengths[1] * (other + lean * 10 * one)]))
    found = path("pcgrad", np.ones((1, 2)), pair[None])
    result = -found.moves[0].astype(float)
    rounding = 1e-6 * np.linalg.norm(pair, axis=1).max()  # of what is subtracted, which may be longer than what is left
    for gradient in pair.astype(float):
        assert result @ gradient >= -rounding * np.linalg.norm(gradient) - 1e-12
    if pair[0].astype(float) @ pair[1] > 1e-6:
        np.testing.assert_allclose(result, pair.mean(axis=0), atol=rounding)


def test_gradients_may_be_looked_at_in_a_part_of_the_parameters() -> None:
    optimizer, params = weighters.slw(sgd(), shared="trunk"), {"trunk": jnp.zeros(2), "heads": jnp.zeros(2)}
    gradients = {"trunk": jnp.asarray([[1.0, 0.0], [0.0, 3.0]]), "heads": jnp.asarray([[9.0, 0.0], [0.0, 0.0]])}
    given = {"task_losses": jnp.ones(2), "weighted_gradient": None, "task_gradients": gradients}
    _, state = optimizer.update(params, optimizer.init(params, num_losses=2), params, key=jax.random.key(0), **given)
    np.testing.assert_allclose(state.weights, [1.5, 0.5], rtol=1e-6)
    with pytest.raises(ConfigError, match=SHOWN["shared-is-not-a-part"]):
        weighters.gradnorm(shared="trunc").update(
            params, weighters.gradnorm().init(params, num_losses=2), params, key=jax.random.key(0), **given
        )


@pytest.mark.parametrize("name", ["slaw", "slw", "uncertainty"])
def test_parameters_may_be_of_any_shape_and_kind(name: str) -> None:
    shapes = {"weights": (2, 3), "scalar": (), "nothing": (0,), "half": (2,)}
    params = {leaf: jnp.ones(shape, jnp.bfloat16 if leaf == "half" else None) for leaf, shape in shapes.items()}
    gradients = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf, 2 * leaf]), params)
    optimizer = getattr(weighters, name)(sgd())

    def weighted(weights: jax.Array) -> Any:
        return jax.tree.map(lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, 1), gradients)

    given = {"task_losses": jnp.ones(3), "weighted_gradient": weighted, "task_gradients": gradients}
    state = optimizer.init(params, num_losses=3)
    updates, new = jax.jit(lambda *args: optimizer.update(*args, key=jax.random.key(0), **given))(params, state, params)
    like = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (params, state))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (updates, new)) == like
    assert all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in jax.tree.leaves(updates))


@pytest.mark.parametrize("name", [*WEIGHTERS, "pcgrad"])
def test_it_is_evaluated_where_the_inner_one_says(name: str) -> None:
    optimizer, params = getattr(weighters, name)(schedule_free_adamw()), jnp.ones(2)
    state = optimizer.init(params, num_losses=3)
    np.testing.assert_allclose(optimizer.eval_params(state, 2 * params), schedule_free_eval(2 * params), rtol=1e-6)


def schedule_free_eval(params: jax.Array) -> jax.Array:
    own = schedule_free_adamw()
    return own.eval_params(own.init(jnp.ones(2)), params)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: weighters.dwa(adam), SHOWN["dwa-inner-expected-an-optax"]),
        (lambda: weighters.noisy(weighters.slw()), SHOWN["noisy-inner-weighs-losses-itself"]),
        (lambda: weighters.dwa(window=0), SHOWN["dwa-window-got-0-an"]),
        (lambda: weighters.dwa(temperature=0), r"dwa\.temperature.*above 0"),
        (lambda: weighters.lbtw(alpha=-1), SHOWN["lbtw-alpha-at-least-0"]),
        (lambda: weighters.slaw(decay=1.5), SHOWN["slaw-decay-at-most-1"]),
        (lambda: weighters.constant_weights(weights=(1, 2)), SHOWN["weights-sum-to-3-the"]),
        (lambda: weighters.constant_weights(weights=(-1, 3)), SHOWN["got-1-3-numbers-0"]),
        (lambda: weighters.constant_weights(weights=2), SHOWN["got-2-numbers-0-one"]),
        (lambda: weighters.constant_weights(weights=(1, 1)).init(0.0, num_losses=3), SHOWN["of-them-3-one-for"]),
        (lambda: weighters.slaw().init(0.0, num_losses=1), SHOWN["slaw-weighs-several-losses-a"]),
    ],
)
def test_wrong_settings_are_told_in_a_line(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_an_inner_transformation_of_optax_without_extra_arguments_will_do() -> None:
    plain = optax.sgd(1.0)
    optimizer, params = weighters.constant_weights(plain), jnp.zeros(2)
    given = {"task_losses": jnp.ones(2), "weighted_gradient": lambda weights: weights, "key": jax.random.key(0)}
    updates, _ = optimizer.update(params, optimizer.init(params, num_losses=2), params, **given)
    np.testing.assert_allclose(updates, [-0.5, -0.5])
