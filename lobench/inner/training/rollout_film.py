"""Rollout film: an episode after the last step of a training."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from lobench.core.film import Film
from lobench.inner.adapters.stepper import Stepper
from lobench.inner.task import Task, TaskFamily
from lobench.inner.training.constants import merged
from lobench.inner.training.seed_block import Carry
from lobench.inner.training.streams import FILM, Replica, stream

__all__ = ["Camera"]

_MAX_FRAMES = 200


class Camera:
    """Records the first replica of a block, if its task supports films."""

    def __init__(self, task: Task | TaskFamily) -> None:
        self._scene = task.scene if isinstance(task, Task) else None
        self._task: Any = task

    @functools.cached_property
    def _film(self) -> Any:
        return jax.jit(self._task.film)

    @property
    def is_there(self) -> bool:
        """Whether the task supports films."""
        return self._scene is not None

    def film(self, stepper: Stepper, seed: int, carry: Carry) -> Film | None:
        """Returns the film; None if the first replica has diverged, or if the film has values that are not finite."""
        if self._scene is None:
            return None
        state = tuple(carry)[:4]
        if np.ndim(carry.diverged_at):
            state = jax.tree.map(lambda leaf: leaf[0], state)
        opt_state, params, model_state, diverged_at = state
        if diverged_at >= 0:
            return None
        key = stream(Replica(np.uint32(seed), np.uint32(0)), FILM)
        frames, num_frames = self._film(*merged(stepper.eval_params(opt_state, params), model_state), key)
        kept_frames = np.asarray(frames, "<f4")[: int(num_frames)]
        stride = math.ceil(len(kept_frames) / _MAX_FRAMES)
        # Counted from the end, so that the last frame is shown.
        kept_frames = np.ascontiguousarray(kept_frames[::-stride][::-1])
        if not np.isfinite(kept_frames).all():
            return None
        scene = dataclasses.replace(self._scene, frame_seconds=stride * self._scene.frame_seconds)
        return Film(scene=scene, frames=memoryview(kept_frames.data), seed=seed)
