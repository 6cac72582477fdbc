"""Proximal policy optimization as an inner task: an inner step is the update of one minibatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch
from lobench.inner.tasks import arguments
from lobench.inner.tasks.control.agent import ControlTask, Experience
from lobench.inner.tasks.control.processes import PolicyStep, keys_of_steps
from lobench.inner.tasks.control.returns import advantages
from lobench.inner.tasks.measured import Aux
from lobench.inner.vmap_periodic import compute_when_due

__all__ = ["PPO"]

_SMALLEST_DEVIATION = 1e-8


class _Lesson(NamedTuple):
    """Training data of a rollout, leaves [num_steps, num_envs, ...]. Without a cell the two axes are merged.

    Attributes:
      memory: Memory of the policy before the first step, leaves [num_envs, ...].
    """

    decision: PolicyStep
    advantage: jax.Array
    memory: PyTree


class _State(NamedTuple):
    """Model state of PPO.

    Attributes:
      experience: State of processes and normalization.
      lesson: Training data of the rollout.
      order: int32[epochs, examples], order of the examples in each epoch.
      step: int32[], number of inner steps so far.
    """

    experience: Experience
    lesson: _Lesson
    order: jax.Array
    step: jax.Array


@configurable
@dataclass(frozen=True, kw_only=True, eq=False)
class PPO(ControlTask):
    """Proximal policy optimization, with clipped surrogate, clipped value loss and entropy bonus.

    Every `epochs x minibatches` inner steps, `num_envs` processes play `num_steps` steps each with the current policy.
    An inner step trains on one minibatch of them. An evaluation plays new episodes. Its loss is the best possible
    return minus the mean return, and it has the metrics `return`, `success` and `solved`. Metrics of training batches
    (`Case.log_every`, `Case.eval_batches = 0`) have the same names and cover the training's own episodes. The defaults
    are purejaxrl's. Source: Schulman et al. 2017 (arXiv 1707.06347); Lu et al. 2022 (purejaxrl's ppo.py).

    Attributes:
      env: Environment, such as @CartPole(), @Pendulum(), @Catch(), @ReachGoals(), @GymnaxEnvironment(). None: CartPole.
      num_envs: Number of processes. The draws of a process do not depend on it.
      num_steps: Number of steps of each process in a rollout.
      epochs, minibatches: Number of passes over a rollout, and number of minibatches per pass.
      hidden_sizes, activation: Layers of actor and critic.
      shared: Whether actor and critic share their layers.
      cell: "gru" or "lstm" for a policy with memory, whose minibatches are whole processes. None: no memory.
      discount, trace: Decay of rewards, and lambda of generalized advantage estimation.
      clip: Change of probability ratios, and of values, beyond which their gradient is zero.
      clip_values: Whether the value loss is clipped too.
      value_weight, entropy_weight: Weights of the value loss and the entropy bonus.
      normalize_observations, normalize_rewards, normalize_advantages: Whether each of them is normalized.
      collection: Order in which a process plays several tasks: "cycle": one after another; "random"; "different":
        random, but never the same task twice in a row; "uniform": one after another, each process one task ahead of the
        process before, so that the processes are always spread evenly over the tasks.
      eval_episodes: Number of new episodes per evaluation batch.
      greedy_evaluation: Whether evaluations take the most likely action.
      solved_at, solved_episodes: `solved` is 1 once `solved_episodes` consecutive training episodes had a return of at
        least `solved_at`. None: that of the environment.
      film_steps: Number of frames of the episode shown in the report. 0: no film.
    """

    num_steps: int | None = 128
    epochs: int = 4
    minibatches: int = 4
    trace: float = 0.95
    clip: float = 0.2
    clip_values: bool = True
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    normalize_advantages: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for setting in ("epochs", "minibatches"):
            arguments.integer("PPO", setting, getattr(self, setting))
        for setting in ("trace", "clip", "value_weight", "entropy_weight"):
            arguments.number("PPO", setting, getattr(self, setting))
        if self._num_examples % self.minibatches:
            unit = "processes: a memory learns from whole ones" if self.cell else "steps of a rollout"
            expected = f"a divisor of {self._num_examples}, the {unit}"
            raise ConfigError("PPO.minibatches", got=str(self.minibatches), expected=expected)

    @property
    def _num_examples(self) -> int:
        assert self.num_steps is not None
        return self.num_envs if self.cell else self.num_envs * self.num_steps

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, _State]:
        params_key, start_key = jax.random.split(key)
        params = self.init(params_key)
        experience = self.initial_experience(start_key)
        shapes = jax.eval_shape(self._collect_rollout, params, experience, key)
        _, lesson, order = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return params, _State(experience, lesson, order, jnp.int32(0))

    def loss_with_state_and_aux(
        self, params: PyTree, state: _State, key: jax.Array, data: Batch
    ) -> tuple[jax.Array, _State, Aux]:
        fixed_params = jax.lax.stop_gradient(params)

        def new_rollout() -> _State:
            return _State(*self._collect_rollout(fixed_params, state.experience, key), state.step)

        steps_per_rollout = self.epochs * self.minibatches
        new_state = compute_when_due(state.step % steps_per_rollout == 0, new_rollout, state)
        loss = self.minibatch_loss(params, self._minibatch(new_state, new_state.step % steps_per_rollout))
        return loss, new_state._replace(step=new_state.step + 1), self.metrics(new_state.experience)

    def _collect_rollout(
        self, params: PyTree, experience: Experience, key: jax.Array
    ) -> tuple[Experience, _Lesson, jax.Array]:
        """Plays a rollout. Returns the new experience, the rollout, and the order of its minibatches."""
        assert self.num_steps is not None
        play_key, order_key = jax.random.split(key)
        experience, (steps, memory) = self.collect(
            params, experience, keys_of_steps(play_key, self.num_steps, self.num_envs)
        )
        estimates = advantages(
            steps.reward,
            steps.decision.value,
            steps.next_value,
            steps.terminated,
            steps.cut,
            discount=self.discount,
            trace=self.trace,
        )
        lesson = _Lesson(steps.decision, estimates, memory)
        if not self.cell:
            lesson = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), lesson)
        # Ranks of random numbers, because a shuffle needs several sorts and a longer program.
        ranks = jax.random.bits(order_key, (self.epochs, self._num_examples))
        return experience, lesson, jnp.argsort(ranks, axis=-1).astype(jnp.int32)

    def _minibatch(self, state: _State, index: jax.Array) -> _Lesson:
        size = self._num_examples // self.minibatches
        epoch = state.order[index // self.minibatches]
        chosen_examples = jax.lax.dynamic_slice_in_dim(epoch, index % self.minibatches * size, size)
        if not self.cell:
            return jax.tree.map(lambda leaf: leaf[chosen_examples], state.lesson)
        lesson = jax.tree.map(lambda leaf: leaf[:, chosen_examples], state.lesson._replace(memory=()))
        return lesson._replace(memory=jax.tree.map(lambda leaf: leaf[chosen_examples], state.lesson.memory))

    def minibatch_loss(self, params: PyTree, lesson: _Lesson) -> jax.Array:
        """Returns the loss of a minibatch, float32[]."""
        actions = self._env.actions
        decision = lesson.decision
        output, values = self.process_runner.policy.apply_to_sequences(
            params, lesson.memory, decision.observation, decision.starts
        )
        advantage = lesson.advantage
        if self.normalize_advantages:
            advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + _SMALLEST_DEVIATION)
        ratio = jnp.exp(actions.log_prob(output, decision.action) - decision.log_prob)
        clipped_ratio = jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip)
        policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped_ratio * advantage))
        targets = decision.value + lesson.advantage
        errors = (values - targets) ** 2
        if self.clip_values:
            clipped_values = decision.value + jnp.clip(values - decision.value, -self.clip, self.clip)
            errors = jnp.maximum(errors, (clipped_values - targets) ** 2)
        entropy = jnp.mean(actions.entropy(output))
        return policy_loss + 0.5 * self.value_weight * jnp.mean(errors) - self.entropy_weight * entropy
