"""Wrapper that augments training inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lobench.core.errors import ConfigError
from lobench.inner.configurable import configurable
from lobench.inner.optimizer import PyTree
from lobench.inner.task import Batch, Task, TaskFamily
from lobench.inner.tasks import arguments
from lobench.inner.tasks.measured import LossStateAux
from lobench.inner.tasks.wrappers.wrapping import TaskWrapper, batch_field, wrap_task_or_family

__all__ = ["Augmented"]

_STREAM = 0x6E02


@configurable
def Augmented(
    *, task: Any, field: str = "image", noise_std: float = 0.0, shift: int = 0, erase: int = 0, flip: bool = False
) -> Task | TaskFamily:
    """Wrapper that augments the training inputs of a task, each example at random.

    Augmentations are applied in this order: flip, shift, erase, noise. The shape of a batch does not change.

    Args:
      task: Task or family.
      field: Name of the input in a batch: float[batch, ...]. Flip, shift and erase need an image: [batch, height,
        width], [batch, height, width, channels] or [batch, side * side].
      noise_std: Standard deviation of normal noise on each number.
      shift: Largest shift of an image in pixels, in both directions. Vacated pixels are zero.
      erase: Side of a square of zeros at a random place.
      flip: Whether half of the images are mirrored, left to right.
    """
    name = "Augmented"
    std = arguments.number(name, "noise_std", noise_std)
    max_shift = arguments.integer(name, "shift", shift, at_least=0)
    erased_side = arguments.integer(name, "erase", erase, at_least=0)
    if not isinstance(flip, bool):
        raise ConfigError(f"{name}.flip", got=repr(flip), expected="True or False")
    augmentations: list[Callable[[jax.Array, jax.Array], jax.Array]] = []
    augmentations += [_flip] if flip else []
    augmentations += [lambda key, image: _shift(key, image, max_shift)] if max_shift else []
    augmentations += [lambda key, image: _erase(key, image, erased_side)] if erased_side else []
    if not augmentations and not std:
        expected = "one of noise_std, shift, erase and flip"
        raise ConfigError(f"{name} changes nothing", expected=expected)
    return wrap_task_or_family(name, task, lambda inner: _AugmentedTask(inner, field, augmentations, std))


class _AugmentedTask(TaskWrapper):
    def __init__(
        self, task: Task, field: str, augmentations: list[Callable[[jax.Array, jax.Array], jax.Array]], noise_std: float
    ) -> None:
        super().__init__(task)
        self._field = field
        self._augmentations = augmentations
        self._noise_std = noise_std

    def loss_with_state_and_aux(self, params: PyTree, state: PyTree, key: jax.Array, data: Batch) -> LossStateAux:
        value = batch_field("Augmented", data, self._field)
        key_of_changes = jax.random.fold_in(key, _STREAM)
        images = self._augment_images(key_of_changes, value) if self._augmentations else value
        if self._noise_std:
            key_of_noise = jax.random.fold_in(key_of_changes, len(self._augmentations))
            images = images + self._noise_std * jax.random.normal(key_of_noise, value.shape, value.dtype)
        return super().loss_with_state_and_aux(params, state, key, {**data, self._field: images})

    def _augment_images(self, key: jax.Array, value: jax.Array) -> jax.Array:
        images = value.reshape(*_image_shape(value.shape, self._field))
        for index, step in enumerate(self._augmentations):
            keys = jax.random.split(jax.random.fold_in(key, index), images.shape[0])
            images = jax.vmap(step)(keys, images)
        return images.reshape(value.shape)


def _image_shape(shape: tuple[int, ...], field: str) -> tuple[int, ...]:
    if len(shape) in (3, 4):
        return shape
    side = math.isqrt(shape[1]) if len(shape) == 2 else 0
    if side == 0 or side * side != shape[1]:
        expected = "[batch, height, width], with channels or without, or [batch, side * side]"
        raise ConfigError("Augmented.field: not images", got=f"{field!r} of {list(shape)}", expected=expected)
    return shape[0], side, side


def _flip(key: jax.Array, image: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)


def _shift(key: jax.Array, image: jax.Array, max_shift: int) -> jax.Array:
    padding = [(max_shift, max_shift), (max_shift, max_shift), *((0, 0) for _ in image.shape[2:])]
    row, column = jax.random.randint(key, (2,), 0, 2 * max_shift + 1)
    start = (row, column, *(jnp.int32(0) for _ in image.shape[2:]))
    return jax.lax.dynamic_slice(jnp.pad(image, padding), start, image.shape)


def _erase(key: jax.Array, image: jax.Array, erased_side: int) -> jax.Array:
    height, width = image.shape[:2]
    row, column = jax.random.randint(
        key, (2,), 0, jnp.asarray([max(height - erased_side, 0) + 1, max(width - erased_side, 0) + 1])
    )
    rows = jnp.arange(height) - row
    columns = jnp.arange(width) - column
    inside = ((rows >= 0) & (rows < erased_side))[:, None] & ((columns >= 0) & (columns < erased_side))[None, :]
    return jnp.where(inside.reshape(height, width, *(1 for _ in image.shape[2:])), 0, image)
