"""Tensors turned and turned back: exact, with or without axes that a `vmap` adds, and differentiable."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from lobench.inner.optimizers.features import feature_layout, from_feature_layout

SHAPES = [(), (7,), (5, 32), (32, 5), (64, 32), (3, 20, 5), (20, 3, 5)]


def there_and_back(leaf: jax.Array) -> jax.Array:
    return from_feature_layout(feature_layout(leaf), leaf.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("axes", [0, 1, 2])
def test_turning_back_gives_the_tensor_bit_by_bit(shape: tuple[int, ...], axes: int) -> None:
    leaf = np.random.default_rng(0).normal(size=((3, 2)[:axes] + shape)).astype(np.float32)
    function = there_and_back
    for _ in range(axes):
        function = jax.vmap(function)
    assert np.array_equal(jax.jit(function)(leaf), leaf)


def test_what_one_replica_overflows_to_stays_its_own() -> None:
    leaves = np.ones((3, 32, 5), np.float32)
    leaves[1] = np.nan
    found = np.asarray(jax.jit(jax.vmap(there_and_back))(leaves))
    assert np.isnan(found[1]).all()
    assert (found[[0, 2]] == 1).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_pass_in_both_modes_and_under_vmap(shape: tuple[int, ...]) -> None:
    leaf = np.random.default_rng(1).normal(size=(2, *shape)).astype(np.float32)

    def half_square(leaf: jax.Array) -> jax.Array:
        return (there_and_back(leaf) ** 2).sum() / 2

    @jax.jit
    def gradients(leaf: jax.Array) -> Any:
        of_sum = jax.grad(lambda leaves: jax.vmap(half_square)(leaves).sum())(leaf)
        return jax.vmap(jax.grad(half_square))(leaf), of_sum, jax.jvp(there_and_back, (leaf[0],), (leaf[1],))[1]

    of_each, of_sum, forward = gradients(leaf)
    assert np.array_equal(of_each, leaf) and np.array_equal(of_sum, leaf) and np.array_equal(forward, leaf[1])
