"""Base of PPO and REINFORCE: a policy, processes that play, and evaluation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.film import Scene
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch
from lobench.inner.tasks import arguments
from lobench.inner.tasks.control.cart_pole import CartPole
from lobench.inner.tasks.control.environment import Environment, Layout, layout_of
from lobench.inner.tasks.control.foreign import as_environment
from lobench.inner.tasks.control.moments import Moments, initial_moments
from lobench.inner.tasks.control.policy import Policy
from lobench.inner.tasks.control.processes import (
    COLLECTIONS,
    Keys,
    Process,
    ProcessRunner,
    Transition,
    keys_of_steps,
    split_first_step,
)
from lobench.inner.tasks.control.returns import longest_streak
from lobench.inner.tasks.measured import Aux, MeasuredTask
from lobench.inner.tasks.networks import ACTIVATIONS
from lobench.inner.tasks.objectives import relative_loss
from lobench.inner.tasks.recurrent import CELLS

__all__ = ["ControlTask", "Experience", "Rollout"]


class Experience(NamedTuple):
    """State of a training besides its parameters.

    Attributes:
      processes: State of the parallel environments between two steps.
      observations, rewards: Moments for normalizing observations and rewards; None without normalization.
      streak: int32[], number of consecutive good episodes so far.
      solved: float32[], 1 after enough consecutive good episodes, else 0.
    """

    processes: Process
    observations: Moments | None
    rewards: Moments | None
    streak: jax.Array
    solved: jax.Array


class Rollout(NamedTuple):
    """Steps of all processes, leaves [num_steps, num_envs, ...], and the policy's memory before the first step."""

    steps: Transition
    memory: PyTree


@dataclass(frozen=True, kw_only=True, eq=False)
class ControlTask(MeasuredTask):
    """A policy that learns to act. Subclasses document the fields, each of which gin binds by its name."""

    metric_directions = {"return": "max", "success": "max", "solved": "max"}  # noqa: RUF012  (of the class)

    env: Any = None
    num_envs: int = 4
    num_steps: int | None = None
    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    shared: bool = False
    cell: str | None = None
    discount: float = 0.99
    normalize_observations: bool = False
    normalize_rewards: bool = False
    collection: str = "uniform"
    eval_episodes: int = 10
    greedy_evaluation: bool = False
    solved_at: float | None = None
    solved_episodes: int = 100
    film_steps: int = 0

    def __post_init__(self) -> None:
        name = type(self).__name__
        set_field = functools.partial(object.__setattr__, self)
        set_field("env", as_environment(CartPole() if self.env is None else self.env, f"{name}.env"))
        set_field("hidden_sizes", arguments.sizes(self, "hidden_sizes", self.hidden_sizes))
        if self.num_steps is None:
            set_field("num_steps", self._env.time_limit)
        for setting in ("num_envs", "num_steps", "eval_episodes", "solved_episodes"):
            arguments.integer(self, setting, getattr(self, setting))
        arguments.integer(self, "film_steps", self.film_steps, at_least=0)
        arguments.choice(self, "activation", self.activation, ACTIVATIONS)
        arguments.choice(self, "cell", self.cell, (None, *CELLS))
        arguments.choice(self, "collection", self.collection, COLLECTIONS)
        arguments.number(self, "discount", self.discount)
        if self.film_steps and self._env.shapes:
            env = self._env
            scene = Scene(title=type(env).__name__, shapes=env.shapes, frame_seconds=env.frame_seconds)
            set_field("scene", scene)

    @property
    def _env(self) -> Environment:
        env: Environment = self.env
        return env

    @functools.cached_property
    def _layout(self) -> Layout:
        return layout_of(self._env)

    @functools.cached_property
    def process_runner(self) -> ProcessRunner:
        """Environment and policy of the processes."""
        policy = Policy(
            self._env.actions,
            self._layout.observation_size,
            hidden_sizes=self.hidden_sizes,
            activation=self.activation,
            shares_trunk=self.shared,
            cell=self.cell,
        )
        return ProcessRunner(self._env, policy, self.collection, self.discount)

    def init(self, key: jax.Array) -> PyTree:
        return self.process_runner.policy.init(key)

    def initial_experience(self, key: jax.Array) -> Experience:
        """Returns the experience before the first step."""
        return Experience(
            self.process_runner.start_processes(split_first_step(keys_of_steps(key, 1, self.num_envs))[0]),
            initial_moments(self._layout.observation_size) if self.normalize_observations else None,
            initial_moments(1) if self.normalize_rewards else None,
            jnp.int32(0),
            jnp.float32(0.0),
        )

    def collect(self, params: PyTree, experience: Experience, keys: Keys) -> tuple[Experience, Rollout]:
        """Plays one step of all processes per row of keys, and normalizes rewards if `normalize_rewards` is set.

        If a reward is not finite, all of them become NaN, so that the training diverges.
        """
        params = jax.lax.stop_gradient(params)

        def step(process: Process, keys: Keys) -> tuple[Process, tuple[Transition, jax.Array]]:
            new_process, transition = self.process_runner.step_processes(params, experience.observations, process, keys)
            return self.process_runner.restart_finished(new_process, transition.done, keys), (
                transition,
                process.observation,
            )

        processes, (steps, rows) = jax.lax.scan(step, experience.processes, keys)
        raw_rewards = steps.reward
        observations = experience.observations
        rewards = experience.rewards
        if observations is not None:
            observations = observations.with_rows(rows.reshape(-1, rows.shape[-1]))
        if rewards is not None:
            rewards = rewards.with_rows(steps.discounted.reshape(-1, 1))
            steps = steps._replace(reward=rewards.scale(raw_rewards))
        steps = steps._replace(reward=jnp.where(jnp.isfinite(raw_rewards).all(), steps.reward, jnp.nan))
        experience = self._count_streak(experience, steps)
        new_experience = experience._replace(processes=processes, observations=observations, rewards=rewards)
        return new_experience, Rollout(steps, experience.processes.memory)

    def _count_streak(self, experience: Experience, steps: Transition) -> Experience:
        if self._solved_return is None:
            return experience
        is_good = (steps.final_return >= self._solved_return).reshape(-1)
        longest, streak = longest_streak(experience.streak, steps.done.reshape(-1), is_good)
        solved = jnp.maximum(experience.solved, (longest >= self.solved_episodes).astype(jnp.float32))
        return experience._replace(streak=streak, solved=solved)

    @property
    def _solved_return(self) -> float | None:
        return self._env.solved_at if self.solved_at is None else self.solved_at

    def metrics(self, experience: Experience) -> Aux:
        """Returns metrics of the training's own episodes: means over the last episode of each process.

        Processes without a finished episode are left out. If no process has one, the current episodes count.
        """
        processes = experience.processes
        has_finished = processes.episode > 0
        num_finished = jnp.sum(has_finished)

        def mean(last_values: jax.Array, so_far: jax.Array) -> jax.Array:
            mean_finished = jnp.sum(jnp.where(has_finished, last_values, 0.0)) / jnp.maximum(num_finished, 1)
            return jnp.where(num_finished > 0, mean_finished, jnp.mean(so_far))

        successes = mean(processes.last_success, processes.success)
        return self._episode_metrics(mean(processes.last_return, processes.so_far), successes, experience)

    def _episode_metrics(self, mean_return: jax.Array, success: jax.Array, experience: Experience) -> Aux:
        aux = {"return": mean_return}
        if self._layout.has_success:
            aux["success"] = success
        if self._solved_return is not None:
            aux["solved"] = experience.solved
        return aux

    def experience_of(self, state: PyTree) -> Experience:
        """Returns the part of a model state that all subclasses have."""
        return state.experience

    def eval_loss_with_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> tuple[jax.Array, Aux]:
        """Plays `eval_episodes` new episodes. The loss is the best possible return minus the mean return.

        If the best return is unknown, the loss is minus the mean return. Tasks are played in turn, for any
        `collection`.
        """
        experience = self.experience_of(state)
        env = self._env
        eval_runner = ProcessRunner(env, self.process_runner.policy, "uniform", self.discount)
        first_keys, keys = split_first_step(keys_of_steps(key, env.time_limit + 1, self.eval_episodes))

        def goes_on(carry: tuple[jax.Array, jax.Array, Process]) -> jax.Array:
            step, is_over, _ = carry
            return ~jnp.all(is_over) & (step < env.time_limit)

        def play(carry: tuple[jax.Array, jax.Array, Process]) -> tuple[jax.Array, jax.Array, Process]:
            step, is_over, process = carry
            step_keys = jax.tree.map(lambda leaf: leaf[step], keys)
            new_process, transition = eval_runner.step_processes(
                params, experience.observations, process, step_keys, greedy=self.greedy_evaluation
            )
            return step + 1, is_over | transition.done, _select(is_over, process, new_process)

        initial_processes = eval_runner.start_processes(first_keys)
        _, _, processes = jax.lax.while_loop(
            goes_on, play, (jnp.int32(0), jnp.zeros_like(initial_processes.starts), initial_processes)
        )
        mean_return = jnp.mean(processes.so_far)
        success = jnp.mean(processes.success)
        best_return = env.best_return or 0.0
        return best_return - mean_return, self._episode_metrics(mean_return, success, experience)

    def normalizer(self, loss: jax.Array) -> jax.Array:
        """Returns the loss divided by the loss of random actions, at most 2; unchanged if that loss is unknown."""
        env = self._env
        if env.best_return is None or env.random_return is None:
            return loss
        return relative_loss(loss, env.best_return - env.random_return)

    def film(self, params: PyTree, state: PyTree, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the frames of an episode, float32[film_steps + 1, num_shapes, 4], and the number of valid frames."""
        experience = self.experience_of(state)
        env = self._env
        first_keys, keys = split_first_step(keys_of_steps(key, self.film_steps + 1, 1))
        initial_processes = self.process_runner.start_processes(first_keys)

        def play(carry: tuple[jax.Array, Process], keys: Keys) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            is_over, process = carry
            greedy = self.greedy_evaluation
            new_process, transition = self.process_runner.step_processes(
                params, experience.observations, process, keys, greedy=greedy
            )
            new_process = _select(is_over, process, new_process)
            return (is_over | transition.done, new_process), (jax.vmap(env.frame)(new_process.state)[0], ~is_over[0])

        _, (frames, are_valid) = jax.lax.scan(play, (jnp.zeros_like(initial_processes.starts), initial_processes), keys)
        return jnp.concatenate([jax.vmap(env.frame)(initial_processes.state), frames]), 1 + jnp.sum(are_valid)


def _select(flags: jax.Array, if_true: Process, if_false: Process) -> Process:
    def select_leaf(true_leaf: jax.Array, false_leaf: jax.Array) -> jax.Array:
        return jnp.where(flags.reshape(-1, *(1,) * (true_leaf.ndim - 1)), true_leaf, false_leaf)

    return jax.tree.map(select_leaf, if_true, if_false)
