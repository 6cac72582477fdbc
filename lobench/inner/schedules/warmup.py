"""A warm-up before any schedule."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.schedules.schedule import Horizon, Rate, Schedule, active_horizon, rate_at
from lobench.inner.schedules.setting_checks import check_integers, check_numbers

__all__ = ["warmup"]


class _Warmup(Schedule):
    def __init__(self, steps: int, then: Rate, initial: Rate) -> None:
        super().__init__(lambda num_steps: lambda count: rate_at(then, count), "warmup")
        self._steps, self._then, self._initial = steps, then, initial

    def at(self, count: jax.Array, horizon: Horizon) -> jax.Array:
        with active_horizon(horizon.remaining_after(self._steps)):
            target = rate_at(self._then, jnp.int32(0))
            rate_after_warmup = rate_at(self._then, count - self._steps)
        warmup_rate = self._initial + (target - self._initial) * count / max(self._steps, 1)
        return jnp.where(count < self._steps, warmup_rate, rate_after_warmup)


@configurable
def warmup(steps: int = 100, then: Rate = 1e-3, initial: Rate = 0.0) -> Schedule:
    """Straight line from `initial` at the first update, over `steps` updates, to the start of `then`.

    `then` is a rate, or a schedule of optax or lobench. It counts from its own start, over the updates that remain
    after the warm-up: `cosine` after 100 of 1,000 updates runs over 900.
    """
    check_integers("warmup", at_least=0, steps=steps)
    check_numbers("warmup", initial=initial)
    if not callable(then):
        check_numbers("warmup", then=then)
    return _Warmup(steps, then, initial)
