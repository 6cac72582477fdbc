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
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper, wrap_task_or_family

__all__ = ["MaximalUpdate"]

_NAME = "MaximalUpdate"
_UPDATE_RULES = ("adam", "sgd")


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
    arguments.choice(_NAME, "steps", steps, _UPDATE_RULES)
    base_task = as_task(base)
    return wrap_task_or_family(_NAME, task, lambda inner: _MaximalUpdateTask(inner, base_task, steps))


class _MaximalUpdateTask(TaskWrapper):
    def __init__(self, task: Task, base: Task | TaskFamily, update_rule: str) -> None:
        super().__init__(task)
        self._base, self._update_rule = base, update_rule

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        params, state = self.task.init_with_state(key)
        init_factors, effect_factors = self._init_and_effect_factors(params)
        return jax.tree.map(
            lambda leaf, init_factor, effect_factor: leaf * init_factor / effect_factor,
            params,
            init_factors,
            effect_factors,
        ), state

    def wrapped_params(self, params: PyTree) -> PyTree:
        return jax.tree.map(
            lambda leaf, effect_factor: leaf * effect_factor, params, self._init_and_effect_factors(params)[1]
        )

    def _init_and_effect_factors(self, params: PyTree) -> tuple[PyTree, PyTree]:
        """Returns for each leaf the factor of its initial value, and the factor of its effect in the loss."""
        leaves = jax.tree_util.tree_leaves_with_path(params)
        structure = jax.tree.structure(params)
        base_leaves = jax.tree.leaves(jax.eval_shape(self._base_params, jax.random.key(0)))
        if len(base_leaves) != len(leaves):
            raise ConfigError(f"{_NAME}.base has other parameters than the task", expected="the same, of another width")
        pairs = [
            self._leaf_factors(jax.tree_util.keystr(path), leaf.shape, base_leaf.shape)
            for (path, leaf), base_leaf in zip(leaves, base_leaves, strict=True)
        ]
        init_factors, effect_factors = zip(*pairs, strict=True)
        return jax.tree.unflatten(structure, init_factors), jax.tree.unflatten(structure, effect_factors)

    def _base_params(self, key: jax.Array) -> PyTree:
        base = self._base
        task = base.task_fn(base.sample(key)) if isinstance(base, TaskFamily) else base
        return task.init_with_state(key)[0]

    def _leaf_factors(self, path: str, shape: tuple[int, ...], base_shape: tuple[int, ...]) -> tuple[float, float]:
        if len(shape) != len(base_shape) or shape[:-2] != base_shape[:-2]:
            raise ConfigError(
                f"{_NAME}: parameter {path} grows otherwise than in width", got=f"{base_shape} to {shape}"
            )
        fan_out_ratio = shape[-1] / base_shape[-1] if shape else 1.0
        fan_in_ratio = shape[-2] / base_shape[-2] if len(shape) > 1 else 1.0
        init_factor = 1 / math.sqrt(fan_in_ratio) if fan_out_ratio == 1 else 1.0
        return init_factor, 1 / fan_in_ratio if self._update_rule == "adam" else math.sqrt(fan_out_ratio / fan_in_ratio)
