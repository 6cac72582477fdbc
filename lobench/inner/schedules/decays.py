"""Schedules from a peak to a final rate. The last update (num_steps - 1) has exactly the final rate."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.schedules.schedule import Rate, Schedule
from lobench.inner.schedules.setting_checks import check_integers, check_numbers

__all__ = ["constant", "cosine", "exponential", "linear", "step"]


@configurable
def constant(value: Rate = 1e-3) -> Schedule:
    """Constant rate."""
    check_numbers("constant", value=value)
    return Schedule(lambda num_steps: lambda count: jnp.asarray(value, jnp.float32), "constant")


@configurable
def linear(peak: Rate = 1e-3, final: Rate = 0.0) -> Schedule:
    """Straight line from `peak` at the first update to `final` at the last one."""
    check_numbers("linear", peak=peak, final=final)
    return Schedule(lambda num_steps: _decay_between(peak, final, num_steps, lambda remaining: remaining), "linear")


@configurable
def cosine(peak: Rate = 1e-3, final: Rate = 0.0) -> Schedule:
    """Half a cosine from `peak` at the first update to `final` at the last one.

    final + (peak - final) (1 + cos(pi t / (N - 1))) / 2 at t = 0 .. N - 1.
    """
    check_numbers("cosine", peak=peak, final=final)
    # (1 + cos x) / 2 as the square of a sine that is 0 at the end, to avoid cancellation for small rates.
    return Schedule(
        lambda num_steps: _decay_between(
            peak, final, num_steps, lambda remaining: jnp.sin(math.pi / 2 * remaining) ** 2
        ),
        "cosine",
    )


@configurable
def exponential(peak: Rate = 1e-3, factor: Rate = 0.01, every: int | None = None) -> Schedule:
    """Exponential decay by `factor` over `every` updates. None: from the first update to the last."""
    _check_decay("exponential", peak, factor, every)

    def schedule_of(num_steps: int) -> Callable[[jax.Array], jax.Array]:
        return lambda count: peak * jnp.power(factor, count / (every or last_step(num_steps)))

    return Schedule(schedule_of, "exponential")


@configurable
def step(peak: Rate = 1e-3, factor: Rate = 0.1, every: int | None = None) -> Schedule:
    """Multiplies the rate by `factor` after each `every` updates. None: after each third of the training."""
    _check_decay("step", peak, factor, every)

    def schedule_of(num_steps: int) -> Callable[[jax.Array], jax.Array]:
        return lambda count: peak * jnp.power(factor, jnp.floor(count / (every or max(math.ceil(num_steps / 3), 1))))

    return Schedule(schedule_of, "step")


def _check_decay(name: str, peak: Rate, factor: Rate, every: int | None) -> None:
    check_numbers(name, peak=peak)
    check_numbers(name, above=0, factor=factor)
    if every is not None:
        check_integers(name, at_least=1, every=every)


def last_step(num_steps: int) -> int:
    """Returns the index of the last update, at least 1, so that it can be a divisor."""
    return max(num_steps - 1, 1)


def _decay_between(
    peak: Rate, final: Rate, num_steps: int, decay_shape: Callable[[jax.Array], jax.Array]
) -> Callable[[jax.Array], jax.Array]:
    final_step = last_step(num_steps)

    def schedule(count: jax.Array) -> jax.Array:
        remaining = (
            final_step - jnp.clip(count, 0, final_step)
        ) / final_step  # 1 at the first update, 0 at the last one and after it
        return final + (peak - final) * decay_shape(remaining)

    return schedule
