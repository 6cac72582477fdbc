"""Networks that solve the heat equation, or learn a stiff differential equation whose solution is known."""

from __future__ import annotations

import math
import types
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Datasets, SampledDataset, Task
from lobench.inner.tasks import arguments
from lobench.inner.tasks.measured import LossStateAux, MeasuredTask
from lobench.inner.tasks.networks import Params, layers_init, through_layers
from lobench.inner.tasks.objectives import log10_loss
from lobench.inner.tasks.splits import row_datasets

__all__ = ["HeatPINN", "StiffODE"]

_STARTS = {"train": 1024, "inner_valid": 128, "outer_valid": 128, "test": 128}


@configurable
class HeatPINN(MeasuredTask):
    """Physics-informed network u(x, t) for the heat equation `u_t = diffusivity u_xx` on [0, 1] x [0, 1].

    The initial value is sin(pi x), and u is zero at both ends. The loss is the mean squared residual at inner points,
    plus ten times the mean squared errors of the initial and of the boundary values; its floor is 0. `error` is the
    root mean squared difference from the exact solution `sin(pi x) exp(-diffusivity pi^2 t)` at the points, relative to
    the root mean square of the solution. Batches have `inside` float32[num_points, 2] (x and t), `start`
    float32[num_points / 4] (x) and `ends` (t). Source: Raissi et al. 2019, section 3.

    Args:
      hidden_sizes: Widths of the hidden layers, tanh.
      diffusivity: Diffusivity of the equation.
      num_points: Number of points in a batch, a multiple of 4.
    """

    metric_directions = types.MappingProxyType({"error": "min"})

    def __init__(
        self, *, hidden_sizes: tuple[int, ...] = (32, 32), diffusivity: float = 0.1, num_points: int = 128
    ) -> None:
        self._widths = (2, *arguments.sizes(self, "hidden_sizes", hidden_sizes, min_count=1), 1)
        self._diffusivity = arguments.number(self, "diffusivity", diffusivity)
        quarter = arguments.integer(self, "num_points", num_points, at_least=4) // 4

        def sample(key: jax.Array) -> dict[str, jax.Array]:
            uniform = jax.random.uniform(key, (10 * quarter,), jnp.float32)
            inside, start, ends = jnp.split(uniform, [8 * quarter, 9 * quarter])
            return {"inside": inside.reshape(-1, 2), "start": start, "ends": ends}

        self.datasets = Datasets(train=SampledDataset(sample), test=SampledDataset(sample))

    def init(self, key: jax.Array) -> Params:
        return layers_init(key, self._widths, 1.0)

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        x, t = data["inside"].T
        u, _, u_xx, u_t = self.values_and_derivatives(params, data["inside"])
        zeros = jnp.zeros_like(data["start"])
        ones = jnp.ones_like(data["ends"])
        edge = jnp.concatenate(
            [
                jnp.stack([data["start"], zeros], axis=1),
                jnp.stack([jnp.zeros_like(data["ends"]), data["ends"]], axis=1),
                jnp.stack([ones, data["ends"]], axis=1),
            ]
        )
        edge_values = jnp.concatenate([jnp.sin(math.pi * data["start"]), 0 * ones, 0 * ones])
        squared_errors = jnp.square(self.values(params, edge) - edge_values)
        residual = jnp.mean((u_t - self._diffusivity * u_xx) ** 2)
        start_errors = squared_errors[: len(zeros)]
        edge_errors = squared_errors[len(zeros) :]
        exact = jnp.sin(math.pi * x) * jnp.exp(-self._diffusivity * math.pi**2 * t)
        error = jnp.sqrt(jnp.sum((u - exact) ** 2) / jnp.sum(exact**2))
        return residual + 10 * (jnp.mean(start_errors) + jnp.mean(edge_errors)), state, {"error": error}

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns log10 of the loss, whose floor is zero."""
        return log10_loss(loss)

    def values(self, params: Params, points: jax.Array) -> jax.Array:
        """Returns u at points float32[num_points, 2], float32[num_points]."""
        return through_layers(params, points, jnp.tanh)[:, 0]

    def values_and_derivatives(self, params: Params, points: jax.Array) -> jax.Array:
        """Returns u, u_x, u_xx and u_t at points float32[num_points, 2], float32[4, num_points]."""
        # The four pass a layer as one product, and tanh by its derivatives, which is cheaper than forward
        # mode twice.
        zeros = jnp.zeros(len(points), jnp.float32)
        ones = jnp.ones(len(points), jnp.float32)
        along_x = jnp.stack([ones, zeros], axis=1)
        along_t = jnp.stack([zeros, ones], axis=1)
        streams = jnp.stack([points, along_x, jnp.zeros_like(points), along_t])
        last_layer = len(self._widths) - 2
        for layer in range(last_layer):
            z, z_x, z_xx, z_t = streams @ params[f"w{layer}"]
            y = jnp.tanh(z + params[f"b{layer}"])
            slope = 1 - y * y
            streams = jnp.stack([y, slope * z_x, slope * (z_xx - 2 * y * z_x * z_x), slope * z_t])
        values = (streams @ params[f"w{last_layer}"])[..., 0]
        return values.at[0].add(params[f"b{last_layer}"][0])


@configurable
class StiffODE(Task):
    """Network for the nonlinear part of a stiff equation (Davis and Skodje's system), learned from solutions.

    `y1' = -y1`, `y2' = -stiffness y2 + ((stiffness - 1) y1 + stiffness y1^2) / (1 + y1)^2`: y2 falls quickly to the
    slow curve `y1 / (1 + y1)`. The linear part is given; the network, tanh, of (y1, y2), times (1, stiffness), stands
    for the rest. It is integrated by an exponential Runge-Kutta method of order two with steps of 0.1, at which an
    explicit method of the whole would explode. The loss is the mean square of the error after each of `num_steps`
    steps, against the exact solution; its floor is near that of the true nonlinear part, which is below 1e-9.
    Batches are initial values float32[batch, 2], uniform in [0.2, 2] x [0, 2].
    Source: Davis and Skodje 1999, equation 5.1; Cox and Matthews 2002, equation 22 (ETD2RK).

    Args:
      width: Width of the hidden layer.
      stiffness: Ratio of the two rates, > 1.
      num_steps: Number of steps of an integration.
      batch_size: Examples per batch, in training and evaluation.
    """

    datasets: Datasets
    step = 0.1

    def __init__(self, *, width: int = 32, stiffness: float = 100.0, num_steps: int = 20, batch_size: int = 32) -> None:
        self._width = arguments.integer(self, "width", width)
        self._stiffness = arguments.number(self, "stiffness", stiffness, at_least=1.0)
        self._num_steps = arguments.integer(self, "num_steps", num_steps)
        rates = np.array([1.0, self._stiffness])
        z = -rates * self.step
        self._rates, self._decay = rates.astype(np.float32), np.exp(z).astype(np.float32)
        self._first_weight = (np.expm1(z) / z * self.step).astype(np.float32)
        self._second_weight = ((np.expm1(z) - z) / z**2 * self.step).astype(np.float32)
        starts = np.random.default_rng(0).uniform([0.2, 0.0], [2.0, 2.0], (sum(_STARTS.values()), 2)).astype(np.float32)
        self.datasets = row_datasets(starts, _STARTS, arguments.integer(self, "batch_size", batch_size))

    def init(self, key: jax.Array) -> Params:
        return layers_init(key, (2, self._width, 2), 1.0)

    def loss(self, params: PyTree, key: jax.Array, data: Batch) -> jax.Array:
        def learned_part(y: jax.Array) -> jax.Array:
            return jnp.asarray(self._rates) * through_layers(params, y, jnp.tanh)

        return self.loss_of(learned_part, data)

    def true_nonlinear_part(self, y: jax.Array) -> jax.Array:
        """Returns the true nonlinear part, which the network learns, float32[batch, 2]."""
        first_variable, stiffness = y[:, 0], self._stiffness
        second_rest = ((stiffness - 1) * first_variable + stiffness * first_variable**2) / (1 + first_variable) ** 2
        return jnp.stack([jnp.zeros_like(first_variable), second_rest], axis=1)

    def loss_of(self, nonlinear_part: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
        """Returns the loss of a nonlinear part, float32[batch, 2] -> float32[batch, 2], from initial values."""

        def step(y: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
            start_slope = nonlinear_part(y)
            predicted = jnp.asarray(self._decay) * y + self._first_weight * start_slope
            y = predicted + self._second_weight * (nonlinear_part(predicted) - start_slope)
            return y, jnp.mean((y - self.exact_solution(start, self.step * (index + 1))) ** 2)

        _, losses = jax.lax.scan(step, start, jnp.arange(self._num_steps, dtype=jnp.float32))
        return jnp.mean(losses)

    def exact_solution(self, start: jax.Array, time: jax.Array) -> jax.Array:
        """Returns the exact solution float32[batch, 2] at a time, float32[], for initial values float32[batch, 2]."""
        first_variable = start[:, 0] * jnp.exp(-time)
        slow = start[:, 0] / (1 + start[:, 0])
        second_variable = (start[:, 1] - slow) * jnp.exp(-self._stiffness * time) + first_variable / (
            1 + first_variable
        )
        return jnp.stack([first_variable, second_variable], axis=1)

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns log10 of the loss."""
        return log10_loss(loss)
