"""Environment interface: reset and step by key, with termination and truncation apart."""

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

__all__ = ["Environment", "Layout", "Step", "environment", "flat", "layout_of"]

_TIME_LIMIT = 1000  # of an environment that says none, in evaluations

T = TypeVar("T", bound=type)


class Step(NamedTuple):
    """Result of one step of an environment.

    Attributes:
      observation: After the step; of the last one of an episode too, before any reset.
      state: Pytree of arrays; of the shapes and dtypes that `reset` gives.
      reward: float32[].
      terminated: bool[]: the episode is over, and what would come after is worth nothing.
      truncated: bool[]: it is stopped for another reason (time is up), and would have gone on.
      success: bool[]: the goal is reached at this step; None in an environment that knows no success.
      life_lost: bool[]: a life is lost and the episode goes on. A learner takes it for truncated: advantages stop
        there, and the value of what comes after counts. None in an environment without lives.
    """

    observation: jax.Array
    state: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    success: jax.Array | None = None
    life_lost: jax.Array | None = None


class Environment:
    """Base of environments; anything else with `actions`, `reset(key)` and `step(key, state, action)` is one too.

    Attributes:
      actions: A `Discrete` or a `Box`.
      num_tasks: How many tasks it has, goals, say; `reset` says which one is meant.
      time_limit: Steps after which it truncates.
      best_return: The highest return that there is, where that is known.
      random_return: About what uniformly random actions get.
      solved_at: The return from which on it counts as solved.
      shapes: What is drawn of it; () for what draws nothing.
      frame_seconds: Between two frames.
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
        """Returns the observation and the state that an episode of a task (int32[]) begins with."""
        raise NotImplementedError

    def step(self, key: jax.Array, state: PyTree, action: jax.Array) -> Step:
        """Returns the result of an action in a state."""
        raise NotImplementedError

    def frame(self, state: PyTree) -> jax.Array:
        """Returns the position of each of `shapes`: float32[num_shapes, 4]; see `lobench.core.film.Shape`."""
        raise NotImplementedError


def environment(kind: T) -> T:
    """Registers an environment with gin under its own name (`PPO.env = @CartPole()`) and returns it unchanged."""
    return register(kind)


class Layout(NamedTuple):
    """What is known of an environment without running it.

    Attributes:
      observation_size: Numbers of an observation, whatever its shape.
      has_success: Whether steps say whether it is one.
    """

    observation_size: int
    has_success: bool


def layout_of(env: Environment) -> Layout:
    """Returns the layout; nothing is computed.

    Raises:
      ConfigError: a step changes shapes or dtypes, or says something else than a reward and two flags.
    """
    name = type(getattr(env, "_wrapped", env)).__name__

    def first() -> tuple[PyTree, Step]:
        key = key_of(0)
        observation, state = env.reset(key, jnp.int32(0))
        components = jnp.zeros(env.actions.num_outputs) if isinstance(env.actions, Box) else jnp.int32(0)
        return (observation, state), env.step(key, state, env.actions.for_environment(components))

    before, step = jax.eval_shape(first)
    for part, old, new in (("observation", before[0], step.observation), ("state", before[1], step.state)):
        _require_same(f"{name}.step changes the {part}", old, new)
    for flag in ("reward", "terminated", "truncated", "success", "life_lost"):
        found = getattr(step, flag)
        if found is not None and jnp.shape(found) != ():
            got = f"shape {list(jnp.shape(found))}"
            raise ConfigError(f"{name}.step gives a {flag} that is no single number", got=got, expected="shape []")
    leaves = jax.tree.leaves(before[0])
    if len(leaves) != 1:
        got = f"{len(leaves)} arrays"
        raise ConfigError(f"{name}.reset gives an observation that is not one array", got=got, expected="one")
    return Layout(int(leaves[0].size), step.success is not None)


def _require_same(what: str, old: PyTree, new: PyTree) -> None:
    expected, found = _types(old), _types(new)
    for path in [*expected, *found]:
        if expected.get(path) != found.get(path):
            raise ConfigError(
                f"{what}{path}",
                got=found.get(path, "nothing"),
                expected=f"{expected.get(path, 'nothing')}, as reset gives it",
            )


def _types(tree: PyTree) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}


def flat(observation: Any) -> jax.Array:
    """Returns an observation as a network takes it, float32[observation_size]."""
    (leaf,) = jax.tree.leaves(observation)
    return jnp.ravel(leaf).astype(jnp.float32)
