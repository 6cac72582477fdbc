"""Inner training as others write it: a jitted step called from Python, or the whole of it in one `lax.scan`.

theta is a constant of the compiled step, so another theta is another compilation. What the shape allows is used: data
on the device and drawn inside the step, buffers donated, nothing waited for before the end. `PlainLoop` calls the
evaluation batches one by one; `OneScan` is one program with the compiler options that ours has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lobench.inner.backend import compiler_options
from lobench.inner.task import ArrayDataset, Task

__all__ = ["OneScan", "PlainLoop"]


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
                return task.loss_with_state(params, model_state, jax.random.fold_in(loss_key, index), data)

            (loss, state), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
            updates, opt_state = optimizer.update(grads, opt_state, params, value=loss)
            return jax.tree.map(jnp.add, params, updates), opt_state, state, loss

        def evaluate(split: str) -> Callable[..., Any]:
            def one(params: Any, model_state: Any, key: jax.Array) -> Any:
                data_key, loss_key = jax.random.split(key)
                return task.eval_loss_with_aux(params, model_state, loss_key, draw(split, data_key))

            return one

        self._pieces = start, step, {split: evaluate(split) for split in splits}
        self._compile()

    def _compile(self) -> None:
        start, step, evaluate = self._pieces
        self._start, self._step = jax.jit(start), jax.jit(step, donate_argnums=(0, 1))
        self._evaluate = {split: jax.jit(one) for split, one in evaluate.items()}

    def _keys(self, seed: int) -> dict[str, jax.Array]:
        return {
            split: jax.random.split(jax.random.fold_in(jax.random.key(seed), index), self._eval_batches)
            for index, split in enumerate(self._splits)
        }

    def run(self, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns the batch losses [num_steps] and each split's evaluation losses [num_evals]."""
        params, opt_state, model_state, data_key, loss_key = self._start(np.uint32(seed))
        keys = self._keys(seed)
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
            split: np.asarray([np.mean([loss for loss, _ in row]) for row in jax.device_get(rows)])
            for split, rows in curves.items()
        }


class OneScan(PlainLoop):
    """The same as one compiled program: scans over periods and steps, evaluation batches side by side."""

    def _compile(self) -> None:
        start, step, evaluate = self._pieces
        periods = np.arange(self._num_steps, dtype=np.int32).reshape(-1, self._eval_every)

        def train(seed: jax.Array, keys: dict[str, jax.Array]) -> Any:
            params, opt_state, model_state, data_key, loss_key = start(seed)

            def values(params: Any, model_state: Any) -> Any:
                found = {}
                for split, one in evaluate.items():
                    losses, _ = jax.vmap(lambda key, one=one: one(params, model_state, key))(keys[split])
                    found[split] = jnp.mean(losses)
                return found

            def one_step(carry: Any, index: jax.Array) -> Any:
                *carry, loss = step(*carry, data_key, loss_key, index)
                return tuple(carry), loss

            def period(carry: Any, indices: jax.Array) -> Any:
                before = values(carry[0], carry[2])
                carry, losses = jax.lax.scan(one_step, carry, indices)
                return carry, (losses, before)

            carry, (losses, curves) = jax.lax.scan(period, (params, opt_state, model_state), periods)
            last = values(carry[0], carry[2])
            return losses.reshape(-1), jax.tree.map(lambda curve, end: jnp.append(curve, end), curves, last)

        self._train = jax.jit(train, compiler_options=compiler_options())

    def run(self, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        losses, curves = jax.device_get(self._train(np.uint32(seed), self._keys(seed)))
        return np.asarray(losses), {split: np.asarray(curve) for split, curve in curves.items()}
