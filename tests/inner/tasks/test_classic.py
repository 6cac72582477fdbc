import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lobench.inner.tasks.classic import Ackley, Beale, Rosenbrock, StyblinskiTang

KEY = jax.random.key(1)
FUNCTIONS = [Rosenbrock(dim=4), Beale(), Ackley(dim=3), StyblinskiTang(dim=3)]
MINIMA = [np.ones(4), np.array([3.0, 0.5]), np.zeros(3), np.full(3, -2.903534)]


@pytest.mark.parametrize(("task", "minimum"), list(zip(FUNCTIONS, MINIMA, strict=True)), ids=lambda x: type(x).__name__)
def test_minimum_is_zero_and_flat(task, minimum):
    value, grads = jax.value_and_grad(task.loss)({"x": jnp.float32(minimum)}, KEY, None)
    assert float(value) == pytest.approx(0.0, abs=1e-4)
    np.testing.assert_allclose(grads["x"], 0.0, atol=1e-3)
    around = minimum + 0.3 * np.random.default_rng(0).standard_normal((200, len(minimum)))
    losses = jax.vmap(lambda x: task.loss({"x": x}, KEY, None))(jnp.float32(around))
    assert np.all(np.asarray(losses) > float(value))


@pytest.mark.parametrize(
    ("task", "x", "expected"),
    [
        (Rosenbrock(), [-1.2, 1.0], 24.2),
        pytest.param(Rosenbrock(dim=3), [0.0, 0.0, 2.0], 402.0, id="three dimensions"),
        (Beale(), [0.0, 0.0], 1.5**2 + 2.25**2 + 2.625**2),
        (Ackley(), [1.0, 1.0], 20 - 20 * np.exp(-0.2)),
        (StyblinskiTang(dim=2), [0.0, 0.0], 2 * 39.16616570377142),
    ],
    ids=lambda x: type(x).__name__,
)
def test_known_values(task, x, expected):
    assert float(task.loss({"x": jnp.float32(x)}, KEY, None)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "task", [*FUNCTIONS, pytest.param(Rosenbrock(noise_std=1.0), id="noisy")], ids=lambda task: type(task).__name__
)
def test_adam_lowers_the_loss(task, train):
    (before, after), finite, _ = train(task, steps=150, learning_rate=0.05)
    assert finite
    assert after < 0.9 * before


@pytest.mark.parametrize("task", FUNCTIONS, ids=lambda task: type(task).__name__)
def test_start_lies_in_the_box_and_hangs_on_the_key(task):
    x = np.asarray(task.init(KEY)["x"])
    assert x.dtype == np.float32
    assert np.all((x >= task.box[0]) & (x < task.box[1]))
    np.testing.assert_array_equal(x, task.init(KEY)["x"])
    assert not np.array_equal(x, task.init(jax.random.key(2))["x"])
