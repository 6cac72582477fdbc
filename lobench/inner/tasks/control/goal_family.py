"""A family of tasks from the tasks of one environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import TaskFamily
from lobench.inner.tasks.control.agent import ControlTask
from lobench.inner.tasks.control.environment import Environment, Step
from lobench.inner.tasks.control.ppo import PPO
from lobench.inner.tasks.control.reach_goals import ReachGoals

__all__ = ["GoalFamily"]

_MAX_TASKS = 2**30


class _OneTask(Environment):
    """An environment restricted to one of its tasks."""

    def __init__(self, env: Environment, task: jax.Array) -> None:
        self._env, self._task = env, task
        for name in ("actions", "time_limit", "best_return", "random_return", "solved_at", "shapes", "frame_seconds"):
            setattr(self, name, getattr(env, name))
        self.frame = env.frame  # type: ignore[method-assign]

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, PyTree]:
        return self._env.reset(key, self._task)

    def step(self, key: jax.Array, state: PyTree, action: jax.Array) -> Step:
        return self._env.step(key, state, action)


@configurable
class GoalFamily(TaskFamily):
    """Family of control tasks, each with its own goal.

    PPO with an environment of several tasks trains one policy on all of them; here each task has its own policy. The
    goals come from the environment's stream. Bind `ReachGoals.goals = "meta_train"` for meta-training and "meta_test"
    for meta-testing.

    Args:
      task: A PPO or a REINFORCE. None: PPO on ReachGoals.
    """

    metric_directions = ControlTask.metric_directions

    def __init__(self, *, task: Any = None) -> None:
        self._task = PPO(env=ReachGoals(num_tasks=_MAX_TASKS)) if task is None else task
        if not isinstance(self._task, ControlTask):
            task_name = type(task).__name__
            raise ConfigError("GoalFamily.task", got=task_name, expected="a task of control, such as @PPO()")

    def sample(self, key: jax.Array) -> PyTree:
        """Returns the index of a random task of the environment, int32[]."""
        return jax.random.randint(key, (), 0, self._task.env.num_tasks, jnp.int32)

    def task_fn(self, cfg: PyTree) -> ControlTask:
        return dataclasses.replace(self._task, env=_OneTask(self._task.env, cfg))
