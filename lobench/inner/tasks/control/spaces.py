"""Action spaces and their distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp

__all__ = ["Actions", "Box", "Discrete"]

_LOG_TWO_PI = math.log(2 * math.pi)


@dataclass(frozen=True, slots=True)
class Discrete:
    """Actions 0 to n-1. A policy's output is their logits.

    Attributes:
      n: Number of actions.
    """

    n: int

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the network."""
        return self.n

    def outputs(self, head: jax.Array, log_std: jax.Array | None) -> jax.Array:
        """Returns a policy's output, float32[..., n]."""
        return head

    def sample(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """Returns an action, int32[]; output float32[n]."""
        return jax.random.categorical(key, output).astype(jnp.int32)

    def mode(self, output: jax.Array) -> jax.Array:
        """Returns the most likely action, int32[...]."""
        return jnp.argmax(output, axis=-1).astype(jnp.int32)

    def log_prob(self, output: jax.Array, action: jax.Array) -> jax.Array:
        """Returns the logarithm of the actions' probabilities, float32[...]."""
        # A product with a one-hot, not a gather: the gradient of a gather is a scatter, which is slow on a CPU.
        return jnp.sum(jax.nn.one_hot(action, self.n) * jax.nn.log_softmax(output), axis=-1)

    def entropy(self, output: jax.Array) -> jax.Array:
        """Returns the entropy in nats, float32[...]."""
        logs = jax.nn.log_softmax(output)
        return -jnp.sum(jnp.exp(logs) * logs, axis=-1)

    def for_environment(self, action: jax.Array) -> jax.Array:
        """Returns the action in the form that `step` expects."""
        return action


@dataclass(frozen=True, slots=True)
class Box:
    """Actions that are arrays of any shape. A policy's output is mean and log standard deviation of each component.

    An action is a normal draw. If both bounds are finite, -1 stands for the lower and 1 for the upper bound. The
    environment gets clipped actions.

    Attributes:
      shape: Shape of an action, such as (2,).
      low, high: Bounds of every component.
    """

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the network, which are the means."""
        return math.prod(self.shape)

    def outputs(self, head: jax.Array, log_std: jax.Array | None) -> jax.Array:
        """Returns a policy's output, float32[..., 2 components]: means, then log standard deviations (parameters)."""
        assert log_std is not None
        return jnp.concatenate([head, jnp.broadcast_to(log_std, head.shape)], axis=-1)

    def sample(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """Returns an action in normalized units, float32[components]."""
        mean, log_std = jnp.split(output, 2, axis=-1)
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)

    def mode(self, output: jax.Array) -> jax.Array:
        """Returns the most likely action, float32[..., components]."""
        return jnp.split(output, 2, axis=-1)[0]

    def log_prob(self, output: jax.Array, action: jax.Array) -> jax.Array:
        """Returns the log density of actions, float32[...], summed over components."""
        mean, log_std = jnp.split(output, 2, axis=-1)
        standardized = (action - mean) * jnp.exp(-log_std)
        return -jnp.sum(0.5 * standardized * standardized + log_std + 0.5 * _LOG_TWO_PI, axis=-1)

    def entropy(self, output: jax.Array) -> jax.Array:
        """Returns the entropy in nats, float32[...]."""
        _, log_std = jnp.split(output, 2, axis=-1)
        return jnp.sum(log_std + 0.5 * (_LOG_TWO_PI + 1.0), axis=-1)

    def for_environment(self, action: jax.Array) -> jax.Array:
        """Returns the action in the form that `step` expects, float32[*shape], within the bounds."""
        action = action.reshape(self.shape)
        if math.isinf(self.low) or math.isinf(self.high):
            return jnp.clip(action, self.low, self.high)
        centre = (self.high + self.low) / 2
        half_range = (self.high - self.low) / 2
        return centre + half_range * jnp.clip(action, -1.0, 1.0)


Actions: TypeAlias = Discrete | Box
