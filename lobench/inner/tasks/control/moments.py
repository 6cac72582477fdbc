"""Running means and variances that normalize observations and rewards."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = ["Moments", "initial_moments"]

_MAX_VALUE = 10.0  # bound of normalized values
_SMALLEST_VARIANCE = 1e-8


class Moments(NamedTuple):
    """Moments of all rows so far.

    Attributes:
      seen: float32[], number of rows.
      mean, variance: float32[size].
    """

    seen: jax.Array
    mean: jax.Array
    variance: jax.Array

    def with_rows(self, rows: jax.Array) -> Moments:
        """Returns the moments after adding rows, float32[num_rows, size].

        Source: Chan, Golub and LeVeque 1979.
        """
        num_rows = rows.shape[0]
        total = self.seen + num_rows
        mean = jnp.mean(rows, axis=0)
        variance = jnp.mean((rows - mean) ** 2, axis=0)
        mean_difference = mean - self.mean
        sum_of_squares = (
            self.variance * self.seen + variance * num_rows + mean_difference**2 * (self.seen * num_rows / total)
        )
        return Moments(total, self.mean + mean_difference * (num_rows / total), sum_of_squares / total)

    def standardize(self, rows: jax.Array) -> jax.Array:
        """Standardizes rows float32[..., size] and clips them to [-10, 10]; unchanged before the first row."""
        standardized = (rows - self.mean) * jax.lax.rsqrt(self.variance + _SMALLEST_VARIANCE)
        return jnp.where(self.seen > 0, jnp.clip(standardized, -_MAX_VALUE, _MAX_VALUE), rows)

    def scale(self, values: jax.Array) -> jax.Array:
        """Divides values float32[...] by the standard deviation (of size 1), and clips them to [-10, 10]."""
        return jnp.clip(values * jax.lax.rsqrt(self.variance[0] + _SMALLEST_VARIANCE), -_MAX_VALUE, _MAX_VALUE)


def initial_moments(size: int) -> Moments:
    """Returns the moments before the first row."""
    return Moments(jnp.float32(0.0), jnp.zeros(size, jnp.float32), jnp.ones(size, jnp.float32))
