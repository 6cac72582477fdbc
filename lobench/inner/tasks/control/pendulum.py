"""A pendulum that is swung up and held there."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.film import Shape
from lobench.inner.tasks import arguments
from lobench.inner.tasks.control.environment import Environment, Step, environment
from lobench.inner.tasks.control.spaces import Box

__all__ = ["Pendulum"]

_GRAVITY = 10.0
_FASTEST = 8.0
_STRONGEST = 2.0
_SECONDS = 0.05


class _State(NamedTuple):
    angle: jax.Array  # float32[], 0 is upright
    speed: jax.Array  # float32[]
    time: jax.Array  # int32[]


@environment
class Pendulum(Environment):
    """Swings a pendulum up and holds it there; the reward falls with the angle, the speed and the torque.

    Observations are cosine and sine of the angle, and the speed. The action is the torque, Box((1,)) from -2 to 2. An
    episode never terminates; it is truncated when time is up, and learners that treat this as termination learn wrong
    values. The environment is Gymnasium's Pendulum-v1. A good policy gets about -150.

    Args:
      time_limit: Steps after which an episode is truncated.
    """

    actions = Box((1,), -_STRONGEST, _STRONGEST)
    frame_seconds = _SECONDS
    best_return = 0.0
    shapes = (Shape(kind="line", style="s1", width=6), Shape(kind="dot", style="s3"))

    def __init__(self, *, time_limit: int = 200) -> None:
        self.time_limit = arguments.integer("Pendulum", "time_limit", time_limit)
        self.random_return = -6.1 * self.time_limit

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, _State]:
        angle, speed = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        state = _State(jnp.pi * angle, speed, jnp.int32(0))
        return _observation(state), state

    def step(self, key: jax.Array, state: _State, action: jax.Array) -> Step:
        torque = jnp.clip(action[0], -_STRONGEST, _STRONGEST)
        angle = (state.angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        reward = -(angle**2 + 0.1 * state.speed**2 + 0.001 * torque**2)
        unclipped_speed = state.speed + _SECONDS * (1.5 * _GRAVITY * jnp.sin(state.angle) + 3.0 * torque)
        speed = jnp.clip(unclipped_speed, -_FASTEST, _FASTEST)
        new_state = _State(state.angle + _SECONDS * speed, speed, state.time + 1)
        return Step(_observation(new_state), new_state, reward, jnp.bool_(False), new_state.time >= self.time_limit)

    def frame(self, state: _State) -> jax.Array:
        """Returns the rod and its pivot as shapes to draw, float32[2, 4]."""
        tip = jnp.stack([0.5 + 0.4 * jnp.sin(state.angle), 0.5 + 0.4 * jnp.cos(state.angle)])
        pivot = jnp.full(2, 0.5, jnp.float32)
        return jnp.stack([jnp.concatenate([pivot, tip]), jnp.array([0.5, 0.5, 0.02, 0.0], jnp.float32)])


def _observation(state: _State) -> jax.Array:
    return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])
