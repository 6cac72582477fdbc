"""Wrapper for maximal update parametrisation (muP): settings that suit a narrow task suit a wide one."""

from __future__ import annotations

import math
from typing import Any

import jax

from lobench.core.errors import ConfigError
from lobench.inner.adapters import as_task
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.wrappers.wrapping import Wrapping, wrapped

__all__ = ["MaximalUpdate"]

_NAME = "MaximalUpdate"
_STEPS = ("adam", "sgd")


@configurable
def MaximalUpdate(*, task: Any, base: Any, steps: str = "adam") -> Task | TaskFamily:
    """Wrapper that applies muP to a task, by comparison with the parameter shapes of a narrow task, `base`.

    At the width of the base the task is unchanged. A leaf has its outputs along the last axis and its inputs along the
    one before; a vector has outputs only. A leaf with f_in times the base's inputs and f_out times its outputs moves
    1 / f_in times as far per step (f_out / f_in for `steps = "sgd"`). The leaf of the last layer, of which only the
    inputs grow, starts 1 / sqrt(f_in) times as large. All of this is done by factors on the parameters in the loss, so
    it works with every optimizer. Attention needs heads of a fixed size.

    Args:
      task: Task or family.
      base: The same task with another width, such as `@base/DigitsMLP()`.
      steps: "adam": the optimizer's steps do not grow with the gradient, as those of Adam, Lion and most learned
        optimizers; "sgd": its steps are proportional to the gradient.
    Source: Yang et al. 2022, "Tensor Programs V", table 3; base shapes as in its package `mup`. Therien et al. 2024
      ("muLO") meta-train learned optimizers so.
    """
    arguments.choice(_NAME, "steps", steps, _STEPS)
    narrow = as_task(base)
    return wrapped(_NAME, task, lambda inner: _Mup(inner, narrow, steps))


class _Mup(Wrapping):
    def __init__(self, task: Task, base: Task | TaskFamily, steps: str) -> None:
        super().__init__(task)
        self._base, self._steps = base, steps

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        params, state = self.task.init_with_state(key)
        starts, reaches = self._factors(params)
        return jax.tree.map(lambda leaf, start, reach: leaf * start / reach, params, starts, reaches), state

    def at(self, params: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf, reach: leaf * reach, params, self._factors(params)[1])

    def _factors(self, params: PyTree) -> tuple[PyTree, PyTree]:
        """Returns for each leaf the factor of its initial value, and the factor of its effect in the loss."""
        leaves = jax.tree_util.tree_leaves_with_path(params)
        structure = jax.tree.structure(params)
        base_leaves = jax.tree.leaves(jax.eval_shape(self._base_params, jax.random.key(0)))
        if len(base_leaves) != len(leaves):
            raise ConfigError(f"{_NAME}.base has other parameters than the task", expected="the same, of another width")
        pairs = [
            self._leaf_factors(jax.tree_util.keystr(path), leaf.shape, base.shape)
            for (path, leaf), base in zip(leaves, base_leaves, strict=True)
        ]
        starts, update_factors = zip(*pairs, strict=True)
        return jax.tree.unflatten(structure, starts), jax.tree.unflatten(structure, update_factors)

    def _base_params(self, key: jax.Array) -> PyTree:
        base = self._base
        task = base.task_fn(base.sample(key)) if isinstance(base, TaskFamily) else base
        return task.init_with_state(key)[0]

    def _leaf_factors(self, path: str, shape: tuple[int, ...], base: tuple[int, ...]) -> tuple[float, float]:
        if len(shape) != len(base) or shape[:-2] != base[:-2]:
            raise ConfigError(f"{_NAME}: parameter {path} grows otherwise than in width", got=f"{base} to {shape}")
        outputs = shape[-1] / base[-1] if shape else 1.0
        inputs = shape[-2] / base[-2] if len(shape) > 1 else 1.0
        start = 1 / math.sqrt(inputs) if outputs == 1 else 1.0
        return start, 1 / inputs if self._steps == "adam" else math.sqrt(outputs / inputs)
