"""Wrappers around environments of gymnax and of users."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lobench.core.errors import ConfigError, suggestion
from lobench.inner.optimizer import PyTree
from lobench.inner.tasks.control.environment import Environment, Step, environment
from lobench.inner.tasks.control.spaces import Actions, Box, Discrete

__all__ = ["GymnaxEnvironment", "as_environment"]

_NEVER = 2**30


class _State(NamedTuple):
    own: PyTree
    time: jax.Array  # int32[]


@environment
class GymnaxEnvironment(Environment):
    """An environment of gymnax, by its name, or an object that has its methods.

    Older versions set `done` both when time is up and when the episode is over. Therefore the limit is removed from
    their parameters and time is counted here, so that termination and truncation are distinct.

    Args:
      name: Name such as "Acrobot-v1"; needs the package gymnax: pip install 'lobench[gymnax]'.
      env: Environment object, in place of a name.
      params: Parameters of the environment. None: its `default_params`.
    """

    def __init__(self, *, name: str | None = None, env: Any = None, params: Any = None) -> None:
        if (name is None) == (env is None):
            raise ConfigError("GymnaxEnvironment needs a name or an object", expected="one of name and env")
        default = getattr(env, "default_params", None)
        if name is not None:
            env, default = _from_gymnax(name)
        self._env = env
        params = default if params is None else params
        self.time_limit = int(getattr(params, "max_steps_in_episode", self.time_limit))
        if not hasattr(self._env, "is_truncated") and dataclasses.is_dataclass(params):
            fields = {field.name for field in dataclasses.fields(params)}
            limit = {"max_steps_in_episode": _NEVER} if "max_steps_in_episode" in fields else {}
            params = dataclasses.replace(params, **limit)  # type: ignore[type-var]  # an instance, not the class
        self._params = params
        self.actions = _action_space(self._env.action_space(params))

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, _State]:
        observation, env_state = self._env.reset_env(key, self._params)
        return observation, _State(_strongly_typed(env_state), jnp.int32(0))

    def step(self, key: jax.Array, state: _State, action: jax.Array) -> Step:
        observation, env_state, reward, is_done, *_ = self._env.step_env(key, state.own, action, self._params)
        new_state = _State(_strongly_typed(env_state), state.time + 1)
        truncated = new_state.time >= self.time_limit
        return Step(observation, new_state, jnp.asarray(reward, jnp.float32), jnp.asarray(is_done, bool), truncated)


class _WrappedEnvironment(Environment):
    """Adapter of a user's environment. If the environment has no tasks, its `reset` is called without one."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        for name in ("actions", "num_tasks", "time_limit", "best_return", "random_return", "solved_at"):
            setattr(self, name, getattr(wrapped, name, getattr(Environment, name, None)))

    def reset(self, key: jax.Array, task: jax.Array) -> tuple[jax.Array, PyTree]:
        return self._wrapped.reset(key, task) if self.num_tasks > 1 else self._wrapped.reset(key)

    def step(self, key: jax.Array, state: PyTree, action: jax.Array) -> Step:
        result = self._wrapped.step(key, state, action)
        return result if isinstance(result, Step) else Step(*result)


def as_environment(candidate: Any, where: str) -> Environment:
    """Returns an environment unchanged, or wraps an object with the methods of an environment or of gymnax's.

    Args:
      candidate: Environment, or object to wrap.
      where: Setting with the candidate, for error messages, such as `PPO.env`.
    Raises:
      ConfigError: The candidate does not have the methods of an environment.
    """

    def has_methods(*names: str) -> bool:
        return not isinstance(candidate, type) and all(callable(getattr(candidate, name, None)) for name in names)

    if isinstance(candidate, Environment):
        return candidate
    if has_methods("reset_env", "step_env"):
        return GymnaxEnvironment(env=candidate)
    if has_methods("reset", "step") and isinstance(getattr(candidate, "actions", None), Discrete | Box):
        return _WrappedEnvironment(candidate)
    raise ConfigError(
        f"{where} is no environment",
        got=repr(candidate) if isinstance(candidate, str) else type(candidate).__name__,
        expected="an object with actions (Discrete or Box), reset(key) and step(key, state, action), or one of gymnax",
        next_step="does gin bind `@Name` where `@Name()` is meant?",
    )


def _from_gymnax(name: str) -> tuple[Any, Any]:
    try:
        import gymnax  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ConfigError(
            f"the environment {name!r} is one of gymnax, which is not installed",
            where="GymnaxEnvironment.name",
            next_step="pip install 'lobench[gymnax]'",
        ) from error
    known_names = list(getattr(gymnax, "registered_envs", ()))
    if known_names and name not in known_names:
        raise ConfigError(
            f"gymnax knows no environment {name!r}",
            where="GymnaxEnvironment.name",
            expected=f"one of {', '.join(known_names)}",
            next_step=suggestion(name, known_names),
        )
    env, params = gymnax.make(name)
    return env, params


def _action_space(space: Any) -> Actions:
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    low = np.min(space.low)
    high = np.max(space.high)
    if np.any(np.asarray(space.low) != low) or np.any(np.asarray(space.high) != high):
        raise ConfigError(
            "an action space has bounds of its own for each component", got=repr(space), expected="the same for all"
        )
    return Box(tuple(int(size) for size in space.shape), float(low), float(high))


def _strongly_typed(tree: PyTree) -> PyTree:
    """Returns arrays in place of Python numbers, whose types would change at the first step."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), tree)
