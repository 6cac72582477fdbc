"""Wrapper that rescales parameters: the optimizer sees weights that are about a thousand times larger or smaller."""

from __future__ import annotations

import math
import zlib
from typing import Any

import jax
import numpy as np

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper, wrap_task_or_family

__all__ = ["Reparametrised"]

_SCALE_GROUPS = ("global", "tensor", "parameter")


@configurable
def Reparametrised(
    *,
    task: Any,
    by: str = "global",
    scale: float | None = None,
    low: float = 1e-3,
    high: float = 1e3,
    problem_seed: int = 0,
) -> Task | TaskFamily:
    """Wrapper that takes a task's loss at `scale * params`, started at the same function.

    With scale 1000 a step of a given length in the parameters changes the function a thousand times as much. The scales
    of `by = "tensor"` and `"parameter"` are drawn once, log-uniformly, and are the same for all seeds.

    Args:
      task: Task or family.
      by: "global": one scale; "tensor": one per leaf; "parameter": one per number.
      scale: Global scale. None: it is drawn.
      low, high: Bounds of drawn scales.
      problem_seed: Seed of the draws.
    Source: google/learned_optimization's ReparamWeights, by which VeLO's and Celo's tasks are augmented.
    """
    name = "Reparametrised"
    arguments.choice(name, "by", by, _SCALE_GROUPS)
    if scale is not None and by != "global":
        raise ConfigError(f"{name}.scale: scales by {by} are drawn", got=repr(scale), next_step="bind low and high")
    for setting, value in (("scale", 1.0 if scale is None else scale), ("low", low), ("high", high)):
        if arguments.number(name, setting, value) == 0:
            raise ConfigError(f"{name}.{setting}", got=repr(value), expected="a number > 0")
    if low > high:
        raise ConfigError(f"{name}.low", got=repr(low), expected=f"a number <= {name}.high = {high!r}")
    seed = arguments.integer(name, "problem_seed", problem_seed, at_least=0)
    return wrap_task_or_family(
        name, task, lambda inner: _RescaledTask(inner, by, scale, (math.log(low), math.log(high)), seed)
    )


class _RescaledTask(TaskWrapper):
    def __init__(
        self, task: Task, scale_group: str, scale: float | None, log_range: tuple[float, float], problem_seed: int
    ) -> None:
        super().__init__(task)
        self._scale_group, self._log_range, self._seed = scale_group, log_range, problem_seed
        self._global_scale = self._draw("", ()) if scale is None else np.float32(scale)

    def init_with_state(self, key: jax.Array) -> tuple[PyTree, PyTree]:
        params, state = self.task.init_with_state(key)
        return jax.tree.map(lambda leaf, scale: leaf / scale, params, self.scales(params)), state

    def scales(self, params: PyTree) -> PyTree:
        """Returns the scale of each leaf, float32[] or of the leaf's shape. It depends on the leaf's path only."""
        if self._scale_group == "global":
            return jax.tree.map(lambda leaf: self._global_scale, params)
        is_wide = self._scale_group == "parameter"
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: self._draw(jax.tree_util.keystr(path), leaf.shape if is_wide else ()), params
        )

    def _draw(self, path: str, shape: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng((self._seed, zlib.crc32(path.encode())))
        return np.exp(rng.uniform(*self._log_range, shape)).astype(np.float32)

    def wrapped_params(self, params: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf, scale: leaf * scale, params, self.scales(params))
