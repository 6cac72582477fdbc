"""Parallel environments ("processes"). The random draws of one do not depend on the number of environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.inner.optimizer import PyTree
from lobench.inner.tasks.control.environment import Environment, Step, flatten_observation
from lobench.inner.tasks.control.moments import Moments
from lobench.inner.tasks.control.policy import Policy

__all__ = [
    "COLLECTIONS",
    "Keys",
    "PolicyStep",
    "Process",
    "ProcessRunner",
    "Transition",
    "keys_of_steps",
    "split_first_step",
]

# Next task of a process: (key, process, number of its episodes, its previous task, number of tasks) -> int32[].
COLLECTIONS: Mapping[str, Callable[[jax.Array, jax.Array, jax.Array, jax.Array, int], jax.Array]] = {
    "cycle": lambda key, process, episode, before, num_tasks: episode % num_tasks,
    "random": lambda key, process, episode, before, num_tasks: jax.random.randint(key, (), 0, num_tasks),
    "different": lambda key, process, episode, before, num_tasks: (
        (before + jax.random.randint(key, (), 1, max(num_tasks, 2))) % num_tasks
    ),
    "uniform": lambda key, process, episode, before, num_tasks: (process + episode) % num_tasks,
}


class Process(NamedTuple):
    """State of the parallel environments between two steps. Every leaf has a leading axis [num_envs].

    Attributes:
      number: int32, index of the process.
      state: State of the environment.
      observation: float32[observation_size], as returned by the environment.
      memory: Memory of the policy.
      starts: bool, whether the observation is the first of its episode.
      task, episode: int32, index of the current task, and number of finished episodes.
      so_far, success: float32, return and success of the current episode so far.
      discounted: float32, sum of past rewards, each discounted by its age. Used to normalize rewards.
      last_return, last_success: float32, return and success of the last finished episode; 0 before the first.
    """

    number: jax.Array
    state: PyTree
    observation: jax.Array
    memory: PyTree
    starts: jax.Array
    task: jax.Array
    episode: jax.Array
    so_far: jax.Array
    success: jax.Array
    discounted: jax.Array
    last_return: jax.Array
    last_success: jax.Array


class PolicyStep(NamedTuple):
    """Observations and actions of the policy in one step of all environments. Leaves are [num_envs, ...].

    Attributes:
      observation: float32[observation_size], as seen by the policy.
      starts: bool, whether the observation is the first of its episode.
      action, log_prob, value: Action, its log probability, and the value of the observation.
    """

    observation: jax.Array
    starts: jax.Array
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array


class Transition(NamedTuple):
    """One step of all environments. Leaves are [num_envs, ...]; in a rollout [num_steps, num_envs, ...].

    Attributes:
      decision: The policy's observation and action.
      next_value: float32, value of the observation after the step, before any reset.
      reward: float32.
      terminated: bool, whether the episode is over and no reward could follow.
      cut: bool, whether the next step is not a continuation: terminated, truncated, or a life lost.
      done: bool, whether the episode is over.
      discounted: float32, see `Process`.
      final_return, final_success: float32, return and success of the episode up to this step.
    """

    decision: PolicyStep
    next_value: jax.Array
    reward: jax.Array
    terminated: jax.Array
    cut: jax.Array
    done: jax.Array
    discounted: jax.Array
    final_return: jax.Array
    final_success: jax.Array


class Keys(NamedTuple):
    """Random keys of each process for a step, leaves [num_envs]."""

    act: jax.Array
    step: jax.Array
    reset: jax.Array
    task: jax.Array


def keys_of_steps(key: jax.Array, num_steps: int, num_processes: int) -> Keys:
    """Returns keys of steps, leaves [num_steps, num_processes]. Those of a process do not depend on the number."""
    process_keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(num_processes))
    keys = jax.vmap(lambda key: jax.random.split(key, (num_steps, 4)), out_axes=2)(process_keys)
    return Keys(*(keys[:, stream_index] for stream_index in range(4)))


def split_first_step(keys: Keys) -> tuple[Keys, Keys]:
    """Splits keys into the first step's keys and the keys of all later steps."""
    return jax.tree.map(lambda leaf: leaf[0], keys), jax.tree.map(lambda leaf: leaf[1:], keys)


@dataclass(frozen=True)
class ProcessRunner:
    """Environment and policy that processes play with.

    Attributes:
      env, policy: Environment and policy.
      collection: Order of tasks, one of COLLECTIONS.
      discount: Discount of `Process.discounted`.
    """

    env: Environment
    policy: Policy
    collection: str
    discount: float

    def start_processes(self, keys: Keys, episode: jax.Array | int = 0) -> Process:
        """Returns processes at the start of their first episodes.

        Args:
          keys: Keys of one step.
          episode: Number of episodes that count as finished.
        """
        first_episode = jnp.asarray(episode, jnp.int32)

        def start_process(index: jax.Array, memory: PyTree, keys: Keys) -> Process:
            # The last task counts as the previous one.
            task = self._next_task(keys.task, index, first_episode, jnp.int32(self.env.num_tasks - 1))
            observation, state = self.env.reset(keys.reset, task)
            zeros = jnp.zeros((5,), jnp.float32)
            return Process(
                index, state, flatten_observation(observation), memory, jnp.bool_(True), task, first_episode, *zeros
            )

        num_processes = keys.act.shape[0]
        return jax.vmap(start_process)(
            jnp.arange(num_processes, dtype=jnp.int32), self.policy.memory(num_processes), keys
        )

    def step_processes(
        self, params: PyTree, moments: Moments | None, processes: Process, keys: Keys, *, greedy: bool = False
    ) -> tuple[Process, Transition]:
        """Makes one step of each process. Finished episodes are not restarted.

        Args:
          params: Parameters of the policy.
          moments: Moments that normalize observations. None: no normalization.
          processes: Processes before the step.
          keys: Keys of the step.
          greedy: Whether to take the most likely action.
        """
        actions = self.env.actions
        observation = _normalized(moments, processes.observation)
        memory, output, value = self.policy.apply(params, processes.memory, observation, processes.starts)
        action = actions.mode(output) if greedy else jax.vmap(actions.sample)(keys.act, output)

        def step_environment(key: jax.Array, state: PyTree, action: jax.Array) -> Step:
            return self.env.step(key, state, actions.for_environment(action))

        result = jax.vmap(step_environment)(keys.step, processes.state, action)
        new_processes = processes._replace(
            state=result.state,
            observation=jax.vmap(flatten_observation)(result.observation),
            memory=memory,
            starts=jnp.zeros_like(processes.starts),
            so_far=processes.so_far + result.reward,
            success=processes.success
            if result.success is None
            else jnp.maximum(processes.success, result.success.astype(jnp.float32)),
            discounted=self.discount * processes.discounted + result.reward,
        )
        next_value = self.policy.apply(
            params, memory, _normalized(moments, new_processes.observation), new_processes.starts
        )[2]
        is_done = result.terminated | result.truncated
        is_cut = is_done if result.life_lost is None else is_done | result.life_lost
        transition = Transition(
            decision=PolicyStep(observation, processes.starts, action, actions.log_prob(output, action), value),
            next_value=next_value,
            reward=result.reward.astype(jnp.float32),
            terminated=result.terminated,
            cut=is_cut,
            done=is_done,
            discounted=new_processes.discounted,
            final_return=new_processes.so_far,
            final_success=new_processes.success,
        )
        return new_processes, transition

    def restart_finished(self, processes: Process, done: jax.Array, keys: Keys) -> Process:
        """Starts the next episode in each process whose episode is over."""

        def renew_process(process: Process, done: jax.Array, reset_key: jax.Array, task_key: jax.Array) -> Process:
            episode = process.episode + 1
            task = self._next_task(task_key, process.number, episode, process.task)
            observation, state = self.env.reset(reset_key, task)
            zero = jnp.float32(0.0)
            new_process = process._replace(
                state=state,
                observation=flatten_observation(observation),
                starts=jnp.bool_(True),
                task=task,
                episode=episode,
                so_far=zero,
                success=zero,
                discounted=zero,
                last_return=process.so_far,
                last_success=process.success,
            )
            return jax.tree.map(lambda new, old: jnp.where(done, new, old), new_process, process)

        return jax.vmap(renew_process)(processes, done, keys.reset, keys.task)

    def _next_task(self, key: jax.Array, index: jax.Array, episode: jax.Array, previous_task: jax.Array) -> jax.Array:
        if self.env.num_tasks == 1:
            return jnp.zeros((), jnp.int32)
        next_task = COLLECTIONS[self.collection](key, index, episode, previous_task, self.env.num_tasks)
        return next_task.astype(jnp.int32)


def _normalized(moments: Moments | None, observation: jax.Array) -> jax.Array:
    return observation if moments is None else moments.standardize(observation)
