"""Defaults are arguments of a program where that changes no bit, and constants elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.core.case import UnboundDefault
from lobench.inner.training.program_arguments import Arguments, SettingValues

X = np.linspace(-1.3, 2.7, 97, dtype=np.float32)


def loop(x: Any, rate: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda i, x: x - rate * jnp.sin(x), x)


EXACT: dict[str, Callable[..., Any]] = {
    "a product with what runs": lambda x, a: jnp.sin(x) * a,
    "a sum": lambda x, a: jnp.exp(x) + a,
    "a product with its negative": lambda x, a: x - -a * jnp.cos(x),
    "a product with -1": lambda x, a: (-1 * a) * x + jnp.exp(x),
    "inside of a loop": loop,
    "inside of a call": lambda x, a: jnp.where(x > a, a, x),
    "mapped": lambda x, a: jax.vmap(lambda each: each * a)(x),
    "through a branch": lambda x, a: jax.lax.cond(x[0] > 0, lambda: x * a, lambda: x + a),
}
CHANGING: dict[str, Callable[..., Any]] = {
    "Python's double precision": lambda x, a: x * (1 - a),
    "Python's math": lambda x, a: x * a**2,
    "a divisor": lambda x, a: x / a,
    "a power": lambda x, a: a ** jnp.abs(x),
    "two constants in a row": lambda x, a: (x * 0.3) * a,
    "a constant and a divisor": lambda x, a: (x * a) / 0.7,
    "another code for floats": lambda x, a: x * a if isinstance(a, float) else jnp.sin(x) * a,
    "lower precision": lambda x, a: x.astype(jnp.bfloat16) * a,
    "asked for in Python": lambda x, a: x * a if a else x,
    "not read": lambda x, a: x,
    "carried by a loop": lambda x, a: jax.lax.fori_loop(0, 3, lambda i, c: (c[0] * c[1], c[1] + c[0][0]), (x, a))[0],
}


def traced(rule: Callable[..., Any], settings: SettingValues) -> jax.stages.Traced:
    return jax.jit(lambda given, x: rule(x, *given[1].values)).trace(({}, settings), X)


def bits(rule: Callable[..., Any], settings: SettingValues) -> bytes:
    return np.asarray(traced(rule, settings).lower().compile()(({}, settings), X)).tobytes()


@pytest.mark.parametrize("name", [*EXACT, *CHANGING])
def test_a_default_is_an_argument_only_if_bits_stay(name: str) -> None:
    rule = (EXACT | CHANGING)[name]
    value = [UnboundDefault(0.37)]
    chosen = Arguments(value).settle(value, {}, lambda settings: traced(rule, settings))
    assert chosen.places == ([0] if name in EXACT else [])
    assert bits(rule, chosen) == bits(rule, SettingValues.of(value, frozenset()))


def test_a_setting_that_is_bound_is_an_argument_as_before() -> None:
    for name in ("Python's double precision", "a divisor", "a power", "two constants in a row"):
        chosen = Arguments([0.37]).settle([0.37], {}, lambda settings, rule=CHANGING[name]: traced(rule, settings))
        assert chosen.places == [0], name


@pytest.mark.parametrize("left", [(), (0,), (1,), (0, 1), (0, 1, 2)])
def test_each_subset_of_bound_settings_has_one_program(left: tuple[int, ...]) -> None:
    def rule(x: Any, rate: Any, decay: Any, scale: Any) -> Any:
        return x * decay - jnp.tanh(x) * rate * jnp.exp(scale * x)

    usual = [0.1, 0.9, 0.01]
    values = [UnboundDefault(value) if place in left else value + 0.1 for place, value in enumerate(usual)]
    chosen = Arguments(usual).settle(values, {}, lambda settings: traced(rule, settings))
    assert chosen.places == [0, 1, 2] and chosen.values == tuple(values)


def test_one_default_that_python_asks_for_leaves_the_others() -> None:
    def rule(x: Any, a: Any, b: Any, c: Any) -> Any:
        return jnp.sin(x) * a + jnp.cos(x) * c * (2.0 if b > 1 else x)

    values = [UnboundDefault(value) for value in (0.3, 0.5, 0.7)]
    chosen = Arguments(values).settle(values, {}, lambda settings: traced(rule, settings))
    assert chosen.places == [0, 2]
