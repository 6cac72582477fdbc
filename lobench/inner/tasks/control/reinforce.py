"""REINFORCE as an inner task. In an inner step each process plays one episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.number_checks import require_integer
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch
from lobench.inner.tasks.control.agent import ControlTask, Experience
from lobench.inner.tasks.control.processes import Transition, keys_of_steps, split_first_step
from lobench.inner.tasks.control.returns import returns_to_go
from lobench.inner.tasks.measured import Aux

__all__ = ["REINFORCE"]


class _State(NamedTuple):
    experience: Experience
    step: jax.Array  # int32[]: inner steps so far


@configurable
@dataclass(frozen=True, kw_only=True, eq=False)
class REINFORCE(ControlTask):
    """Policy gradient: log probabilities of actions, weighted by the returns that follow.

    In each inner step every process plays one episode from its start, of at most `num_steps` steps. The baseline of a
    return is the mean return of the other processes from the same step on, which keeps the gradient unbiased. The
    critic is not trained. Evaluations and metrics are those of PPO. Source: Williams 1992; Kool et al. 2019
    (leave-one-out).

    Attributes:
      env, hidden_sizes, activation, cell, discount, normalize_observations, normalize_rewards, collection,
        eval_episodes, greedy_evaluation, solved_at, solved_episodes, film_steps: As in PPO.
      num_envs: Number of processes, at least 2.
      num_steps: Number of steps after which an episode is cut; later rewards do not count. None: the time limit of the
        environment.
      shared: Whether actor and critic share their layers. False adds layers that are never trained.
    """

    num_envs: int = 8
    hidden_sizes: tuple[int, ...] = (32,)
    shared: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("REINFORCE.num_envs", self.num_envs, at_least=2)

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, _State]:
        params_key, start_key = jax.random.split(key)
        return self.init(params_key), _State(self.initial_experience(start_key), jnp.int32(0))

    def loss_with_state_and_aux(
        self, params: PyTree, state: _State, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, _State, Aux]:
        assert self.num_steps is not None
        first_keys, keys = split_first_step(keys_of_steps(key, self.num_steps + 1, self.num_envs))
        fresh_experience = state.experience._replace(
            processes=self.process_runner.start_processes(first_keys, state.step)
        )
        experience, (steps, memory) = self.collect(params, fresh_experience, keys)
        output, _ = self.process_runner.policy.apply_to_sequences(
            params, memory, steps.decision.observation, steps.decision.starts
        )
        is_first = jnp.cumsum(steps.done, axis=0) - steps.done == 0  # later episodes of the rollout do not count
        returns = returns_to_go(jnp.where(is_first, steps.reward, 0.0), discount=self.discount)
        mean_of_others = (jnp.sum(returns, axis=1, keepdims=True) - returns) / (self.num_envs - 1)
        log_probs = self._env.actions.log_prob(output, steps.decision.action)
        loss = -jnp.mean(jnp.where(is_first, log_probs * (returns - mean_of_others), 0.0))
        return loss, _State(experience, state.step + 1), self._metrics_of(experience, steps, is_first)

    def _metrics_of(self, experience: Experience, steps: Transition, is_first: jax.Array) -> Aux:
        is_last = is_first & jnp.concatenate([~is_first[1:], jnp.ones_like(is_first[:1])])
        mean_return, success = (
            jnp.mean(jnp.sum(jnp.where(is_last, values, 0.0), axis=0))
            for values in (steps.final_return, steps.final_success)
        )
        return self._episode_metrics(mean_return, success, experience)
