"""Schedules that rise and fall."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.schedules.decays import last_step
from lobench.inner.schedules.schedule import Rate, Schedule
from lobench.inner.schedules.setting_checks import check_numbers

__all__ = ["cyclic", "one_cycle"]


@configurable
def cyclic(low: Rate = 1e-4, high: Rate = 1e-2, period: float = 100) -> Schedule:
    """Triangles between `low` and `high`, with a period of `period` updates.

    `period = 10` has `high` at the updates 5, 15, 25 and `low` at 0, 10, 20.
    Source: Smith 2017, "Cyclical learning rates for training neural networks"; his stepsize is half a period.
    """
    check_numbers("cyclic", low=low, high=high)
    check_numbers("cyclic", above=0, period=period)

    def schedule(count: jax.Array) -> jax.Array:
        # The remainder first, because a quotient of large counts is too imprecise within a period.
        return low + (high - low) * (1 - jnp.abs(jnp.mod(count, period) / (period / 2) - 1))

    return Schedule(lambda num_steps: schedule, "cyclic")


@configurable
def one_cycle(
    peak: Rate = 1e-2, pct_start: Rate = 0.3, div_factor: Rate = 25.0, final_div_factor: Rate = 1e4
) -> Schedule:
    """Half a cosine up from `peak / div_factor`, and half a cosine down to `peak / div_factor / final_div_factor`.

    The last update has the lowest rate exactly; the update `floor(pct_start (num_steps - 1))` has the peak. These are
    the names and the values of `optax.cosine_onecycle_schedule(num_steps - 1, peak, ...)`.
    """
    check_numbers("one_cycle", peak=peak)
    check_numbers("one_cycle", at_least=0, at_most=1, pct_start=pct_start)
    check_numbers("one_cycle", above=0, div_factor=div_factor, final_div_factor=final_div_factor)

    def schedule_of(num_steps: int) -> Callable[[jax.Array], jax.Array]:
        final_step = last_step(num_steps)

        def schedule(count: jax.Array) -> jax.Array:
            peak_step = jnp.floor(pct_start * final_step + 1e-4)  # 0.29 * 100 is 28.999999999999996
            step = jnp.clip(count, 0, final_step)
            share_before_peak = (peak_step - step) / jnp.maximum(peak_step, 1)
            share_before_end = (final_step - step) / jnp.maximum(final_step - peak_step, 1)
            initial = peak / div_factor
            rising_rate = initial + (peak - initial) * jnp.cos(math.pi / 2 * share_before_peak) ** 2
            final = initial / final_div_factor
            falling_rate = final + (peak - final) * jnp.sin(math.pi / 2 * share_before_end) ** 2
            return jnp.where(step < peak_step, rising_rate, falling_rate)

        return schedule

    return Schedule(schedule_of, "one_cycle")
