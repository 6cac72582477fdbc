"""PSGD-Kron against its rule in numpy (Li 2018, Li 2024), and on gradients with a known spectrum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from preconditioned import gradients, moved, normal, with_spectrum

from lobench.inner.optimizers import psgd_kron

RATE, B1, FIT = 0.1, 0.9, 0.5
KEY = jax.random.key(3)


def noise(t: int, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    keys = jax.random.split(jax.random.fold_in(KEY, t), len(shapes))
    return [np.asarray(jax.random.normal(k, shape), np.float64) for k, shape in zip(keys, shapes, strict=True)]


def fitted(q1: np.ndarray, q2: np.ndarray, grad: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step of both factors, down the relative gradient of tr(P g g^T + v^T P^-1 v), P = (Q2 x Q1)^T (Q2 x Q1)."""
    a, b = q1 @ grad @ q2.T, np.linalg.inv(q1).T @ v @ np.linalg.inv(q2)
    stepped = []
    for factor, of_a, of_b in ((q1, a @ a.T, b @ b.T), (q2, a.T @ a, b.T @ b)):
        norm = np.abs(of_a + of_b).sum(axis=1).max()
        stepped.append(factor - FIT / norm * np.triu(of_a - of_b) @ factor)
    return stepped[0], stepped[1]


def by_the_paper(matrices: np.ndarray, vectors: np.ndarray, interval: int, max_rms: float) -> np.ndarray:
    q1, q2, q = np.eye(matrices.shape[1]), np.eye(matrices.shape[2]), np.ones(vectors.shape[1])
    weights, bias, mean, mean_of_bias, path = 0.0, 0.0, 0.0, 0.0, []
    for t, (grad, of_bias) in enumerate(zip(matrices.astype(np.float64), vectors.astype(np.float64), strict=True)):
        mean, mean_of_bias = B1 * mean + (1 - B1) * grad, B1 * mean_of_bias + (1 - B1) * of_bias
        full, small = mean / (1 - B1 ** (t + 1)), mean_of_bias / (1 - B1 ** (t + 1))
        if t % interval == 0:
            for_bias, for_weights = noise(t, [small.shape, full.shape])
            q1, q2 = fitted(q1, q2, full, for_weights)
            of_a, of_b = (q * small) ** 2, (for_bias / q) ** 2
            q = q - FIT / (of_a + of_b).max() * (of_a - of_b) * q
        moves = [q1.T @ q1 @ full @ q2.T @ q2, q**2 * small]
        sizes = [np.sqrt((move**2).mean()) for move in moves]
        moves = [move * min(1, max_rms / size) for move, size in zip(moves, sizes, strict=True)]
        weights, bias = weights - RATE * moves[0], bias - RATE * moves[1]
        path.append(np.concatenate([weights.ravel(), bias]))
    return np.stack(path)


def test_each_update_is_the_papers() -> None:
    interval, max_rms = 2, 1.1
    matrices, vectors = gradients(4, 3), gradients(5)
    optimizer = psgd_kron(RATE, b1=B1, preconditioner_rate=FIT, max_rms=max_rms, update_interval=interval)
    params = {"b": jnp.zeros(5), "w": jnp.zeros((4, 3))}
    path, state = moved(optimizer, params, {"b": vectors, "w": matrices}, KEY)
    found = np.concatenate([path["w"].reshape(len(matrices), -1), path["b"]], axis=1)
    np.testing.assert_allclose(found, by_the_paper(matrices, vectors, interval, max_rms), rtol=1e-3, atol=1e-4)
    for factor in state[0].factors["w"]:
        assert (np.tril(factor, -1) == 0).all(), "the triangular matrices are a group: a step stays in it"


def test_a_long_axis_has_a_diagonal() -> None:
    state = psgd_kron(max_preconditioned_dim=3).init(jnp.zeros((4, 2, 3)))[0]
    assert [factor.ndim for factor in state.factors] == [1, 2, 2]


def test_the_preconditioner_whitens_gradients_of_a_known_spectrum() -> None:
    """Gradients A^1/2 Z have E[G G^T] = 3 A: P becomes A^-1/2, and the whitened gradients' covariance flat."""
    left, _ = with_spectrum([100, 10, 1])
    grads = np.linalg.cholesky(left) @ normal(3000, 3, 3)
    optimizer = psgd_kron(b1=0.0, preconditioner_rate=0.02)
    _, state = moved(optimizer, jnp.zeros((3, 3)), grads.astype(np.float32))
    first, second = (np.asarray(factor).T @ np.asarray(factor) for factor in state[0].factors)
    assert np.linalg.cond(first @ left @ first) < 1.8 < np.linalg.cond(left) == pytest.approx(100)
    whitened = first @ grads @ second
    assert np.sqrt((whitened**2).mean()) == pytest.approx(1, abs=0.15)
