"""Tasks whose initial parameters are worth learning: few-shot sinusoids, and reaching a goal by policy gradients.

Both are families. A few steps adapt parameters that are good for the whole family to a single task.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lobench import ConfigError, Task, TaskFamily, configurable

__all__ = ["PointGoals", "Sinusoids"]

Params = dict[str, jax.Array]


def _init_layers(key: jax.Array, widths: Sequence[int]) -> Params:
    """Returns `w0`, `b0`, `w1`, ...; weights normal with variance 2 / fan_in, biases zero."""
    params: Params = {}
    for layer, (fan_in, width) in enumerate(itertools.pairwise(widths)):
        key, layer_key = jax.random.split(key)
        scale = math.sqrt(2 / fan_in)
        params[f"w{layer}"] = scale * jax.random.normal(layer_key, (fan_in, width), jnp.float32)
        params[f"b{layer}"] = jnp.zeros(width, jnp.float32)
    return params


def _apply_layers(params: Params, x: jax.Array, activation: Any) -> jax.Array:
    last_layer = sum(name.startswith("w") for name in params) - 1
    for layer in range(last_layer):
        x = activation(x @ params[f"w{layer}"] + params[f"b{layer}"])
    return x @ params[f"w{last_layer}"] + params[f"b{last_layer}"]


def _checked_integer(setting: str, value: int, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ConfigError(setting, got=repr(value), expected=f"an integer >= {lowest}")
    return value


class _Sinusoid(Task):
    """One sinusoid: its shots are trained on, and evaluations are over the whole range."""

    def __init__(self, cfg: dict[str, jax.Array], widths: Sequence[int]) -> None:
        self._cfg, self._widths = cfg, widths

    def init(self, key: jax.Array) -> Params:
        return _init_layers(key, self._widths)

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        return self._error(params, self._cfg["x"])

    def eval_loss_with_aux(
        self, params: Any, state: Any, key: jax.Array, data: Any
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        return self._error(params, jnp.linspace(-5.0, 5.0, 101)), {}

    def _error(self, params: Params, x: jax.Array) -> jax.Array:
        target = self._cfg["amplitude"] * jnp.sin(x - self._cfg["phase"])
        return jnp.mean((_apply_layers(params, x[:, None], jax.nn.relu)[:, 0] - target) ** 2)


@configurable
class Sinusoids(TaskFamily):
    """Regression of `amplitude sin(x - phase)` from a few points.

    Amplitudes are uniform in [0.1, 5], phases in [0, pi], points in [-5, 5]. Training uses the same `num_shots` points
    at every step; an evaluation is the mean squared error on 101 points from -5 to 5.

    Args:
      num_shots: Number of points.
      hidden_sizes: Hidden layers of the network, with ReLU.
    Source: Finn et al. 2017 (arXiv 1703.03400), section 5.1.
    """

    def __init__(self, *, num_shots: int = 10, hidden_sizes: tuple[int, ...] = (40, 40)) -> None:
        self._num_shots = _checked_integer("Sinusoids.num_shots", num_shots, 1)
        self._widths = (1, *(_checked_integer("Sinusoids.hidden_sizes", size, 1) for size in hidden_sizes), 1)

    def sample(self, key: jax.Array) -> dict[str, jax.Array]:
        amplitude_key, phase_key, x_key = jax.random.split(key, 3)
        return {
            "amplitude": jax.random.uniform(amplitude_key, (), jnp.float32, 0.1, 5.0),
            "phase": jax.random.uniform(phase_key, (), jnp.float32, 0.0, math.pi),
            "x": jax.random.uniform(x_key, (self._num_shots,), jnp.float32, -5.0, 5.0),
        }

    def task_fn(self, cfg: Any) -> Task:
        return _Sinusoid(cfg, self._widths)


@dataclasses.dataclass(frozen=True)
class _PointGoal(Task):
    """One goal. A loss collects episodes with the parameters that it is given, and learns from those."""

    goal: jax.Array  # float32[2]
    widths: tuple[int, ...]
    num_episodes: int
    num_moves: int

    def init(self, key: jax.Array) -> Params:
        return {**_init_layers(key, self.widths), "log_std": jnp.full(2, -1.0, jnp.float32)}

    def loss(self, params: Any, key: jax.Array, data: Any) -> jax.Array:
        """Returns minus the mean return of new episodes.

        Its gradient is REINFORCE's. The baseline of a move is the mean return of all episodes from this move on.
        """
        positions, actions, rewards = self.collect(params, key)
        to_go = jnp.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
        advantage = to_go - to_go.mean(axis=0)
        surrogate = -(self.log_prob(params, positions, actions) * advantage).sum(axis=1).mean()
        return surrogate - jax.lax.stop_gradient(surrogate) - rewards.sum(axis=1).mean()

    def eval_loss_with_aux(
        self, params: Any, state: Any, key: jax.Array, data: Any
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Returns minus the return of the policy without its noise, and the final distance from the goal."""

        def move(position: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            return self._step(position, self._policy(params, position)[0])

        position, rewards = jax.lax.scan(move, jnp.zeros(2, jnp.float32), None, self.num_moves)
        return -rewards.sum(), {"distance": jnp.sqrt(jnp.sum((position - self.goal) ** 2))}

    def _policy(self, params: Params, position: jax.Array) -> tuple[jax.Array, jax.Array]:
        layers = {name: leaf for name, leaf in params.items() if name != "log_std"}
        return _apply_layers(layers, position, jnp.tanh), params["log_std"]

    def _step(self, position: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        position = position + 0.1 * jnp.clip(action, -1.0, 1.0)
        return position, -jnp.sum((position - self.goal) ** 2)

    def log_prob(self, params: Params, positions: jax.Array, actions: jax.Array) -> jax.Array:
        """Returns the log density of actions from `collect`, up to a constant, float32[episodes, moves]."""
        mean, log_std = self._policy(params, positions)
        return (-0.5 * ((actions - mean) / jnp.exp(log_std)) ** 2 - log_std).sum(axis=-1)

    def collect(self, params: Params, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns positions and actions float32[episodes, moves, 2] and rewards float32[episodes, moves].

        No gradient flows through the environment.
        """
        params = jax.lax.stop_gradient(params)

        def episode(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            def move(position: jax.Array, noise: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
                mean, log_std = self._policy(params, position)
                action = mean + jnp.exp(log_std) * noise
                new_position, reward = self._step(position, action)
                return new_position, (position, action, reward)

            noise = jax.random.normal(key, (self.num_moves, 2), jnp.float32)
            _, (positions, actions, rewards) = jax.lax.scan(move, jnp.zeros(2, jnp.float32), noise)
            return positions, actions, rewards

        return jax.vmap(episode)(jax.random.split(key, self.num_episodes))


@configurable
class PointGoals(TaskFamily):
    """Navigation of a point in the plane to a hidden goal, by rewards of minus the squared distance.

    A step of inner training collects `num_episodes` episodes with the present policy, and takes a step along its policy
    gradient. Goals are uniform in [-0.5, 0.5] x [-0.5, 0.5]; a move is at most 0.1 in each direction. Evaluations
    report `loss`, minus the return without the policy's noise, and `distance`.

    Args:
      num_episodes, num_moves: Number of episodes in a step, and of moves in an episode.
      hidden_sizes: Hidden layers of the policy, with tanh. It gives the mean of a normal action with a learned
        deviation.
    Source: the 2D navigation of Finn et al. 2017 (arXiv 1703.03400), section 5.3, with shorter episodes.
    """

    metric_directions: Mapping[str, str] = types.MappingProxyType({"distance": "min"})

    def __init__(
        self, *, num_episodes: int = 20, num_moves: int = 10, hidden_sizes: tuple[int, ...] = (16, 16)
    ) -> None:
        self._num_episodes = _checked_integer("PointGoals.num_episodes", num_episodes, 2)
        self._num_moves = _checked_integer("PointGoals.num_moves", num_moves, 1)
        self._widths = (2, *(_checked_integer("PointGoals.hidden_sizes", size, 1) for size in hidden_sizes), 2)

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (2,), jnp.float32, -0.5, 0.5)

    def task_fn(self, cfg: Any) -> Task:
        return _PointGoal(cfg, self._widths, self._num_episodes, self._num_moves)
