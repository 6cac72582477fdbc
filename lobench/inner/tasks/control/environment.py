"""Environment interface: reset and step by key, with separate termination and truncation."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.core.film import Shape
from lobench.inner.configurable import register
from lobench.inner.optimizer import PyTree
from lobench.inner.tasks.control.spaces import Actions, Box
from lobench.inner.training.streams import key_of

__all__ = ["Environment", "Layout", "Step", "environment", "flatten_observation", "layout_of"]

_TIME_LIMIT = 1000  # steps of an evaluation in an environment without a limit

T = TypeVar("T", bound=type)


class Step(NamedTuple):
    """Result of one step of an environment.

    Attributes:
      observation: Observation after the step, before any reset; also given for the last step of an episode.
      state: Pytree of arrays, with the shapes and dtypes of the state from `reset`.
      reward: float32[].
      terminated: bool[], whether the episode is over and no reward could follow.
      truncated: bool[], whether the episode was stopped for another reason (time is up) and would have continued.
      success: bool[], whether the goal was reached at this step. None for environments without success.
      life_lost: bool[], whether a life was lost and the episode continues. Learners treat it as truncation: advantages
        stop there, and the value of the next observation counts. None for environments without lives.
    """

    observation: jax.Array
    state: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    success: jax.Array | None = None
    life_lost: jax.Array | None = None


class Environment:
    """Base of environments. Any object with `actions`, `reset(key)` and `step(key, state, action)` works too.

    Attributes:
      actions: A `Discrete` or a `Box`.
      num_tasks: Number of tasks, such as goals. `reset` receives the index of the task.
      time_limit: Number of steps after which an episode is truncated.
      best_return: Highest possible return; None if unknown.
      random_return: Approximate return of uniformly random actions; None if unknown.
      solved_at: Return from which on an episode counts as solved; None if undefined.
      shapes: Shapes of the film; () for environments without a film.
      frame_seconds: Seconds between two frames.
    """

    actions: Actions
    num_tasks: int = 1
    time_limit: int = _TIME_LIMIT
    best_return: float | None = None
    random_return: float | None = None
    solved_at: float | None = None
    shapes: tuple[Shape, ...] = ()
    frame_seconds: float = 0.05

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, PyTree]:
        """Returns the initial observation and state of an episode of a task (int32[])."""
        raise NotImplementedError

    def step(self, key: jax.Array, state: PyTree, action: jax.Array) -> Step:
        """Returns the result of an action in a state."""
        raise NotImplementedError

    def frame(self, state: PyTree) -> jax.Array:
        """Returns the position of each of `shapes`: float32[num_shapes, 4]; see `lobench.core.film.Shape`."""
        raise NotImplementedError


def environment(environment_class: T) -> T:
    """Registers an environment with gin under its own name (`PPO.env = @CartPole()`) and returns it unchanged."""
    return register(environment_class)


class Layout(NamedTuple):
    """Properties of an environment that are found without running it.

    Attributes:
      observation_size: Number of elements of an observation.
      has_success: Whether steps report success.
    """

    observation_size: int
    has_success: bool


def layout_of(env: Environment) -> Layout:
    """Returns the layout of an environment, by abstract evaluation.

    Raises:
      ConfigError: A step changes shapes or dtypes, or returns a reward or a flag that is not a single number.
    """
    name = type(getattr(env, "_wrapped", env)).__name__

    def reset_and_step() -> tuple[PyTree, Step]:
        key = key_of(0)
        observation, state = env.reset(key, jnp.int32(0))
        components = jnp.zeros(env.actions.num_outputs) if isinstance(env.actions, Box) else jnp.int32(0)
        return (observation, state), env.step(key, state, env.actions.for_environment(components))

    outputs_of_reset, step = jax.eval_shape(reset_and_step)
    for output_name, old, new in (
        ("observation", outputs_of_reset[0], step.observation),
        ("state", outputs_of_reset[1], step.state),
    ):
        _require_same(f"{name}.step changes the {output_name}", old, new)
    for flag in ("reward", "terminated", "truncated", "success", "life_lost"):
        value = getattr(step, flag)
        if value is not None and jnp.shape(value) != ():
            shape_text = f"shape {list(jnp.shape(value))}"
            raise ConfigError(
                f"{name}.step gives a {flag} that is not a single number", got=shape_text, expected="shape []"
            )
    leaves = jax.tree.leaves(outputs_of_reset[0])
    if len(leaves) != 1:
        shape_text = f"{len(leaves)} arrays"
        raise ConfigError(f"{name}.reset gives an observation that is not one array", got=shape_text, expected="one")
    return Layout(int(leaves[0].size), step.success is not None)


def _require_same(description: str, old: PyTree, new: PyTree) -> None:
    old_types = _type_texts(old)
    new_types = _type_texts(new)
    for path in [*old_types, *new_types]:
        if old_types.get(path) != new_types.get(path):
            raise ConfigError(
                f"{description}{path}",
                got=new_types.get(path, "nothing"),
                expected=f"{old_types.get(path, 'nothing')}, as reset gives it",
            )


def _type_texts(tree: PyTree) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def flatten_observation(observation: Any) -> jax.Array:
    """Returns an observation as a vector, float32[observation_size]."""
    (leaf,) = jax.tree.leaves(observation)
    return jnp.ravel(leaf).astype(jnp.float32)
