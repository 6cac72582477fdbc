"""A pole on a cart that is pushed to the left or to the right."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.film import Shape
from lobench.inner.tasks import arguments
from lobench.inner.tasks.control.environment import Environment, Step, environment
from lobench.inner.tasks.control.spaces import Discrete

__all__ = ["CartPole"]

_GRAVITY = 9.8
_POLE_MASS = 0.1
_TOTAL_MASS = 1.1
_HALF_LENGTH = 0.5
_FORCE = 10.0
_SECONDS = 0.02
_FARTHEST, _STEEPEST = 2.4, 12 * 2 * math.pi / 360


class _State(NamedTuple):
    values: jax.Array  # float32[4]: place, speed, angle, angular speed
    time: jax.Array  # int32[]


@environment
class CartPole(Environment):
    """Keeps a pole upright: a reward of 1 for each step, until it leans by 12 degrees or the cart leaves its track.

    Observations are position, speed, angle and angular speed; actions 0 and 1 push to the left and to the right. It is
    Gymnasium's CartPole-v1, which counts as solved from a return of 475 on.
    Source: Barto, Sutton and Anderson 1983; gymnasium's classic_control/cartpole.py.

    Args:
      time_limit: Steps after which an episode is truncated, and the highest return.
      hide_speeds: Whether only position and angle are observed. The direction of the fall is then unknown without
        memory.
    """

    actions = Discrete(2)
    frame_seconds = _SECONDS
    random_return = 22.0
    shapes = (Shape(kind="line", style="s3", width=1), Shape(kind="line", style="s1", width=16), Shape(style="s2"))

    def __init__(self, *, time_limit: int = 500, hide_speeds: bool = False) -> None:
        self.time_limit = arguments.integer("CartPole", "time_limit", time_limit)
        self.best_return = float(self.time_limit)
        self.solved_at = 0.95 * self.time_limit
        self._hide_speeds = hide_speeds

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, _State]:
        state = _State(jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05), jnp.int32(0))
        return self._observation(state), state

    def step(self, key: jax.Array, state: _State, action: jax.Array) -> Step:
        _, speed, angle, angular_speed = state.values
        sine = jnp.sin(angle)
        cosine = jnp.cos(angle)
        force = jnp.where(action == 1, _FORCE, -_FORCE)
        push_acceleration = (force + _POLE_MASS * _HALF_LENGTH * angular_speed**2 * sine) / _TOTAL_MASS
        inertia = _HALF_LENGTH * (4.0 / 3.0 - _POLE_MASS * cosine**2 / _TOTAL_MASS)
        angular_acceleration = (_GRAVITY * sine - cosine * push_acceleration) / inertia
        cart_acceleration = push_acceleration - _POLE_MASS * _HALF_LENGTH * angular_acceleration * cosine / _TOTAL_MASS
        rates_of_change = jnp.stack([speed, cart_acceleration, angular_speed, angular_acceleration])
        new_state = _State(state.values + _SECONDS * rates_of_change, state.time + 1)
        terminated = (jnp.abs(new_state.values[0]) > _FARTHEST) | (jnp.abs(new_state.values[2]) > _STEEPEST)
        truncated = new_state.time >= self.time_limit
        return Step(
            self._observation(new_state), new_state, jnp.float32(1.0), terminated, truncated, truncated & ~terminated
        )

    def _observation(self, state: _State) -> jax.Array:
        return state.values[::2] if self._hide_speeds else state.values

    def frame(self, state: _State) -> jax.Array:
        """Returns the track, the cart and the pole."""
        cart_x, angle = 0.5 + 0.19 * state.values[0], state.values[2]
        tip = jnp.stack([cart_x + 0.4 * jnp.sin(angle), 0.3 + 0.4 * jnp.cos(angle)])
        track = jnp.array([0.044, 0.25, 0.956, 0.25], jnp.float32)
        cart = jnp.stack([cart_x - 0.06, 0.29 + 0 * cart_x, cart_x + 0.06, 0.29 + 0 * cart_x])
        return jnp.stack([track, cart, jnp.concatenate([jnp.stack([cart_x, 0.3 + 0 * cart_x]), tip])])
