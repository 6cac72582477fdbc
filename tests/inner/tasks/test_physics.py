import functools

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.tasks.physics import HeatPINN, StiffODE

KEY = jax.random.key(0)


@functools.partial(jax.jit, static_argnums=0)
def derivatives(u, points):
    """u, u_x, u_xx and u_t, by automatic differentiation."""
    functions = u, jax.grad(u), jax.grad(jax.grad(u)), jax.grad(u, argnums=1)
    return jnp.stack([jax.vmap(function)(*points.T) for function in functions])


def test_the_derivatives_are_those_of_automatic_differentiation():
    task = HeatPINN(hidden_sizes=(5, 4))
    params = jax.tree.map(lambda leaf: leaf + np.float32(0.2), jax.jit(task.init)(KEY))
    points = jax.random.uniform(KEY, (7, 2))

    def u(x, t):
        return task.values(params, jnp.stack([x, t])[None])[0]

    for found, wanted in zip(jax.jit(task.values_and_derivatives)(params, points), derivatives(u, points), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_the_exact_solution_has_no_loss_and_no_error(monkeypatch):
    task = HeatPINN(diffusivity=0.3)

    def exact(x, t):
        return jnp.sin(jnp.pi * x) * jnp.exp(-0.3 * jnp.pi**2 * t)

    monkeypatch.setattr(task, "values_and_derivatives", lambda params, points: derivatives(exact, points))
    monkeypatch.setattr(task, "values", lambda params, points: exact(*points.T))
    batch = task.datasets.train.sample(KEY)
    loss, _, metrics = jax.jit(task.loss_with_state_and_aux)({}, None, KEY, batch)
    assert float(loss) < 1e-8 and float(metrics["error"]) < 1e-6


def test_a_network_comes_near_the_heat_equations_solution(train):
    task = HeatPINN(hidden_sizes=(16, 16), num_points=64)
    (before, after), finite, metrics = train(task, steps=400, learning_rate=0.01)
    assert finite and after < 0.05 * before
    assert float(metrics["error"]) < 0.2


def integrated(task, start, num_steps, step):
    """Explicit Euler steps of the whole equation."""
    slope = jax.jit(lambda y: task.true_nonlinear_part(y) - y * jnp.array([1.0, 100.0]))
    y = jnp.asarray(start)
    for _ in range(num_steps):
        y = y + step * slope(y)
    return np.asarray(y)


def test_the_exact_solution_solves_the_stiff_equation_and_explicit_steps_explode():
    task = StiffODE()
    start = np.array([[1.0, 0.1], [0.5, 2.0]], np.float32)
    np.testing.assert_allclose(integrated(task, start, 2000, 2.5e-4), task.exact_solution(start, 0.5), rtol=1e-3)
    assert np.abs(integrated(task, start, 20, 0.1)).max() > 1e6
    assert float(task.loss_of(task.true_nonlinear_part, jnp.asarray(start))) < 1e-4


def test_a_network_learns_the_stiff_equation(train):
    task = StiffODE(width=16)
    (before, after), finite, _ = train(task, steps=150, learning_rate=0.01)
    assert finite and after < 0.05 * before
