"""Shampoo against the pseudo-code of Gupta et al. 2018, algorithms 1 and 2, in numpy; and on known spectra."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from preconditioned import gradients, moved, normal, with_spectrum

from lobench.inner.optimizers import shampoo

RATE, EPS = 0.1, 1e-3


def power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


def by_algorithm_1(grads: np.ndarray, interval: int, momentum: float) -> np.ndarray:
    """Returns W after each update, from 0."""
    m, n = grads.shape[1:]
    left, right, mean, weights, path = EPS * np.eye(m), EPS * np.eye(n), 0.0, np.zeros((m, n)), []
    for t, grad in enumerate(grads.astype(np.float64)):
        left, right = left + grad @ grad.T, right + grad.T @ grad
        if t % interval == 0 or t < interval:
            left_root, right_root = power(left, -1 / 4), power(right, -1 / 4)
        mean = momentum * mean + (1 - momentum) * grad
        weights = weights - RATE * left_root @ mean @ right_root
        path.append(weights)
    return np.stack(path)


def by_algorithm_2(grads: np.ndarray, diagonal: int | None = None) -> np.ndarray:
    """Returns a tensor after each update, from 0; the preconditioner of axis `diagonal` is one."""
    order = grads.ndim - 1
    grams = [EPS * np.eye(dim) for dim in grads.shape[1:]]
    tensor, path = np.zeros(grads.shape[1:]), []
    for grad in grads.astype(np.float64):
        step = grad
        for axis in range(order):
            flat = np.moveaxis(grad, axis, 0).reshape(grad.shape[axis], -1)
            added = flat @ flat.T
            grams[axis] = grams[axis] + (np.diag(np.diag(added)) if axis == diagonal else added)
            root = power(grams[axis], -1 / (2 * order))
            step = np.moveaxis(np.tensordot(root, step, (1, axis)), 0, axis)
        tensor = tensor - RATE * step
        path.append(tensor)
    return np.stack(path)


@pytest.mark.parametrize(("interval", "momentum"), [(1, 0.0), (3, 0.9)])
def test_each_update_of_a_matrix_is_the_papers(interval: int, momentum: float) -> None:
    grads = gradients(4, 3)
    optimizer = shampoo(RATE, momentum=momentum, eps=EPS, update_interval=interval)
    path, _ = moved(optimizer, jnp.zeros((4, 3)), grads)
    np.testing.assert_allclose(path, by_algorithm_1(grads, interval, momentum), rtol=1e-3, atol=1e-4)


def test_each_update_of_tensors_of_any_order_is_the_papers() -> None:
    grads = {"vector": gradients(4), "tensor": gradients(2, 3, 2), "scalar": gradients(), "long": gradients(2, 9)}
    params = {name: jnp.zeros(grad.shape[1:]) for name, grad in grads.items()}
    optimizer = shampoo(RATE, momentum=0.0, eps=EPS, update_interval=1, max_preconditioned_dim=8)
    path, _ = moved(optimizer, params, grads)
    expected = {name: by_algorithm_2(grads[name]) for name in ("vector", "tensor")}
    expected["scalar"] = by_algorithm_2(grads["scalar"][:, None])[:, 0]
    expected["long"] = by_algorithm_2(grads["long"], diagonal=1)
    for name, found in path.items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_first_step_makes_every_singular_value_the_same() -> None:
    """L^-1/4 G R^-1/4 = U V^T, whatever the spectrum of G = U S V^T was."""
    left, _ = with_spectrum([1, 1, 1, 1])
    gradient = (np.linalg.qr(normal(4, 4, seed=1))[0] * [100.0, 10.0, 1.0, 0.1]) @ left
    path, _ = moved(shampoo(1.0, momentum=0.0, eps=1e-9), jnp.zeros((4, 4)), gradient[None].astype(np.float32))
    np.testing.assert_allclose(np.linalg.svd(path[0], compute_uv=False), 1, rtol=0.02)


def test_the_preconditioners_are_powers_of_a_known_spectrum() -> None:
    """Gradients A^1/2 Z B^1/2 have E[G G^T] = A tr(B): roots are A^-1/4 times a factor, and A^1/4 makes them even."""
    left, _ = with_spectrum([100, 10, 1])
    grads = np.linalg.cholesky(left) @ normal(2000, 3, 3)
    _, state = moved(shampoo(update_interval=100), jnp.zeros((3, 3)), grads.astype(np.float32))
    even = np.linalg.eigvalsh(power(left, 1 / 8) @ np.asarray(state[0].roots[0]) @ power(left, 1 / 8))
    assert even.max() < 1.05 * even.min()


def test_roots_are_not_those_of_one_gradient_while_others_come() -> None:
    # Beside its only gradient a root is 1 / sqrt(eps): what came next was made a thousand times as long.
    grads = np.float32([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    path, _ = moved(shampoo(RATE, momentum=0.0), jnp.zeros(2), grads)
    assert np.abs(np.diff(path, axis=0, prepend=0)).max() <= RATE * 1.001
