"""Inner training as it is usually written: a jitted step called from Python, evaluation batches called one by one.

theta is a constant of the compiled step, so another theta is another compilation. What the shape allows is used: data
on the device and drawn inside the step, buffers donated, nothing waited for before the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.task import ArrayDataset, Task

__all__ = ["PlainLoop"]


class PlainLoop:
    """Trains one seed.

    Args:
      task: Whose `datasets` are arrays on the device, or None.
      optimizer: An optax transformation, theta inside.
      splits: Evaluated every `eval_every` steps on `eval_batches` batches each.
    """

    def __init__(
        self, task: Task, optimizer: Any, *, num_steps: int, eval_every: int, eval_batches: int, splits: tuple[str, ...]
    ) -> None:
        self._num_steps, self._eval_every = num_steps, eval_every
        self._eval_batches = eval_batches if task.datasets else 1
        datasets = {split: getattr(task.datasets, split) if task.datasets else None for split in splits}
        self._splits = splits

        def draw(split: str, key: jax.Array) -> Any:
            dataset = datasets[split]
            return dataset.sample(key) if isinstance(dataset, ArrayDataset) else None

        def start(seed: jax.Array) -> Any:
            key = jax.random.key(seed, impl="threefry2x32")
            params, model_state = task.init_with_state(jax.random.fold_in(key, 0))
            return params, optimizer.init(params), model_state, jax.random.fold_in(key, 1), jax.random.fold_in(key, 2)

        def step(params: Any, opt_state: Any, model_state: Any, data_key: Any, loss_key: Any, index: Any) -> Any:
            data = draw("train", jax.random.fold_in(data_key, index))

            def loss_fn(params: Any) -> Any:
                loss, state, _ = task.loss_with_state_and_aux(
                    params, model_state, jax.random.fold_in(loss_key, index), data
                )
                return loss, state

            (loss, state), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
            updates, opt_state = optimizer.update(grads, opt_state, params, value=loss)
            return jax.tree.map(jnp.add, params, updates), opt_state, state, loss

        def evaluate(split: str) -> Callable[..., Any]:
            def one(params: Any, model_state: Any, key: jax.Array) -> Any:
                data_key, loss_key = jax.random.split(key)
                loss, aux = task.eval_loss_with_aux(params, model_state, loss_key, draw(split, data_key))
                return {"loss": loss, **aux}

            return jax.jit(one)

        self._start, self._step = jax.jit(start), jax.jit(step, donate_argnums=(0, 1))
        self._evaluate = {split: evaluate(split) for split in splits}

    def run(self, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns the batch losses [num_steps] and each split's evaluation losses [num_evals]."""
        params, opt_state, model_state, data_key, loss_key = self._start(np.uint32(seed))
        keys = {
            split: jax.random.split(jax.random.fold_in(jax.random.key(seed), index), self._eval_batches)
            for index, split in enumerate(self._splits)
        }
        losses, curves = [], {split: [] for split in self._splits}
        indices = [np.int32(index) for index in range(self._num_steps)]
        for index in range(self._num_steps + 1):
            if index % self._eval_every == 0:
                for split in self._splits:
                    metrics = [self._evaluate[split](params, model_state, key) for key in keys[split]]
                    curves[split].append(metrics)
            if index < self._num_steps:
                params, opt_state, model_state, loss = self._step(
                    params, opt_state, model_state, data_key, loss_key, indices[index]
                )
                losses.append(loss)
        return np.asarray(jax.device_get(losses)), {
            split: np.asarray([np.mean([one["loss"] for one in row]) for row in jax.device_get(rows)])
            for split, rows in curves.items()
        }
