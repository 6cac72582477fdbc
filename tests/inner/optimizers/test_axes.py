"""Work that is due now and then, and decompositions, with seeds side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.optimizers import psgd_kron, shampoo, soap
from lobench.inner.optimizers.optax_names import OptaxNames
from lobench.inner.vmap_periodic import compute_when_due


def equations(jaxpr: Any, *, in_branches: bool) -> Iterator[Any]:
    """Yields what a program computes, with what is in the branches of its conditions or without."""
    for equation in jaxpr.eqns:
        yield equation
        if in_branches or equation.primitive.name != "cond":
            inner = jax.tree.leaves(equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns"))
            for each in inner:
                if hasattr(each, "eqns"):
                    yield from equations(each, in_branches=in_branches)


def side_by_side(optimizer: Any) -> Any:
    """Returns the program of an update of two seeds."""

    def step(grads: jax.Array, state: Any, params: jax.Array, key: jax.Array) -> Any:
        return optimizer.update(grads, state, params, key=key, obj_fn=lambda at: jnp.cos(at).sum())

    params, keys = jnp.ones((2, 4, 3)), jax.random.split(jax.random.key(0), 2)
    return jax.make_jaxpr(jax.vmap(step))(params, jax.vmap(optimizer.init)(params), params, keys)


def test_each_replica_has_its_own_where_only_some_are_due() -> None:
    def one(due: jax.Array, value: jax.Array) -> jax.Array:
        return compute_when_due(due, lambda: 2 * value, value)

    due, values = jnp.asarray([[True, False], [False, False]]), jnp.arange(4.0).reshape(2, 2)
    assert jax.vmap(jax.vmap(one))(due, values).tolist() == [[0, 1], [2, 3]]
    assert jax.vmap(jax.vmap(one))(~due, values).tolist() == [[0, 2], [4, 6]]
    assert jax.vmap(lambda value: compute_when_due(jnp.bool_(True), lambda: 2 * value, value))(values[0]).tolist() == [
        0,
        2,
    ]


@pytest.mark.parametrize(
    ("optimizer", "costly"),
    [
        (soap(), {"eigh", "qr"}),
        (shampoo(), {"eigh"}),
        (OptaxNames, {"sin"}),  # of the loss below, whose Hessian Sophia estimates
    ],
    ids=["soap", "shampoo", "sophia"],
)
def test_with_seeds_side_by_side_what_is_costly_is_computed_when_it_is_due(optimizer: Any, costly: set[str]) -> None:
    if optimizer is OptaxNames:
        from gin import config

        optimizer = config._REGISTRY[OptaxNames().find("sophia")].wrapped(0.1)

    jaxpr = side_by_side(optimizer)
    everywhere = {each.primitive.name for each in equations(jaxpr, in_branches=True)}
    always = {each.primitive.name for each in equations(jaxpr, in_branches=False)}
    assert costly & everywhere and "cond" in always and not costly & always


@pytest.mark.parametrize(
    ("optimizer", "names"),
    [
        (soap(), {"eigh", "qr"}),
        (shampoo(), {"eigh"}),
        (psgd_kron(), {"triangular_solve"}),
    ],
    ids=["soap", "shampoo", "psgd_kron"],
)
def test_lapack_gets_one_matrix_at_a_time(optimizer: Any, names: set[str]) -> None:
    """With several it waits for threads, and with two devices in a process they all wait for it."""
    found = [each for each in equations(side_by_side(optimizer), in_branches=True) if each.primitive.name in names]
    assert {each.primitive.name for each in found} == names
    assert {each.invars[0].aval.ndim for each in found} == {2}


def test_sophia_is_optaxs_own() -> None:
    import optax.contrib
    from gin import config

    ours = config._REGISTRY[OptaxNames().find("sophia")].wrapped(0.1, update_interval=2)
    theirs = optax.contrib.sophia(0.1, update_interval=2)

    def obj_fn(at: jax.Array) -> jax.Array:
        return jnp.sum(jnp.cosh(at) * jnp.arange(6.0).reshape(3, 2))

    def path(optimizer: Any, params: jax.Array) -> jax.Array:
        def step(carry: Any, _: None) -> Any:
            updates, state = optimizer.update(jax.grad(obj_fn)(carry[0]), carry[1], carry[0], obj_fn=obj_fn)
            return (carry[0] + updates, state), carry[0] + updates

        return jax.lax.scan(step, (params, optimizer.init(params)), length=5)[1]

    both = jax.jit(lambda params: (path(ours, params), path(theirs, params)))
    np.testing.assert_allclose(*both(jnp.linspace(0.1, 1.0, 6).reshape(3, 2)), rtol=1e-6)
