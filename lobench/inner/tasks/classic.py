"""Test functions of the optimization literature, each with minimum 0, with and without gradient noise."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.tasks import arguments
from lobench.inner.tasks.networks import Params
from lobench.inner.tasks.objectives import NoisyFunction

__all__ = ["Ackley", "AnalyticFunction", "Beale", "Rosenbrock", "StyblinskiTang"]


class AnalyticFunction(NoisyFunction):
    """A function of x, float32[dim], whose minimum is 0; the initial x is uniform in a box.

    Args:
      dim: Length of x.
      noise_std: Standard deviation of normal noise on each component of the training gradient. Losses are exact, and
        evaluations have no noise.
    Attributes:
      box: Lowest and highest initial value of each component.
      min_dim: Smallest dimension in which the function is defined.
    """

    box: ClassVar[tuple[float, float]]
    min_dim: ClassVar[int] = 1

    def __init__(self, *, dim: int = 2, noise_std: float = 0.0) -> None:
        dim = arguments.integer(self, "dim", dim, at_least=self.min_dim)
        super().__init__(dim=dim, noise_std=arguments.number(self, "noise_std", noise_std) or None)

    def init(self, key: jax.Array) -> Params:
        low, high = self.box
        return {"x": jax.random.uniform(key, (self._dim,), jnp.float32, low, high)}


@configurable
class Rosenbrock(AnalyticFunction):
    """Rosenbrock function: a curved valley, chained over neighbours; minimum at (1, ..., 1).

    Source: Rosenbrock 1960.
    """

    box = (-2.0, 2.0)
    min_dim = 2

    def value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@configurable
class Beale(AnalyticFunction):
    """Beale function: a flat valley between steep corners in two dimensions; minimum at (3, 0.5).

    Source: Beale 1958.
    """

    box = (-2.0, 2.0)

    def __init__(self, *, noise_std: float = 0.0) -> None:
        super().__init__(dim=2, noise_std=noise_std)

    def value(self, x: jax.Array) -> jax.Array:
        a, b = x[0], x[1]
        return (1.5 - a + a * b) ** 2 + (2.25 - a + a * b**2) ** 2 + (2.625 - a + a * b**3) ** 2


@configurable
class Ackley(AnalyticFunction):
    """Ackley function: a funnel with many local minima and the global one at 0.

    Source: Ackley 1987.
    """

    box = (-5.0, 5.0)

    def value(self, x: jax.Array) -> jax.Array:
        # A tiny lower bound keeps the gradient of the root finite, and zero, at 0.
        radius = jnp.sqrt(jnp.maximum(jnp.mean(x**2), 1e-20))
        waves = jnp.mean(jnp.cos(2.0 * math.pi * x))
        return -20.0 * jnp.expm1(-0.2 * radius) - math.e * jnp.expm1(waves - 1.0)


@configurable
class StyblinskiTang(AnalyticFunction):
    """Styblinski-Tang function, lifted so that the minimum, at x = -2.903534, is 0: a double well per component.

    Source: Styblinski and Tang 1990.
    """

    box = (-5.0, 5.0)

    _WELL: ClassVar[float] = -2.903534027771177
    _DEPTH: ClassVar[float] = 0.5 * (_WELL**4 - 16.0 * _WELL**2 + 5.0 * _WELL)

    def value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(0.5 * (x**4 - 16.0 * x**2 + 5.0 * x) - self._DEPTH)
