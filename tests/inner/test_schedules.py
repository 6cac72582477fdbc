"""Schedules against numpy, as rates of optimizers, and what each says where it cannot work."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from shown import texts_of

from lobench.core.errors import ConfigError
from lobench.inner import schedules
from lobench.inner.adapters import as_stepper

SHOWN = texts_of("inner")


def rates(schedule: Any, num_steps: int) -> np.ndarray:
    """Returns the rate of each update, float32[num_steps], as a compiled program computes them."""
    return np.asarray(jax.jit(jax.vmap(schedule.resolve(num_steps)))(jnp.arange(num_steps)))


def taken(optimizer: Any, losses: jax.Array, num_steps: int) -> jax.Array:
    """Returns what each update takes off a parameter whose gradient is 1."""
    stepper, key, origin = as_stepper(optimizer, num_steps), jax.random.key(0), jnp.float32(0)

    def step(state: Any, loss: jax.Array) -> Any:
        state, after, _ = stepper.step(state, origin, None, jnp.float32(1), loss, key, lambda at: loss + at)
        return state, -after

    return jax.lax.scan(step, stepper.init(origin, None, key), losses)[1]


def used(optimizer: Any, losses: Any, num_steps: int = 0) -> np.ndarray:
    """Returns the same of a compiled loop, one loss for each update."""
    losses = jnp.asarray(losses, jnp.float32)
    return np.asarray(jax.jit(lambda losses: taken(optimizer, losses, num_steps or len(losses)))(losses))


def test_cosine_reaches_its_final_rate_in_the_last_update() -> None:
    for num_steps, peak, final in ((10, 0.1, 0.01), (2, 0.3, 0.0), (1000, 1e-3, 1e-5), (3, 1.0, 0.5)):
        found = rates(schedules.cosine(peak=peak, final=final), num_steps)
        at = np.arange(num_steps)
        wanted = final + (peak - final) * (1 + np.cos(math.pi * at / (num_steps - 1))) / 2
        assert found[-1] == np.float32(final)
        assert abs(found[0] - np.float32(peak)) <= np.spacing(np.float32(peak))
        np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=1e-6, atol=0)
    assert rates(schedules.cosine(peak=0.1), 1).tolist() == [np.float32(0.1)]
    with_optax = optax.cosine_decay_schedule(0.1, 9, 0.1)
    np.testing.assert_allclose(
        rates(schedules.cosine(peak=0.1, final=0.01), 10), [with_optax(t) for t in range(10)], rtol=2e-6
    )


def test_linear_exponential_step_and_constant() -> None:
    at = np.arange(11)
    np.testing.assert_allclose(rates(schedules.linear(peak=1.0, final=0.5), 11), 1 - 0.05 * at, rtol=1e-6)
    np.testing.assert_allclose(
        rates(schedules.exponential(peak=2.0, factor=0.01), 11), 2 * 0.01 ** (at / 10), rtol=1e-6
    )
    np.testing.assert_allclose(
        rates(schedules.exponential(peak=2.0, factor=0.5, every=4), 11), 2 * 0.5 ** (at / 4), rtol=1e-6
    )
    np.testing.assert_allclose(rates(schedules.step(peak=1.0, every=4), 11), 0.1 ** (at // 4), rtol=1e-6)
    assert (rates(schedules.step(peak=1.0, factor=0.5), 9) == [1] * 3 + [0.5] * 3 + [0.25] * 3).all()
    assert (rates(schedules.constant(value=0.25), 3) == 0.25).all()


def test_cyclic_is_smiths_triangle() -> None:
    for period, count in ((10, 41), (7, 30), (2, 9)):
        at = np.arange(count)
        half = period / 2
        cycle = np.floor(1 + at / (2 * half))
        wanted = 0.01 + 0.09 * np.maximum(0, 1 - np.abs(at / half - 2 * cycle + 1))
        np.testing.assert_allclose(rates(schedules.cyclic(low=0.01, high=0.1, period=period), count), wanted, rtol=1e-6)
    ten = rates(schedules.cyclic(low=0.01, high=0.1, period=10), 11)
    np.testing.assert_allclose(ten[[0, 1, 5, 10]], [0.01, 0.028, 0.1, 0.01], rtol=1e-6)
    far = jnp.int32(10_000_005)
    assert float(schedules.cyclic(low=0.01, high=0.1, period=10).resolve(1)(far)) == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize(
    ("num_steps", "pct_start"), [(101, 0.3), (101, 0.29), (50, 0.25), (5, 0.0), (2, 0.5), (1, 0.3)]
)
def test_one_cycle_is_two_halves_of_a_cosine(num_steps: int, pct_start: float) -> None:
    found = rates(schedules.one_cycle(peak=0.4, pct_start=pct_start, div_factor=20, final_div_factor=100), num_steps)
    last, first, end = max(num_steps - 1, 1), 0.4 / 20, 0.4 / 20 / 100
    top = math.floor(pct_start * last + 1e-9)
    for at, rate in enumerate(found):
        if at < top:
            wanted = 0.4 + (first - 0.4) * (1 + math.cos(math.pi * at / top)) / 2
        else:
            wanted = end + (0.4 - end) * (1 + math.cos(math.pi * (at - top) / (last - top))) / 2
        assert rate == pytest.approx(wanted, rel=1e-6, abs=0)
    if num_steps > 1:
        assert found[-1] == np.float32(np.float32(0.4) / np.float32(20) / np.float32(100))
    if num_steps == 101 and pct_start == 0.3:
        theirs = optax.cosine_onecycle_schedule(100, 0.4, 0.3, 20, 100)
        np.testing.assert_allclose(found, [theirs(at) for at in range(101)], rtol=1e-5, atol=1e-7)


def test_a_warm_up_ends_where_the_rest_begins_and_the_rest_has_what_is_left() -> None:
    found = rates(schedules.warmup(steps=4, then=schedules.cosine(peak=0.8, final=0.1)), 14)
    np.testing.assert_allclose(found[:4], [0.0, 0.2, 0.4, 0.6], rtol=1e-6)
    np.testing.assert_array_equal(found[4:], rates(schedules.cosine(peak=0.8, final=0.1), 10))
    theirs = optax.join_schedules([optax.linear_schedule(0.1, 0.5, 4), optax.exponential_decay(0.5, 3, 0.5)], [4])
    ours = schedules.warmup(steps=4, then=optax.exponential_decay(0.5, 3, 0.5), initial=0.1)
    np.testing.assert_allclose(rates(ours, 14), [theirs(at) for at in range(14)], rtol=1e-6)
    assert (rates(schedules.warmup(steps=0, then=0.5), 3) == 0.5).all()
    assert np.isfinite(rates(schedules.warmup(steps=20, then=schedules.cosine()), 3)).all()


def reduced(losses: Any, factor: float, patience: int, cooldown: int, rtol: float, window: int) -> np.ndarray:
    """Returns the scale of each update by the rule as it is written."""
    scale, best, waited, resting, kept, scales = 1.0, math.inf, 0, 0, [], []
    for loss in losses:
        kept.append(loss)
        if len(kept) == window:
            mean, kept = float(np.mean(kept)), []
            better = mean < (1 - rtol) * best
            best = mean if better else best
            waited = 0 if better or resting else waited + 1
            resting = max(resting - 1, 0)
            if waited == patience:
                scale, waited, resting = scale * factor, 0, cooldown
        scales.append(scale)
    return np.asarray(scales)


@pytest.mark.parametrize(("patience", "cooldown", "window"), [(2, 0, 1), (3, 2, 1), (2, 1, 4), (1, 3, 2)])
def test_plateau_is_the_rule_and_is_optaxs_behind_the_optimizer(patience: int, cooldown: int, window: int) -> None:
    rng = np.random.default_rng(patience)
    losses = np.concatenate([np.geomspace(8, 1, 30), 1 + 0.2 * rng.random(60), np.full(20, 0.4)]).astype(np.float32)
    values = {"factor": 0.5, "patience": patience, "cooldown": cooldown, "rtol": 1e-2, "window": window}
    found = used(optax.sgd(schedules.plateau(rate=0.25, **values)), losses)
    wanted = reduced(losses, **values)
    assert len(set(wanted)) > 3
    np.testing.assert_allclose(found, 0.25 * wanted, rtol=1e-6)
    values["accumulation_size"] = values.pop("window")
    theirs = optax.chain(optax.sgd(0.25), optax.contrib.reduce_on_plateau(**values))
    np.testing.assert_allclose(used(theirs, losses), found, rtol=1e-6)


def test_a_constant_loss_halves_the_rate_at_the_third_fifth_and_seventh_update() -> None:
    found = used(optax.sgd(schedules.plateau(rate=1.0, factor=0.5, patience=2, window=1)), [1.0] * 8)
    np.testing.assert_allclose(found, [1, 1, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125], rtol=1e-6)
    assert used(optax.adam(1e-3), [1.0] * 3).shape == (3,), "others are not touched"


def test_a_plateau_after_a_warm_up_looks_at_no_loss_before_it() -> None:
    schedule = schedules.warmup(steps=4, then=schedules.plateau(rate=1.0, factor=0.5, patience=2, window=1))
    np.testing.assert_allclose(
        used(optax.sgd(schedule), [1.0] * 9), [0, 0.25, 0.5, 0.75, 1, 1, 0.5, 0.5, 0.25], rtol=1e-6
    )


def test_several_in_one_chain_each_keep_their_own() -> None:
    slow, fast = (schedules.plateau(rate=1.0, factor=0.5, patience=n, window=1) for n in (3, 2))
    chain = optax.chain(
        optax.scale_by_schedule(slow), optax.scale_by_schedule(schedules.linear(peak=1.0)), optax.sgd(fast)
    )
    losses = [1.0] * 8
    wanted = reduced(losses, 0.5, 3, 0, 1e-4, 1) * reduced(losses, 0.5, 2, 0, 1e-4, 1) * np.linspace(1, 0, 8)
    np.testing.assert_allclose(used(chain, losses), wanted, rtol=1e-5)


def test_it_counts_from_where_its_phase_begins() -> None:
    optimizer = optax.sgd(schedules.warmup(steps=2, then=schedules.plateau(rate=1.0, factor=0.5, patience=1, window=1)))
    first, second = as_stepper(optimizer, 4), as_stepper(optimizer, 4, first_step=4)
    key, params, taken = jax.random.key(0), jnp.float32(0), []
    state = first.init(params, None, key)
    for stepper in (first, second):
        for _ in range(4):
            state, after, _ = stepper.step(state, params, None, jnp.float32(1), jnp.float32(1), key)
            taken.append(float(params - after))
            params = after
    assert taken == [0, 0.5, 1, 0.5] * 2
    continued = used(optax.sgd(schedules.linear(peak=1.0)), [1.0] * 4, num_steps=8)
    np.testing.assert_allclose(continued, np.linspace(1, 0, 8)[:4], rtol=1e-6)


def test_an_optimizer_that_computes_with_a_number_gets_the_number_of_the_update() -> None:
    def own(learning_rate: Any = 0.1) -> optax.GradientTransformation:
        rate = 2 * learning_rate / np.float32(4) + 0

        def update(grads: Any, state: Any, params: Any = None) -> Any:
            nothing = jnp.sqrt(jnp.asarray(learning_rate)) * 0 - 0 / (1 + rate**2)
            return jax.tree.map(lambda g: -rate * g + nothing, grads), state

        return optax.GradientTransformation(lambda params: (), update)

    for schedule in (schedules.linear(peak=0.8), schedules.plateau(rate=0.8, factor=0.5, patience=2, window=1)):
        found, wanted = used(own(schedule), [1.0] * 9), used(optax.sgd(schedule), [1.0] * 9) / 2
        assert len(set(found)) > 3
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_bare_call_says_what_is_missing() -> None:
    for schedule in (schedules.cosine(), schedules.plateau(), -schedules.cosine()):
        optimizer = optax.adam(schedule)
        params = jnp.zeros(2)
        with pytest.raises(ConfigError, match=SHOWN["cosine-plateau-this-schedule-does"]):
            optimizer.update(params, optimizer.init(params), params)
    with pytest.raises(ConfigError, match=SHOWN["plateau-this-schedule-looks-at"]):
        schedules.plateau().resolve(10)
    optimizer = optax.adam(schedules.cosine(peak=0.5).resolve(10))
    optimizer.update(params, optimizer.init(params), params)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("plateau", {"patience": 0}, SHOWN["plateau-patience-got-0-expected"]),
        ("plateau", {"window": 1.5}, SHOWN["plateau-window-got-1-5"]),
        ("plateau", {"cooldown": True}, SHOWN["plateau-cooldown-got-true-expected"]),
        ("plateau", {"factor": 2.0}, SHOWN["plateau-factor-got-2-0"]),
        ("cosine", {"peak": "0.1"}, SHOWN["cosine-peak-got-0-1"]),
        ("linear", {"final": math.nan}, SHOWN["linear-final-got-nan-expected"]),
        ("constant", {"value": None}, SHOWN["constant-value-got-none-expected"]),
        ("exponential", {"factor": 0.0}, SHOWN["exponential-factor-got-0-0"]),
        ("step", {"every": 0}, SHOWN["step-every-got-0-expected"]),
        ("cyclic", {"period": 0}, SHOWN["cyclic-period-got-0-expected"]),
        ("one_cycle", {"pct_start": 30}, SHOWN["one-cycle-pct-start-got"]),
        ("warmup", {"steps": 0.1}, SHOWN["warmup-steps-got-0-1"]),
        ("warmup", {"then": "cosine"}, SHOWN["warmup-then-got-cosine-expected"]),
        ("cosine", {"peak": jnp.int32(3)}, SHOWN["cosine-peak-is-the-index"]),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_a_line(name: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        getattr(schedules, name)(**values)


def test_what_is_no_rate_takes_no_schedule() -> None:
    with pytest.raises(ConfigError, match=SHOWN["optimizer-passes-this-number-to"]):
        used(optax.adam(0.1, b1=schedules.cosine()), [1.0])
    made = optax.inject_hyperparams(optax.adam)(learning_rate=schedules.cosine(), b1=schedules.linear(peak=0.9))
    assert len(set(used(made, [1.0] * 4))) == 4


SETTINGS: dict[str, dict[str, float]] = {
    "constant": {"value": 0.5},
    "linear": {"peak": 0.5, "final": 0.1},
    "cosine": {"peak": 0.5, "final": 0.1},
    "exponential": {"peak": 0.5, "factor": 0.1},
    "step": {"peak": 0.5, "factor": 0.1},
    "cyclic": {"low": 0.1, "high": 0.5, "period": 4.0},
    "one_cycle": {"peak": 0.5, "pct_start": 0.4, "div_factor": 10.0, "final_div_factor": 10.0},
    "warmup": {"then": 0.5, "initial": 0.1},
    "plateau": {"rate": 0.5, "factor": 0.5, "rtol": 0.1},
}


def test_each_setting_that_is_a_float_may_be_an_argument_of_the_program() -> None:
    assert set(SETTINGS) == set(schedules.__all__)
    for name, values in SETTINGS.items():
        make: Callable[..., Any] = getattr(schedules, name)
        extra = {"patience": 1, "window": 1} if name == "plateau" else {"steps": 2} if name == "warmup" else {}

        @jax.jit
        def train(values: Any, make: Any = make, extra: Any = extra) -> jax.Array:
            return taken(optax.sgd(make(**values, **extra)), jnp.ones(9), 9)

        fixed = used(optax.sgd(make(**values, **extra)), [1.0] * 9)
        # Constants are multiplied out in 64 bits when the program is traced, arguments in 32.
        np.testing.assert_allclose(train(values), fixed, rtol=3e-6)
        before = train._cache_size()  # type: ignore[attr-defined]
        assert not np.allclose(train({name: 2 * value for name, value in values.items()}), fixed)
        assert train._cache_size() == before  # type: ignore[attr-defined]
