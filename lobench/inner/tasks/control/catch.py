"""A falling ball that a paddle catches."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.film import Shape
from lobench.inner.tasks import arguments
from lobench.inner.tasks.control.environment import Environment, Step, environment
from lobench.inner.tasks.control.spaces import Discrete

__all__ = ["Catch"]


class _State(NamedTuple):
    ball: jax.Array  # int32[], its column
    height: jax.Array  # int32[], rows above the paddle
    paddle: jax.Array  # int32[], its column


@environment
class Catch(Environment):
    """Catches a ball that falls by one row per step. The last reward is 1 if the paddle is below the ball, else -1.

    Observations are the board, rows x columns with a 1 at the ball and at the paddle. Actions 0, 1 and 2 move the
    paddle left, not at all, and right. The ball starts in a random column, the paddle in the middle one. Source: Osband
    et al. 2020 (bsuite, arXiv 1908.03568).

    Args:
      rows, columns: Size of the board.
    """

    actions = Discrete(3)
    best_return = 1.0
    random_return = -0.6
    solved_at = 1.0
    frame_seconds = 0.2
    shapes = (Shape(kind="dot", style="s2"), Shape(kind="line", style="s1", width=8))

    def __init__(self, *, rows: int = 10, columns: int = 5) -> None:
        self._rows = arguments.integer("Catch", "rows", rows, at_least=2)
        self._columns = arguments.integer("Catch", "columns", columns, at_least=2)
        self.time_limit = self._rows - 1

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, _State]:
        ball = (self._columns * jax.random.uniform(key)).astype(jnp.int32)
        state = _State(ball, jnp.int32(self._rows - 1), jnp.int32(self._columns // 2))
        return self._observation(state), state

    def step(self, key: jax.Array, state: _State, action: jax.Array) -> Step:
        paddle = jnp.clip(state.paddle + action - 1, 0, self._columns - 1)
        new_state = _State(state.ball, state.height - 1, paddle)
        is_down = new_state.height == 0
        is_caught = is_down & (paddle == state.ball)
        reward = jnp.where(is_down, jnp.where(is_caught, 1.0, -1.0), 0.0)
        return Step(self._observation(new_state), new_state, reward, is_down, jnp.bool_(False), is_caught)

    def _observation(self, state: _State) -> jax.Array:
        columns = jnp.arange(self._columns)
        ball = (jnp.arange(self._rows)[::-1, None] == state.height) & (columns == state.ball)
        paddle = (jnp.arange(self._rows)[:, None] == self._rows - 1) & (columns == state.paddle)
        return (ball | paddle).astype(jnp.float32)

    def frame(self, state: _State) -> jax.Array:
        """Returns the frame of a film: shapes for the ball and the paddle."""
        ball, height, paddle = (jnp.asarray(value, jnp.float32) for value in state)
        width = 1 / self._columns
        ball_y = 0.1 + 0.8 * height / (self._rows - 1)
        dot = jnp.stack([(ball + 0.5) * width, ball_y, 0.04 + 0 * ball_y, 0 * ball_y])
        bar = jnp.stack([(paddle + 0.1) * width, 0.05 + 0 * ball_y, (paddle + 0.9) * width, 0.05 + 0 * ball_y])
        return jnp.stack([dot, bar])
