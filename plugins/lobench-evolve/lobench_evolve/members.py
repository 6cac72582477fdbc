"""Program that trains many members of a population together and returns their fitness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lobench import ArrayDataset, Case, ConfigError, SampledDataset, Task, TaskFamily
from lobench.extend import as_learned_optimizer, as_stepper, as_task, compiler_options
from lobench_evolve.settings import FitnessSettings
from lobench_evolve.weights import Weights, key_of

__all__ = ["MemberProgram"]


class MemberProgram:
    """Compiled program that computes the fitness of a fixed number of members on one case.

    A member is evaluated on `Case.num_seeds` tasks of a family (otherwise: initial parameters and batches) that are
    drawn from its seed. Its fitness is the mean over them.

    Args:
      case: Case with its task and learned optimizer.
      where: Name of the case in error messages.
      settings: Definition of the fitness.
      weights: Conversion of vectors to theta.
    Raises:
      ConfigError: The data come from a Python iterator, the task does not have the split to evaluate, or the case does
        not evaluate the final loss.
    """

    def __init__(self, case: Case, where: str, settings: FitnessSettings, weights: Weights) -> None:
        self._case = case
        self._settings = settings
        self._weights = weights
        self._task = as_task(case.task)
        self._optimizer = as_learned_optimizer(case.learned_optimizer)
        self._train_data = _dataset(self._task, "train", where)
        if settings.fitness == "final" and not case.eval_batches:
            raise ConfigError(
                "Evolve.fitness = 'final': Case.eval_batches = 0 evaluates nothing",
                where=where,
                next_step="bind Case.eval_batches >= 1, or Evolve.fitness = 'curve'",
            )
        if case.sessions != "apart":
            raise ConfigError(
                f"Case.sessions = {case.sessions!r}: an evolution trains every replica apart",
                where=where,
                next_step="leave it out here; the evolved optimizer can be evaluated with it",
            )
        self._eval_data = _dataset(self._task, settings.split, where) if settings.fitness == "final" else None
        # Arrays are arguments instead of constants of the program, for fast compilation.
        self._arrays = [dataset.arrays if isinstance(dataset, ArrayDataset) else None for dataset in self._datasets]
        self._program = jax.jit(self._fitnesses, compiler_options=compiler_options())

    @property
    def _datasets(self) -> tuple[Any, Any]:
        return self._train_data, self._eval_data

    def run(self, thetas: jax.Array, seeds: Sequence[int]) -> np.ndarray:
        """Returns the fitness of members, float32[members]; higher is better.

        Args:
          thetas: float32[members, num_weights].
          seeds: 64-bit seeds, one per member.
        """
        keys = jnp.stack([key_of(seed) for seed in seeds])
        return np.asarray(self._program(thetas, keys, self._arrays))

    # Traced functions:

    def _fitnesses(self, thetas: jax.Array, keys: jax.Array, arrays: Any) -> jax.Array:
        return _map_members(lambda flat, key: self._fitness(flat, key, arrays), thetas, keys)

    def _fitness(self, theta_vector: jax.Array, key: jax.Array, arrays: Any) -> jax.Array:
        theta = self._weights.unravel(theta_vector)
        keys = jax.random.split(key, self._case.num_seeds)
        return -_map_members(lambda key: self._loss(theta, key, arrays), keys).mean()

    def _loss(self, theta: Any, key: jax.Array, arrays: Any) -> jax.Array:
        """Trains once, and returns the loss that defines the fitness, float32[]."""
        task_key, init_key, data_key, eval_key, optimizer_key = jax.random.split(key, 5)
        num_steps = self._case.num_inner_steps
        task = self._task.task_fn(self._task.sample(task_key)) if isinstance(self._task, TaskFamily) else self._task
        stepper = as_stepper(self._optimizer.opt_fn(theta, num_steps), num_steps)
        params, model_state = task.init_with_state(init_key)
        params = stepper.initial_params(params)
        opt_state = stepper.init(params, model_state, optimizer_key)

        def step(carry: Any, index: jax.Array) -> tuple[Any, jax.Array]:
            opt_state, params, model_state = carry
            batch_key, loss_key, update_key = jax.random.split(jax.random.fold_in(data_key, index), 3)
            batch = _sample(self._train_data, arrays[0], batch_key)

            def loss_fn(params: Any) -> tuple[jax.Array, Any]:
                loss, state, _ = task.loss_with_state_and_aux(params, model_state, loss_key, batch)
                return loss, state

            (loss, new_state), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
            value_fn = lambda eval_params: loss_fn(eval_params)[0]  # noqa: E731
            carry = stepper.step(opt_state, params, new_state, grads, loss, update_key, value_fn)
            return carry, jnp.asarray(loss, jnp.float32)

        carry, losses = jax.lax.scan(step, (opt_state, params, model_state), jnp.arange(num_steps))
        if self._settings.fitness == "final":
            opt_state, params, model_state = carry
            eval_params = stepper.eval_params(opt_state, params)
            return self._final_loss(task, eval_params, model_state, eval_key, arrays[1])
        return self._curve_loss(losses)

    def _final_loss(self, task: Task, params: Any, model_state: Any, key: jax.Array, arrays: Any) -> jax.Array:
        def loss_of_batch(key: jax.Array) -> jax.Array:
            data_key, loss_key = jax.random.split(key)
            data = _sample(self._eval_data, arrays, data_key)
            return jnp.asarray(task.eval_loss_with_aux(params, model_state, loss_key, data)[0], jnp.float32)

        num_batches = self._case.eval_batches if self._eval_data is not None else 1
        return self._clipped(jax.vmap(loss_of_batch)(jax.random.split(key, num_batches)).mean())

    def _curve_loss(self, losses: jax.Array) -> jax.Array:
        """Returns the mean loss, with an additional weight on the end of the training."""
        losses = self._clipped(losses)
        settings = self._settings
        num_last = max(round(settings.last_fraction * self._case.num_inner_steps), 1)
        return (1 - settings.last_weight) * losses.mean() + settings.last_weight * losses[-num_last:].mean()

    def _clipped(self, losses: jax.Array) -> jax.Array:
        clip = self._settings.loss_clip
        return jnp.minimum(jnp.where(jnp.isfinite(losses), losses, clip), clip) if clip else losses


def cosine_adam(learning_rate: float, num_steps: int, final_fraction: float, clip_norm: float) -> Any:
    """Returns the outer optimizer of evolution strategies: clipping, then Adam with a cosine decay of the rate."""
    rate_schedule = optax.cosine_decay_schedule(learning_rate, num_steps, alpha=final_fraction)
    return optax.chain(optax.clip_by_global_norm(clip_norm), optax.adam(rate_schedule))


def _map_members(function: Callable[..., jax.Array], *arguments: jax.Array) -> jax.Array:
    """Maps a function over leading axes.

    Without vmap for size 1, because XLA would transpose batches at every product.
    """
    if arguments[0].shape[0] > 1:
        return jax.vmap(function)(*arguments)
    return function(*(argument[0] for argument in arguments))[None]


def _dataset(task: Task | TaskFamily, split: str, where: str) -> ArrayDataset | SampledDataset | None:
    if task.datasets is None and split == "train":
        return None
    dataset = getattr(task.datasets, split, None)
    if dataset is None:
        raise ConfigError(f"Evolve.split: the task has no split {split!r}", where=where)
    if not isinstance(dataset, ArrayDataset | SampledDataset):
        raise ConfigError(
            f"split {split!r} cannot be drawn inside the program",
            where=where,
            got=type(dataset).__name__,
            expected="an ArrayDataset or a SampledDataset: members share one program, and no iterator feeds it",
        )
    return dataset


def _sample(dataset: Any, arrays: Any, key: jax.Array) -> Any:
    if isinstance(dataset, ArrayDataset):
        return ArrayDataset(arrays, dataset.batch_size).sample(key)
    return dataset.sample(key) if dataset is not None else None
