"""Points that move to goals: a family of tasks, one per set of goals."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.film import Shape
from lobench.inner.tasks import arguments
from lobench.inner.tasks.control.environment import Environment, Step, environment
from lobench.inner.tasks.control.spaces import Box
from lobench.inner.training.streams import key_of

__all__ = ["ReachGoals"]

_STREAMS = ("meta_train", "meta_test")
_SEED = 0x60A1
_STRIDE, _NEAR = 0.1, 0.1


class _State(NamedTuple):
    points: jax.Array  # float32[num_points, dim]
    goals: jax.Array  # float32[num_points, dim]
    time: jax.Array  # int32[]


@environment
class ReachGoals(Environment):
    """Moves points from the origin to goals in [-1, 1]^dim; the reward is minus the mean distance that is left.

    Each task has its own goals, which do not depend on `num_tasks`. Actions are Box((num_points, dim)), a move of at
    most 0.1 along each axis. An episode succeeds and ends when every point is within 0.1 of its goal.

    Args:
      num_tasks: Number of tasks that a training collects from; see `collection` of the task.
      goals: Stream that goals are drawn from, "meta_train" or "meta_test". The two have no goal in common.
      num_points: Number of points that move at once.
      dim: Dimension of the space.
      show_goals: Whether observations include the goals. If not, tasks differ only in their rewards.
      time_limit: Steps after which an episode is truncated.
    """

    best_return = 0.0
    frame_seconds = 0.1

    def __init__(
        self,
        *,
        num_tasks: int = 1,
        goals: str = "meta_train",
        num_points: int = 1,
        dim: int = 2,
        show_goals: bool = True,
        time_limit: int = 50,
    ) -> None:
        arguments.choice("ReachGoals", "goals", goals, _STREAMS)
        self.num_tasks = arguments.integer("ReachGoals", "num_tasks", num_tasks)
        num_points = arguments.integer("ReachGoals", "num_points", num_points)
        self.time_limit = arguments.integer("ReachGoals", "time_limit", time_limit)
        self._shape = (num_points, arguments.integer("ReachGoals", "dim", dim, at_least=2))
        self.actions = Box(self._shape, -_STRIDE, _STRIDE)
        self.random_return = -0.8 * self.time_limit
        self._stream = _STREAMS.index(goals)
        self._show_goals = show_goals
        dots = [Shape(kind="dot", style=style) for style in ("s3", "s1")]
        self.shapes = tuple(dot for dot in dots for _ in range(num_points))

    def goals(self, task: jax.Array | int) -> jax.Array:
        """Returns the goals of a task, float32[num_points, dim]."""
        key = jax.random.fold_in(jax.random.fold_in(key_of(_SEED), self._stream), task)
        return jax.random.uniform(key, self._shape, minval=-1.0, maxval=1.0)

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, _State]:
        state = _State(jnp.zeros(self._shape, jnp.float32), self.goals(task), jnp.int32(0))
        return self._observation(state), state

    def step(self, key: jax.Array, state: _State, action: jax.Array) -> Step:
        points = state.points + jnp.clip(action, -_STRIDE, _STRIDE)
        distances = jnp.linalg.norm(points - state.goals, axis=-1)
        new_state = _State(points, state.goals, state.time + 1)
        has_arrived = jnp.all(distances < _NEAR)
        return Step(
            self._observation(new_state),
            new_state,
            -jnp.mean(distances),
            has_arrived,
            new_state.time >= self.time_limit,
            has_arrived,
        )

    def _observation(self, state: _State) -> jax.Array:
        return jnp.stack([state.points, state.goals]) if self._show_goals else state.points

    def frame(self, state: _State) -> jax.Array:
        """Returns the first two coordinates of the goals and the points."""
        positions = 0.5 + 0.45 * jnp.concatenate([state.goals, state.points])[:, :2]
        num_points = self._shape[0]
        radii = jnp.concatenate([jnp.full(num_points, 0.045), jnp.full(num_points, 0.02)])
        return jnp.concatenate([positions, radii[:, None], jnp.zeros((2 * num_points, 1))], axis=-1).astype(jnp.float32)
