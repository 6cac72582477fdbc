"""Reduction of a rate on a plateau of the loss."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from lobench.inner.configurable import configurable
from lobench.inner.schedules.schedule import LossSchedule, Rate
from lobench.inner.schedules.setting_checks import check_integers, check_numbers

__all__ = ["plateau"]


class _PlateauState(NamedTuple):
    scale: jax.Array  # float32[], factor of the rate
    best: jax.Array  # float32[], the lowest mean of a window
    waited: jax.Array  # int32[], windows since then
    resting: jax.Array  # int32[], windows of the cooldown that are left
    total: jax.Array  # float32[], of the losses of the present window
    num_losses: jax.Array  # int32[], number of these losses


class _Plateau(LossSchedule):
    def __init__(self, rate: Rate, factor: Rate, patience: int, cooldown: int, rtol: Rate, window: int) -> None:
        super().__init__("plateau")
        self._rate, self._factor, self._rtol = rate, factor, rtol
        self._patience = patience
        self._cooldown = cooldown
        self._window = window

    def init(self) -> _PlateauState:
        one = jnp.float32(1)
        zero = jnp.int32(0)
        return _PlateauState(one, jnp.float32(jnp.inf), zero, zero, jnp.float32(0), zero)

    def observe(self, state: _PlateauState, loss: jax.Array) -> _PlateauState:
        total = state.total + jnp.asarray(loss, jnp.float32)
        num_losses = state.num_losses + 1
        is_full = num_losses == self._window
        mean = total / num_losses
        is_better = mean < (1 - self._rtol) * state.best
        is_resting = state.resting > 0
        num_waited = jnp.where(is_better | is_resting, 0, state.waited + 1)
        is_over = num_waited == self._patience
        finished_window = _PlateauState(
            scale=jnp.where(is_over, state.scale * self._factor, state.scale),
            best=jnp.where(is_better, mean, state.best),
            waited=jnp.where(is_over, 0, num_waited),
            resting=jnp.where(is_over, self._cooldown, jnp.maximum(state.resting - 1, 0)),
            total=jnp.float32(0),
            num_losses=jnp.int32(0),
        )
        unfinished_window = state._replace(total=total, num_losses=num_losses)
        return jax.tree.map(
            lambda new, old: jnp.where(is_full, new, old).astype(old.dtype), finished_window, unfinished_window
        )

    def rate(self, state: _PlateauState) -> jax.Array:
        return jnp.asarray(self._rate * state.scale, jnp.float32)


@configurable
def plateau(
    rate: Rate = 1e-3, factor: Rate = 0.1, patience: int = 10, cooldown: int = 0, rtol: Rate = 1e-4, window: int = 10
) -> LossSchedule:
    """Multiplies the rate by `factor` after `patience` windows in a row without a lower loss.

    Equivalent to `optax.contrib.reduce_on_plateau` after the optimizer. A window is the mean of `window` batches'
    losses (optax's accumulation_size). It lowers the loss if it is below (1 - rtol) times the best one so far.
    `cooldown` windows after a reduction are ignored. With a constant loss, patience 2, window 1 and factor 0.5, the
    rate is halved at the third, fifth and seventh update; torch's patience 2 waits one update longer.
    """
    check_numbers("plateau", rate=rate)
    check_numbers("plateau", above=0, at_most=1, factor=factor)
    check_numbers("plateau", at_least=0, at_most=1, rtol=rtol)
    check_integers("plateau", at_least=1, patience=patience, window=window)
    check_integers("plateau", at_least=0, cooldown=cooldown)
    return _Plateau(rate, factor, patience, cooldown, rtol, window)
