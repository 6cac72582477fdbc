"""A grid of settings in one program is what each of them gives alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.case import Case, SeedBlock
from lobench.inner.adapters import as_stepper
from lobench.inner.grid import GridProgram
from lobench.inner.optimizers.baselines import adam, sgd
from lobench.inner.task import ArrayDataset, Datasets, Task
from lobench.inner.train import Program

RATES = [0.01, 0.1, 1e9]


class Line(Task):
    def __init__(self) -> None:
        points = np.linspace(-1, 1, 16, dtype=np.float32)
        self.datasets = Datasets(train=ArrayDataset(arrays={"x": points, "y": 2 * points + 1}, batch_size=4))

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        return {"w": jax.random.normal(key, ()), "b": jnp.zeros(())}

    def loss(self, params: dict[str, jax.Array], key: jax.Array, data: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((params["w"] * data["x"] + params["b"] - data["y"]) ** 2)


def test_the_grid_is_what_each_point_gives_alone() -> None:
    case, block = Case(num_inner_steps=37, eval_every=10, num_seeds=3), SeedBlock(start=0, size=3)
    thetas = [{"learning_rate": np.float32(rate)} for rate in RATES]
    for make in (adam, sgd):

        def stepper(theta: dict[str, jax.Array], make: object = make) -> object:
            return as_stepper(make(**theta), 37)

        grid = GridProgram(case, Line(), stepper, 3).run_grid(thetas, block)
        alone = Program(case, Line(), stepper, 3)
        for theta, found in zip(thetas, grid, strict=True):
            wanted = alone.run(theta, block)
            assert wanted is not None
            assert found.eval_steps == wanted.eval_steps == (0, 10, 20, 30, 37)
            assert found.diverged_at == wanted.diverged_at
            np.testing.assert_allclose(
                np.asarray(found.metrics["train/loss"]), np.asarray(wanted.metrics["train/loss"]), rtol=1e-5
            )
    assert grid[2].num_diverged == 3, "SGD at 1e9 diverges"
    assert grid[1].num_diverged == 0, "and harms nobody else"
