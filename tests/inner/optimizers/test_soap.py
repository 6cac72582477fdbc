"""SOAP against the pseudo-code of Vyas et al. 2024, algorithms 3 and 4, in numpy; and on quadratics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from preconditioned import gradients, moved, normal, with_spectrum

from lobench.inner.optimizers import soap

RATE, B1, B2, EPS = 0.1, 0.9, 0.95, 1e-8


def by_the_paper(grads: np.ndarray, interval: int, decay: float) -> np.ndarray:
    """Returns W after each update, from 0; the first gradient begins L, R and their bases, and moves nothing."""
    m, n = grads.shape[1:]
    left, right, mean, square = np.zeros((m, m)), np.zeros((n, n)), np.zeros((m, n)), np.zeros((m, n))
    weights, path = np.zeros((m, n)), []
    ql, qr = np.eye(m), np.eye(n)
    for t, grad in enumerate(grads.astype(np.float64)):
        weights = weights - RATE * decay * weights
        if t > 0:
            rotated = ql.T @ grad @ qr
            mean = B1 * mean + (1 - B1) * grad
            square = B2 * square + (1 - B2) * rotated**2
            scaled = (ql.T @ mean @ qr / (1 - B1**t)) / (np.sqrt(square / (1 - B2**t)) + EPS)
            weights = weights - RATE * ql @ scaled @ qr.T
        left = B2 * left + (1 - B2) * grad @ grad.T
        right = B2 * right + (1 - B2) * grad.T @ grad
        if t == 0:
            ql, qr = (np.linalg.eigh(each)[1][:, ::-1] for each in (left, right))
        elif t % interval == 0:
            ql, qr = np.linalg.qr(left @ ql)[0], np.linalg.qr(right @ qr)[0]
        path.append(weights)
    return np.stack(path)


def test_each_update_is_the_papers() -> None:
    interval = 2
    matrix, vector = gradients(4, 3), gradients(5)
    grads = {"matrix": matrix, "tensor": matrix[:, :, None, :], "vector": vector}
    params = {name: jnp.zeros(grad.shape[1:]) for name, grad in grads.items()}
    optimizer = soap(RATE, b1=B1, b2=B2, eps=EPS, weight_decay=0.5, update_interval=interval)
    path, _ = moved(optimizer, params, grads)
    expected = by_the_paper(matrix, interval, decay=0.5)
    np.testing.assert_allclose(path["matrix"], expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(path["tensor"][:, :, 0], expected, rtol=2e-4, atol=2e-5)
    adam = optax.adamw(RATE, b1=B1, b2=B2, eps=EPS, weight_decay=0.5)
    np.testing.assert_allclose(path["vector"][1:], moved(adam, jnp.zeros(5), vector[1:])[0], rtol=1e-5, atol=1e-6)


def test_a_long_axis_has_no_basis() -> None:
    state = soap(max_preconditioned_dim=3).init(jnp.zeros((4, 3)))[0]
    assert state.bases[0] is None and state.bases[1].shape == (3, 3)


def test_the_bases_are_the_eigenvectors_of_a_known_spectrum() -> None:
    """Gradients A^1/2 Z B^1/2 have E[G G^T] = A tr(B): the bases become the eigenvectors of A and B, largest first."""
    (left, left_vectors), (right, right_vectors) = with_spectrum([16, 4, 1]), with_spectrum([64, 8, 1], seed=1)
    root_left, root_right = np.linalg.cholesky(left), np.linalg.cholesky(right)
    grads = root_left @ normal(2000, 3, 3) @ root_right.T
    _, state = moved(soap(b2=0.998), jnp.zeros((3, 3)), grads.astype(np.float32))
    for basis, vectors in zip(state[0].bases, (left_vectors, right_vectors), strict=True):
        assert (np.abs(np.diag(np.asarray(basis).T @ vectors)) > 0.97).all()


def test_it_needs_no_axes_on_a_rotated_quadratic_where_adam_does() -> None:
    """loss(W) = tr(W^T A W) / 2, the condition 1e4: the rotation costs SOAP nothing."""
    hessian, _ = with_spectrum(np.geomspace(1, 1e4, 6))
    start = jnp.asarray(normal(6, 6, seed=1), jnp.float32)

    @jax.jit
    def loss(weights: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(weights * (jnp.asarray(hessian, jnp.float32) @ weights))

    def end(optimizer: optax.GradientTransformationExtraArgs) -> float:
        def step(carry: tuple[jax.Array, optax.OptState], _: None) -> tuple[tuple[jax.Array, optax.OptState], None]:
            updates, state = optimizer.update(jax.grad(loss)(carry[0]), carry[1], carry[0])
            return (carry[0] + updates, state), None

        found = jax.jit(lambda at: jax.lax.scan(step, (at, optimizer.init(at)), length=300)[0][0])(start)
        return float(loss(found))

    rate = optax.linear_schedule(0.1, 0.0, 300)
    with_bases = end(soap(rate, b1=0.9, b2=0.95, weight_decay=0.0))
    assert with_bases < 0.01 * end(optax.adam(rate, b1=0.9, b2=0.95)) and with_bases < 1e-3 * float(loss(start))
