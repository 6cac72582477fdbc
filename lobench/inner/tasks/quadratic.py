"""Quadratic bowls: a task with a given condition number, and a family of random tasks."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.networks import Params
from lobench.inner.tasks.objectives import NoisyFunction

__all__ = ["Quadratic", "QuadraticFamily"]


class _Bowl(NoisyFunction):
    """Base of quadratic bowls. The initial x is standard normal."""

    def init(self, key: jax.Array) -> Params:
        return {"x": jax.random.normal(key, (self._dim,), jnp.float32)}


@configurable
class Quadratic(_Bowl):
    """Quadratic bowl `0.5 (x - c)' H (x - c)` with minimum 0 at c.

    H has eigenvalues spaced evenly in their logarithm from `1 / condition` to 1, in the axes of x or in a rotated
    basis. c is normal and, like the basis, fixed by `problem_seed`; the initial x is standard normal by the key.

    Args:
      dim: Length of x.
      condition: Ratio of the largest eigenvalue of H to its smallest, >= 1.
      rotated: Whether the eigenvectors are a random basis and not the axes.
      noise_std: Standard deviation of normal noise on each component of the training gradient; losses stay exact.
      problem_seed: Seed of c and the basis.
    """

    def __init__(
        self,
        *,
        dim: int = 10,
        condition: float = 10.0,
        rotated: bool = True,
        noise_std: float = 0.0,
        problem_seed: int = 0,
    ) -> None:
        condition = arguments.number(self, "condition", condition, at_least=1.0)
        noise_std = arguments.number(self, "noise_std", noise_std)
        super().__init__(dim=arguments.integer(self, "dim", dim), noise_std=noise_std or None)
        rng = np.random.default_rng(arguments.integer(self, "problem_seed", problem_seed, at_least=0))
        optimum = rng.standard_normal(dim)
        basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0] if rotated else np.eye(dim)
        eigenvalues = np.logspace(-math.log10(condition), 0.0, dim)
        self.optimum = optimum.astype(np.float32)  # float32[dim]
        # H = factor' factor: as a sum of squares the loss cannot fall below zero by rounding.
        self.factor = (np.sqrt(eigenvalues)[:, None] * basis.T).astype(np.float32)  # float32[dim, dim]

    def value(self, x: jax.Array) -> jax.Array:
        return 0.5 * jnp.sum(((x - self.optimum) @ self.factor.T) ** 2)


@configurable
class QuadraticFamily(TaskFamily):
    """Family of quadratic bowls with random eigenvalues, basis and minimum, and optional gradient noise.

    Eigenvalues are log-uniform in `[1 / max_condition, 1]`. The basis is composed of random sign flips and the
    orthonormal cosine transform, applied twice. It is dense and exactly orthogonal, without a factorization in the
    compiled program. The minimum and the initial x are standard normal.

    Args:
      dim: Length of x.
      max_condition: Bound on the ratio of the eigenvalues, >= 1.
      max_noise_std: Largest standard deviation of the gradient noise; that of a task is uniform in [0, max_noise_std].
    """

    def __init__(self, *, dim: int = 10, max_condition: float = 100.0, max_noise_std: float = 0.0) -> None:
        self._dim = arguments.integer(self, "dim", dim)
        self._log_range = math.log(arguments.number(self, "max_condition", max_condition, at_least=1.0))
        self._max_noise_std = arguments.number(self, "max_noise_std", max_noise_std)
        self._cosines = _cosine_transform(dim)

    def sample(self, key: jax.Array) -> dict[str, jax.Array]:
        """Returns `eigenvalues` [dim], `signs` [2, dim], `optimum` [dim] and `noise_std` [], all float32."""
        eigenvalue_key, sign_key, optimum_key, noise_key = jax.random.split(key, 4)
        log_eigenvalues = -self._log_range * jax.random.uniform(eigenvalue_key, (self._dim,), jnp.float32)
        return {
            "eigenvalues": jnp.exp(log_eigenvalues),
            "signs": jax.random.rademacher(sign_key, (2, self._dim), jnp.float32),
            "optimum": jax.random.normal(optimum_key, (self._dim,), jnp.float32),
            "noise_std": self._max_noise_std * jax.random.uniform(noise_key, (), jnp.float32),
        }

    def task_fn(self, cfg: PyTree) -> Task:
        return _SampledQuadratic(cfg, self._cosines, noisy=self._max_noise_std > 0)


class _SampledQuadratic(_Bowl):
    def __init__(self, cfg: PyTree, cosines: np.ndarray, *, noisy: bool) -> None:
        noise_std = cfg["noise_std"] if noisy else None
        super().__init__(dim=cosines.shape[0], noise_std=noise_std)
        self._cfg, self._cosines = cfg, cosines

    def value(self, x: jax.Array) -> jax.Array:
        first_signs, second_signs = self._cfg["signs"]
        coordinates = self._cosines @ (second_signs * (self._cosines @ (first_signs * (x - self._cfg["optimum"]))))
        return 0.5 * jnp.sum(self._cfg["eigenvalues"] * coordinates**2)


@functools.cache
def _cosine_transform(dim: int) -> np.ndarray:
    """Returns the orthonormal discrete cosine transform of type II, float32[dim, dim]."""
    frequencies = np.arange(dim)[:, None]
    positions = np.arange(dim)[None, :]
    matrix = math.sqrt(2.0 / dim) * np.cos(np.pi * frequencies * (2 * positions + 1) / (2 * dim))
    matrix[0] /= math.sqrt(2.0)
    return matrix.astype(np.float32)
