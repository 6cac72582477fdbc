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
    """Actions 0 .. n-1; a policy's output is their logits.

    Attributes:
      n: How many there are.
    """

    n: int

    @property
    def num_outputs(self) -> int:
        """Returns how many numbers the network gives."""
        return self.n

    def outputs(self, head: jax.Array, log_std: jax.Array | None) -> jax.Array:
        """Returns a policy's output, float32[..., n]."""
        return head

    def sample(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """Returns an action, int32[]; output float32[n]."""
        return jax.random.categorical(key, output).astype(jnp.int32)

    def mode(self, output: jax.Array) -> jax.Array:
        """Returns the likeliest action, int32[...]."""
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
        """Returns the action as `step` takes it."""
        return action


@dataclass(frozen=True, slots=True)
class Box:
    """Actions that are arrays of any shape; a policy's output is the mean and the logarithm of the deviation of each.

    An action is a normal draw in units of its own: where both bounds are finite, -1 is the lower one and 1 the upper
    one, and what lies outside is clipped when the environment takes it.

    Attributes:
      shape: Such as (2,), or (n1, n2).
      low, high: Bounds of every component.
    """

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0

    @property
    def num_outputs(self) -> int:
        """Returns how many numbers the network gives: the means."""
        return math.prod(self.shape)

    def outputs(self, head: jax.Array, log_std: jax.Array | None) -> jax.Array:
        """Returns a policy's output, float32[..., 2 components]: means, then log deviations, which are parameters."""
        assert log_std is not None
        return jnp.concatenate([head, jnp.broadcast_to(log_std, head.shape)], axis=-1)

    def sample(self, key: jax.Array, output: jax.Array) -> jax.Array:
        """Returns an action in units of its own, float32[components]."""
        mean, log_std = jnp.split(output, 2, axis=-1)
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)

    def mode(self, output: jax.Array) -> jax.Array:
        """Returns the likeliest action, float32[..., components]."""
        return jnp.split(output, 2, axis=-1)[0]

    def log_prob(self, output: jax.Array, action: jax.Array) -> jax.Array:
        """Returns the logarithm of the actions' density, float32[...]: the sum over all components."""
        mean, log_std = jnp.split(output, 2, axis=-1)
        scaled = (action - mean) * jnp.exp(-log_std)
        return -jnp.sum(0.5 * scaled * scaled + log_std + 0.5 * _LOG_TWO_PI, axis=-1)

    def entropy(self, output: jax.Array) -> jax.Array:
        """Returns the entropy in nats, float32[...]."""
        _, log_std = jnp.split(output, 2, axis=-1)
        return jnp.sum(log_std + 0.5 * (_LOG_TWO_PI + 1.0), axis=-1)

    def for_environment(self, action: jax.Array) -> jax.Array:
        """Returns the action as `step` takes it: float32[*shape], inside the bounds."""
        action = action.reshape(self.shape)
        if math.isinf(self.low) or math.isinf(self.high):
            return jnp.clip(action, self.low, self.high)
        middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        return middle + half * jnp.clip(action, -1.0, 1.0)


Actions: TypeAlias = Discrete | Box
